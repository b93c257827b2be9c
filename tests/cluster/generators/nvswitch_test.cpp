#include <gmock/gmock.h>

#include "tests/cluster/clusters.hpp"

namespace headway {
namespace {

TEST(NvSwitch, JoinsTheGpusOfEachServerThroughOneVertex) {
  const Topology topology = topology_of(kSmallCluster, 4);
  EXPECT_EQ(count(topology, NodeKind::kNvSwitch), 2);
  EXPECT_EQ(count(topology, "nvlink"), 2 * 4);  // each way from each GPU
  EXPECT_EQ(way(topology, 2, 3), "node1/gpu0 node1/nvswitch node1/gpu1");
  EXPECT_TRUE(topology.has_nvswitch());
  EXPECT_EQ(topology.gpus_per_domain(), 2);
  for (const TopologyLink& link : topology.links()) {
    if (link.kind != "nvlink") continue;
    EXPECT_EQ(link.bandwidth.bytes_per_second, 300e9);
    EXPECT_EQ(link.count, 12);
  }
}

TEST(NvSwitch, SpansServersWhereTheDomainDoes) {
  // Three servers of two GPUs a domain; the eight GPUs fill one domain and a third of the next.
  const Topology topology = topology_of(
      changed(kSmallCluster, {{"\"links\": 12", "\"links\": 12, \"domain_nodes\": 3"}}), 8);
  EXPECT_EQ(topology.gpus_per_domain(), 6);
  EXPECT_EQ(topology.gpus_per_node(), 2);
  EXPECT_EQ(topology.nodes(), 4);
  EXPECT_EQ(count(topology, NodeKind::kNvSwitch), 2);
  EXPECT_EQ(way(topology, 0, 5), "node0/gpu0 domain0/nvswitch node2/gpu1");
  // GPUs 4 and 6 stand in neighbouring servers of different domains, and so of different leaves.
  EXPECT_EQ(way(topology, 4, 6),
            "node2/gpu0 node2/pcie0 node2/nic0 unit1/leaf0 node3/nic0 node3/pcie0 node3/gpu0");
  EXPECT_EQ(topology.vertices()[5].domain, 0);
  EXPECT_EQ(topology.vertices()[6].domain, 1);
  const GroupPlacement near = topology.placement({0, 2, 4});
  EXPECT_EQ(near.nodes, 1);
  EXPECT_EQ(near.ranks_per_node, 3);
  EXPECT_EQ(topology.placement({4, 5, 6}).nodes, 2);
}

TEST(NvSwitch, OfAnNvl72JoinsEighteenTraysOfFour) {
  const Topology topology = preset("gb200-nvl72", 144);
  EXPECT_EQ(topology.nodes(), 36);
  EXPECT_EQ(topology.gpus_per_domain(), 72);
  EXPECT_EQ(count(topology, NodeKind::kNvSwitch), 2);
  EXPECT_EQ(way(topology, 0, 71), "node0/gpu0 domain0/nvswitch node17/gpu3");
  // 144 GPUs, 2 x 18 switch links to each of 72 GPUs, one link each way: 288.
  EXPECT_EQ(count(topology, "nvlink"), 288);
}

}  // namespace
}  // namespace headway
