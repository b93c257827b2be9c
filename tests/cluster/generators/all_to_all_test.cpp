#include <gmock/gmock.h>

#include "tests/cluster/clusters.hpp"

namespace headway {
namespace {

TEST(AllToAll, DividesAGpusLinksAmongTheOthers) {
  const Topology topology = preset("jean-zay-v100", 8);
  EXPECT_EQ(topology.nodes(), 2);
  EXPECT_EQ(count(topology, "nvlink"), 2 * 6 * 2);  // two servers, six pairs, both ways
  for (const TopologyLink& link : topology.links()) {
    if (link.kind != "nvlink") continue;
    EXPECT_DOUBLE_EQ(link.bandwidth.bytes_per_second, 50e9);  // 150 GB/s over three others
    EXPECT_EQ(link.count, 2);
  }
  EXPECT_EQ(way(topology, 1, 3), "node0/gpu1 node0/gpu3");
  EXPECT_DOUBLE_EQ(topology.nvlink_bandwidth().bytes_per_second, 150e9);
}

TEST(AllToAll, OfOneGpuHasNoLinks) {
  const Topology topology = topology_of(changed(kSmallCluster, {{"nvswitch", "all-to-all"},
                                                                {"\"gpus\": 2", "\"gpus\": 1"},
                                                                {"\"count\": 2", "\"count\": 1"}}),
                                        3);
  EXPECT_EQ(count(topology, "nvlink"), 0);
  EXPECT_EQ(topology.nodes(), 3);
}

}  // namespace
}  // namespace headway
