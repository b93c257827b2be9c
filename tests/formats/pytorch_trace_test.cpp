#include "sim/formats/pytorch_trace.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headway {
namespace {

using testing::HasSubstr;

// As torch.profiler writes them with record_shapes=True: operators with shapes and strides, the
// kernels that they launched, a collective with its group.
const std::string kTrace = R"({
  "schemaVersion": 1,
  "deviceProperties": [{"id": 0, "name": "NVIDIA A100-SXM4-80GB", "numSms": 108}],
  "traceEvents": [
    {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1, "dur": 9, "args": {"External id": 7,
     "Input Dims": [[4096, 1024], [1024, 3072]], "Input type": ["c10::BFloat16", "c10::BFloat16"],
     "Input Strides": [[1024, 1], [1, 1024]]}},
    {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 2, "dur": 9, "args": {"External id": 8,
     "Input Dims": [[3072, 4096], [4096, 1024]], "Input type": ["c10::BFloat16", "c10::BFloat16"],
     "Input Strides": [[1, 3072], [1024, 1]]}},
    {"ph": "X", "cat": "cpu_op", "name": "aten::addmm", "ts": 3, "dur": 9, "args": {"External id": 9,
     "Input Dims": [[512], [64, 256], [256, 512]],
     "Input type": ["float", "float", "float"]}},
    {"ph": "X", "cat": "kernel", "name": "ampere_bf16_s16816gemm_bf16_128x128_tn", "ts": 4,
     "dur": 130.5, "args": {"External id": 7, "stream": 7}},
    {"ph": "X", "cat": "kernel", "name": "ampere_bf16_s16816gemm_bf16_128x128_nt", "ts": 5,
     "dur": 141, "args": {"External id": 8, "stream": 7}},
    {"ph": "X", "cat": "kernel", "name": "ampere_sgemm_128x64_tn", "ts": 6,
     "dur": 22, "args": {"External id": 9, "stream": 7}},
    {"ph": "X", "cat": "kernel", "name": "ampere_sgemm_128x64_tn", "ts": 7,
     "dur": 22, "args": {"External id": 99, "stream": 7}},
    {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "ts": 8,
     "dur": 88, "args": {"Collective name": "allreduce", "In msg nelems": 1048576,
     "Out msg nelems": 1048576, "dtype": "BFloat16", "Group size": 4,
     "Process Group Ranks": "[0, 1, 2, 3]"}},
    {"ph": "X", "cat": "kernel", "name": "vectorized_elementwise_kernel", "ts": 9, "dur": 3,
     "args": {}}
  ]})";

TEST(PyTorchTrace, GivesMultiplicationsWithTheDirectionOfTheirStridesAndCollectives) {
  ASSERT_TRUE(is_pytorch_trace(kTrace));
  PointSet set;
  Problems problems;
  const PyTorchTracePoints added = read_pytorch_trace(kTrace, "trace.json", set, problems);
  EXPECT_TRUE(problems.empty());
  EXPECT_EQ(added.multiplications, 3);
  EXPECT_EQ(added.collectives, 1);
  EXPECT_EQ(added.without_shape, 1);
  ASSERT_EQ(set.gemm.size(), 3U);
  EXPECT_EQ(set.gemm[0].layout, "NT");  // a transposed first factor: a weight gradient
  EXPECT_EQ(set.gemm[0].shape, (GemmShape{3072, 1024, 4096}));
  EXPECT_EQ(set.gemm[1].layout, "TN");
  EXPECT_DOUBLE_EQ(set.gemm[1].time_us, 130.5);
  EXPECT_EQ(set.gemm[2].dtype, "fp32");
  EXPECT_EQ(set.gemm[2].shape, (GemmShape{64, 512, 256}));
  EXPECT_EQ(regime_of(set.gemm[0].source), Regime::kInFramework);
  ASSERT_EQ(set.collectives.size(), 1U);
  EXPECT_EQ(set.collectives[0].network, "none(intra)");
  EXPECT_DOUBLE_EQ(set.collectives[0].bytes, 2097152);
}

TEST(PyTorchTrace, WithoutShapesOrGpuIsRefused) {
  PointSet set;
  Problems problems;
  read_pytorch_trace(R"({"traceEvents": [], "deviceProperties": [{"name": "X"}]})", "t", set,
                     problems);
  read_pytorch_trace(R"({"traceEvents": []})", "t", set, problems);
  read_pytorch_trace(R"({"traceEvents": 3})", "t", set, problems);
  ASSERT_EQ(problems.size(), 3U);
  EXPECT_THAT(problems.list()[0].text(), HasSubstr("record_shapes=True"));
  EXPECT_THAT(problems.list()[1].text(), HasSubstr("t: /deviceProperties: names no GPU"));
  EXPECT_THAT(problems.list()[2].text(), HasSubstr("t: /traceEvents: is no list"));
}

}  // namespace
}  // namespace headway
