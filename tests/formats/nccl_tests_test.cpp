#include "sim/formats/nccl_tests.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headway {
namespace {

using testing::HasSubstr;

// In the layout of nccl-tests 2.13 (src/common.cu), two ranks on each of two hosts.
const std::string kLog = R"(# nThread 1 nGpus 1 minBytes 1048576 maxBytes 4194304 step: 4(factor)
#
# Using devices
#  Rank  0 Group  0 Pid   4242 on     node01 device  0 [0x07] NVIDIA A100-SXM4-80GB
#  Rank  1 Group  0 Pid   4243 on     node01 device  1 [0x0f] NVIDIA A100-SXM4-80GB
#  Rank  2 Group  0 Pid   4244 on     node01 device  2 [0x47] NVIDIA A100-SXM4-80GB
#  Rank  3 Group  0 Pid   4245 on     node01 device  3 [0x4e] NVIDIA A100-SXM4-80GB
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     1048576        262144     float     sum      -1    50.00   20.97   31.46      0    49.00   21.40   32.10      0
     4194304       1048576     float     sum      -1    90.00   46.60   69.91      0      N/A     N/A     N/A    N/A
# Out of bounds values : 0 OK
)";

std::string replaced(std::string text, const std::string& piece, const std::string& by) {
  for (std::size_t at = text.find(piece); at != std::string::npos;
       at = text.find(piece, at + by.size())) {
    text.replace(at, piece.size(), by);
  }
  return text;
}

TEST(NcclTests, AreReadWithTheirRanksAndTheOperationTheirBandwidthsTell) {
  ASSERT_TRUE(is_nccl_tests_log(kLog));
  EXPECT_FALSE(is_nccl_tests_log("gpu,op,busbw_GB/s,note\nX,all_reduce,1,out-of-place size \n"));
  Problems problems;
  const auto rows = read_nccl_tests(kLog, "run.log", problems);
  EXPECT_TRUE(problems.empty());
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0].operation, "all_reduce");  // 31.46 / 20.97 = 2 x 3 / 4
  EXPECT_EQ(rows[0].gpu, "NVIDIA A100-SXM4-80GB");
  EXPECT_EQ(rows[0].ranks, 4);
  EXPECT_EQ(rows[0].network, "none(intra)");
  EXPECT_DOUBLE_EQ(rows[0].bytes, 1048576);
  EXPECT_DOUBLE_EQ(rows[0].time_us, 50);
  EXPECT_TRUE(rows[1].in_place);
  EXPECT_DOUBLE_EQ(rows[2].time_us, 90);
}

TEST(NcclTests, OfSeveralHostsCrossANetworkThatIsNotStated) {
  Problems problems;
  const std::string text = replaced(replaced(kLog, "4244 on     node01", "4244 on     node02"),
                                    "4245 on     node01", "4245 on     node02");
  const auto rows = read_nccl_tests(text, "run.log", problems);
  ASSERT_FALSE(rows.empty());
  EXPECT_EQ(rows[0].network, "unstated");
  EXPECT_EQ(rows[0].gpus_per_node, 2);
}

TEST(NcclTests, OfAGatherMustSayTheirName) {
  const std::string text = replaced(replaced(kLog, " sum ", "none "), "31.46", "15.73");
  Problems problems;
  EXPECT_TRUE(read_nccl_tests(text, "run.log", problems).empty());
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_THAT(problems.list()[0].text(), HasSubstr("run.log: line 1: does not say which"));
  Problems none;
  EXPECT_EQ(read_nccl_tests(text, "logs/all_gather_8.log", none)[0].operation, "all_gather");
  EXPECT_EQ(
      read_nccl_tests("# Collective test starting: alltoall_perf\n" + text, "run.log", none)[0]
          .operation,
      "alltoall");
  EXPECT_TRUE(none.empty());
}

TEST(NcclTests, NameTheLineOfABrokenTable) {
  Problems problems;
  read_nccl_tests(replaced(kLog, "   50.00   20.97   31.46      0  ", "  "), "run.log", problems);
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_THAT(problems.list()[0].text(), HasSubstr("line 12: 9 columns; expected 12 or 13"));
  Problems empty;
  read_nccl_tests("# size busbw\n", "run.log", empty);
  EXPECT_EQ(empty.size(), 2U);  // no table, no GPUs
}

}  // namespace
}  // namespace headway
