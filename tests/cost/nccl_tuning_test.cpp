#include "sim/cost/nccl_tuning.hpp"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace headway {
namespace {

constexpr CollectiveKind kAllReduce = CollectiveKind::kAllReduce;
constexpr CollectiveKind kAllGather = CollectiveKind::kAllGather;

NcclSystem one_node(int compute_capability, double nvlink) {
  return nccl_system(compute_capability, 8, 1, true, nvlink, 8, 50, NcclCpu::kIntel);
}
NcclSystem h100(int nodes) {
  return nccl_system(90, 8 * nodes, nodes, true, 450, 8, 50, NcclCpu::kIntel);
}

// The graphs that facts 4.3 derives for the search of src/graph/search.cc.
TEST(NcclGraph, FillsTheLinksWithTheFastestCandidates) {
  const NcclSystem a100 = one_node(80, 300);
  EXPECT_EQ(a100.ring.channels, 12);
  EXPECT_DOUBLE_EQ(a100.ring.intra_gb_per_s, 20);
  const NcclSystem hopper = one_node(90, 450);
  EXPECT_EQ(hopper.ring.channels, 12);
  EXPECT_DOUBLE_EQ(hopper.ring.intra_gb_per_s, 30);
  const NcclSystem blackwell = one_node(100, 900);
  EXPECT_EQ(blackwell.ring.channels, 16);
  EXPECT_DOUBLE_EQ(blackwell.ring.intra_gb_per_s, 45);
  const NcclSystem two = h100(2);
  EXPECT_EQ(two.ring.channels, 8);
  EXPECT_DOUBLE_EQ(two.ring.inter_gb_per_s, 45);
}

TEST(NcclGraph, OfASlowNicIsOneChannelAtItsSpeed) {
  const NcclSystem slow = nccl_system(80, 2, 2, true, 300, 1, 0.1, NcclCpu::kIntel);
  EXPECT_EQ(slow.ring.channels, 1);
  EXPECT_DOUBLE_EQ(slow.ring.inter_gb_per_s, 0.1);
}

struct Oracle {
  NcclAlgorithm algorithm;
  NcclProtocol protocol;
  double latency_us, gb_per_s;
};
constexpr auto kRing = NcclAlgorithm::kRing;
constexpr auto kTree = NcclAlgorithm::kTree;
constexpr auto kLL = NcclProtocol::kLL;
constexpr auto kLL128 = NcclProtocol::kLL128;
constexpr auto kSimple = NcclProtocol::kSimple;

void expect(const NcclSystem& system, CollectiveKind kind, const std::vector<Oracle>& oracles) {
  for (const Oracle& oracle : oracles) {
    const auto tuning = nccl_tuning(system, kind, oracle.algorithm, oracle.protocol);
    const std::string what =
        std::string(name(oracle.algorithm)) + " " + std::string(name(oracle.protocol));
    ASSERT_TRUE(tuning) << what;
    EXPECT_NEAR(tuning->latency_us, oracle.latency_us, 0.05) << what;
    EXPECT_NEAR(tuning->gb_per_s, oracle.gb_per_s, 0.0005) << what;
  }
}

// facts 4.3, the table of oracles, to the digits printed there.
TEST(NcclTuning, AllReduceOnEightA100) {
  expect(one_node(80, 300), kAllReduce,
         {{kRing, kLL, 15.0, 50.114},
          {kRing, kLL128, 40.6, 126.171},
          {kRing, kSimple, 56.0, 137.143},
          {kTree, kLL, 15.2, 29.053},
          {kTree, kLL128, 31.5, 85.867},
          {kTree, kSimple, 64.4, 110.4}});
}

TEST(NcclTuning, AllReduceOnEightH100) {
  expect(h100(1), kAllReduce,
         {{kRing, kLL, 15.0, 80.571},
          {kRing, kLL128, 40.6, 189.257},
          {kRing, kSimple, 56.0, 205.714},
          {kTree, kLL, 15.2, 43.579},
          {kTree, kLL128, 31.5, 128.8},
          {kTree, kSimple, 64.4, 165.6},
          {NcclAlgorithm::kNvls, kSimple, 25, 274.286}});
}

TEST(NcclTuning, AllGatherOnEightH100) {
  expect(h100(1), kAllGather,
         {{kRing, kLL, 10.8, 161.143},
          {kRing, kLL128, 27.3, 378.514},
          {kRing, kSimple, 32.2, 411.429},
          {NcclAlgorithm::kNvls, kSimple, 25, 260.3125}});
  EXPECT_FALSE(nccl_tuning(h100(1), kAllGather, kTree, kLL));
}

TEST(NcclTuning, AllReduceOnTwoNodesOfH100) {
  expect(h100(2), kAllReduce,
         {{kRing, kLL, 40.0, 20.8},
          {kRing, kLL128, 75.2, 156.587},
          {kRing, kSimple, 131.6, 192.0},
          {kTree, kLL, 25.2, 19.5},
          {kTree, kLL128, 48.5, 146.8},
          {kTree, kSimple, 92.4, 165.6},
          {NcclAlgorithm::kNvlsTree, kSimple, 66.8, 246.187}});
}

TEST(NcclTuning, AllReduceOnSixteenNodesOfH100) {
  expect(h100(16), kAllReduce,
         {{kRing, kLL, 311.6, 10.280},
          {kRing, kLL128, 559.6, 147.956},
          {kRing, kSimple, 1190.0, 181.417},
          {kTree, kLL, 55.2, 10.2},
          {kTree, kLL128, 99.5, 116.0},
          {kTree, kSimple, 176.4, 144.0},
          {NcclAlgorithm::kNvlsTree, kSimple, 192.2, 181.417}});
}

TEST(NcclTuning, AllGatherOnSixteenNodesOfH100) {
  expect(h100(16), kAllGather,
         {{kRing, kLL, 159.1, 20.561},
          {kRing, kLL128, 286.8, 295.912},
          {kRing, kSimple, 599.2, 362.835}});
}

void expect_choice(const NcclSystem& system, double bytes, NcclAlgorithm algorithm,
                   NcclProtocol protocol, double microseconds) {
  const NcclTime choice = nccl_choice(system, kAllReduce, bytes);
  EXPECT_EQ(name(choice.algorithm), name(algorithm)) << bytes;
  EXPECT_EQ(name(choice.protocol), name(protocol)) << bytes;
  EXPECT_NEAR(choice.total_us(), microseconds, 0.005) << bytes;
}

constexpr double kKiB = 1024, kMiB = 1048576, kGiB = 1073741824;

// facts 4.3, "chosen algorithm and time".
TEST(NcclChoice, OnEightA100) {
  const NcclSystem system = one_node(80, 300);
  expect_choice(system, kMiB, kRing, kLL, 35.92);
  expect_choice(system, 16 * kMiB, kRing, kLL128, 173.57);
  expect_choice(system, 256 * kMiB, kRing, kSimple, 2013.34);
}

TEST(NcclChoice, OnEightH100) {
  const NcclSystem system = h100(1);
  expect_choice(system, 8 * kKiB, kRing, kLL, 15.10);
  expect_choice(system, 16 * kMiB, NcclAlgorithm::kNvls, kSimple, 86.17);
  expect_choice(system, kGiB, NcclAlgorithm::kNvls, kSimple, 3939.68);
}

TEST(NcclChoice, OnSixteenNodesOfH100) {
  const NcclSystem system = h100(16);
  expect_choice(system, kMiB, kTree, kLL128, 114.57);
  expect_choice(system, 16 * kMiB, kTree, kLL128, 260.20);
  expect_choice(system, kGiB, NcclAlgorithm::kNvlsTree, kSimple, 6110.83);
}

TEST(NcclChoice, LeavesOutLl128WhereTheNicIsFar) {
  NcclSystem system = h100(16);
  system.near_nic = false;
  EXPECT_NE(nccl_choice(system, kAllReduce, kMiB).protocol, kLL128);
}

TEST(NcclChoice, TakesPatForGathersOfOneGpuPerNode) {
  const NcclSystem system = nccl_system(90, 16, 16, true, 450, 1, 50, NcclCpu::kIntel);
  EXPECT_TRUE(nccl_tuning(system, kAllGather, NcclAlgorithm::kPat, kSimple));
  EXPECT_FALSE(nccl_tuning(system, kAllReduce, NcclAlgorithm::kPat, kSimple));
  EXPECT_FALSE(nccl_tuning(h100(2), kAllGather, NcclAlgorithm::kPat, kSimple));
}

}  // namespace
}  // namespace headway
