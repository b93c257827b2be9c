#include "sim/cost/collective_check.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headway {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

CollectiveRow row(const std::string& gpu, const std::string& network, int ranks, double bytes) {
  CollectiveRow one;
  one.gpu = gpu;
  one.operation = "all_reduce";
  one.network = network;
  one.ranks = ranks;
  one.gpus_per_node = 8;
  one.bytes = bytes;
  one.time_us = 100;
  one.source = "made up";
  return one;
}

TEST(CollectiveCheck, ReadsTheNicsOutOfANetworksName) {
  EXPECT_EQ(nics_in("IB NDR 8x400G CX7"), "8x400 Gbit/s");
  EXPECT_EQ(nics_in("EFA 32x100G (p5)"), "32x100 Gbit/s");
  EXPECT_EQ(nics_in("GPUDirect-TCPXO 8x200G (a3-mega)"), "8x200 Gbit/s");
  EXPECT_EQ(nics_in("Slingshot-11 200G; NICs/node unstated"), std::nullopt);
  EXPECT_EQ(nics_in("unstated"), std::nullopt);
}

TEST(CollectiveCheck, TellsNetworksThatNcclDrivesItself) {
  EXPECT_TRUE(is_plain_network("IB HDR 4x200G"));
  EXPECT_TRUE(is_plain_network("RoCE 8x400G CX7 (a3-ultra)"));
  EXPECT_FALSE(is_plain_network("RoCE 8x400G?"));
  EXPECT_FALSE(is_plain_network("IB NDR 8x400G (SHARP job named in the text)"));
  EXPECT_FALSE(is_plain_network("EFA 32x100G (p5)"));
}

TEST(CollectiveCheck, PredictsWithoutTheCurveThatAPointBelongsTo) {
  PointSet points;
  points.collectives = {row("A100-SXM4-80GB", "none(intra)", 8, 1 << 26),
                        row("H100-SXM5-80GB", "IB NDR 8x400G", 16, 1 << 26),
                        row("a toaster", "none(intra)", 2, 1 << 20)};
  const auto checked = check_collectives(points);
  ASSERT_EQ(checked.size(), 3U);
  EXPECT_TRUE(checked[0].inside);
  EXPECT_NE(checked[0].grade, Grade::kMeasured);
  EXPECT_FALSE(checked[1].inside);
  EXPECT_TRUE(checked[1].stated);
  EXPECT_GT(checked[1].predicted_us, 0);
  EXPECT_EQ(checked[2].skipped, "no profile of a toaster");
  const std::string csv = collectives_csv(checked);
  EXPECT_THAT(csv, StartsWith("gpu,op,nranks,"));
  EXPECT_THAT(csv, HasSubstr("\nH100-SXM5-80GB,all_reduce,16,8,IB NDR 8x400G,67108864,100,"));
  EXPECT_THAT(csv, testing::Not(HasSubstr("toaster")));
}

}  // namespace
}  // namespace headway
