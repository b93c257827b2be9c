#include <gmock/gmock.h>

#include <map>
#include <set>

#include "tests/cluster/clusters.hpp"

namespace headway {
namespace {

TEST(HybridCubeMesh, GivesEveryGpuSixLinksToFourOthers) {
  const Topology topology = preset("v100-1x100", 8);
  std::map<int, int> links;
  std::map<int, std::set<int>> peers;
  std::map<int, double> bandwidth;
  for (const TopologyLink& link : topology.links()) {
    if (link.kind != "nvlink") continue;
    links[link.from] += link.count;
    peers[link.from].insert(link.to);
    bandwidth[link.from] += link.bandwidth.bytes_per_second;
  }
  EXPECT_EQ(count(topology, "nvlink"), 32);  // 16 pairs
  for (int gpu = 0; gpu < 8; ++gpu) {
    EXPECT_EQ(links[gpu], 6) << gpu;
    EXPECT_EQ(peers[gpu].size(), 4U) << gpu;
    EXPECT_DOUBLE_EQ(bandwidth[gpu], 150e9) << gpu;
  }
}

TEST(HybridCubeMesh, ReachesGpusWithoutACommonLinkThroughTheWidestThird) {
  const Topology topology = preset("v100-1x100", 8);
  EXPECT_EQ(way(topology, 0, 3), "node0/gpu0 node0/gpu3");
  // 0-2-6 has one link at both hops, 0-4-6 two and one: both carry 25 GB/s. Receiver 6 takes the
  // first of the two, in the order of the mesh's links (4-6 before 2-6), receiver 5 the second
  // (0-1-5).
  EXPECT_EQ(way(topology, 0, 6), "node0/gpu0 node0/gpu4 node0/gpu6");
  EXPECT_EQ(way(topology, 0, 5), "node0/gpu0 node0/gpu1 node0/gpu5");
  // 3-0-4 has two links at both hops, 3-7-4 one and two.
  EXPECT_EQ(way(topology, 3, 4), "node0/gpu3 node0/gpu0 node0/gpu4");
  EXPECT_FALSE(topology.has_nvswitch());
}

TEST(HybridCubeMesh, OfPartOfANodeHasOnlyTheLinksBetweenItsGpus) {
  const Topology topology = preset("v100-1x100", 4);
  EXPECT_EQ(count(topology, "nvlink"), 12);  // a quad: 6 pairs
}

TEST(HybridCubeMesh, NeedsEightGpus) {
  EXPECT_THAT(problems_of(changed(kSmallCluster, {{"nvswitch", "hybrid-cube-mesh"}})),
              testing::HasSubstr(
                  "t.json: /node/gpu_fabric/generator: hybrid-cube-mesh joins 8 GPUs, not 2"));
}

}  // namespace
}  // namespace headway
