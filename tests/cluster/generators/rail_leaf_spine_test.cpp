#include <gmock/gmock.h>

#include "tests/cluster/clusters.hpp"

namespace headway {
namespace {

TEST(RailLeafSpine, HasALeafForEachRailOfAUnit) {
  const Topology topology = topology_of(kSmallCluster, 10);
  // Five servers, two a unit: three units of two rails.
  EXPECT_EQ(count(topology, NodeKind::kLeaf), 6);
  EXPECT_EQ(count(topology, NodeKind::kSpine), 1);
  // By hand: 10 GPUs, 10 NICs, 5 x (NVSwitch, PCIe switch, CPU), 6 leaves, 1 spine layer.
  EXPECT_EQ(topology.vertices().size(), 10U + 10U + 15U + 6U + 1U);
  // NVLink 10, PCIe 5 x (2 GPUs + 2 NICs + 1 switch), NICs 10, leaves 6; each both ways.
  EXPECT_EQ(topology.links().size(), 2U * (10U + 25U + 10U + 6U));
  for (const TopologyLink& link : topology.links()) {
    if (link.kind != "leaf-spine") continue;
    EXPECT_DOUBLE_EQ(link.bandwidth.bytes_per_second, 50e9);  // one NIC of each of two servers
    EXPECT_EQ(link.count, 2);
  }
}

TEST(RailLeafSpine, KeepsARailOfAUnitUnderOneSwitch) {
  const Topology topology = topology_of(kSmallCluster, 8);
  EXPECT_EQ(way(topology, 1, 3),
            "node0/gpu1 node0/pcie0 node0/nic1 unit0/leaf1 node1/nic1 node1/pcie0 node1/gpu1");
  EXPECT_EQ(way(topology, 1, 5),
            "node0/gpu1 node0/pcie0 node0/nic1 unit0/leaf1 spines0 unit1/leaf1 node2/nic1 "
            "node2/pcie0 node2/gpu1");
  EXPECT_EQ(way(topology, 1, 2),
            "node0/gpu1 node0/pcie0 node0/nic1 unit0/leaf1 spines0 unit0/leaf0 node1/nic0 "
            "node1/pcie0 node1/gpu0");
}

TEST(RailLeafSpine, ChangesRailOverNvlinkWhereItIsToldTo) {
  const Topology topology = topology_of(
      changed(kSmallCluster,
              {{"\"leaf_nodes\": 2", "\"leaf_nodes\": 2, \"rails_over_nvlink\": true"}}),
      8);
  EXPECT_EQ(way(topology, 1, 2),
            "node0/gpu1 node0/nvswitch node0/gpu0 node0/pcie0 node0/nic0 unit0/leaf0 node1/nic0 "
            "node1/pcie0 node1/gpu0");
  EXPECT_EQ(way(topology, 1, 3),
            "node0/gpu1 node0/pcie0 node0/nic1 unit0/leaf1 node1/nic1 node1/pcie0 node1/gpu1");
}

TEST(RailLeafSpine, OfADgxA100SuperPodHasTheSwitchesOfItsReferenceArchitecture) {
  // 140 servers, the largest of the reference architecture: 7 units of 20 servers and 8 leaves.
  const Topology topology = preset("dgx-a100", 140 * 8);
  EXPECT_EQ(count(topology, NodeKind::kLeaf), 56);
  // 64 servers of DGX B200: 2 units, 16 leaves of 32 uplinks: 512 cables to the spines.
  const Topology b200 = preset("dgx-b200", 64 * 8);
  EXPECT_EQ(count(b200, NodeKind::kLeaf), 16);
  int cables = 0;
  for (const TopologyLink& link : b200.links()) {
    const Vertex& from = b200.vertices()[static_cast<std::size_t>(link.from)];
    if (link.kind == "leaf-spine" && from.kind == NodeKind::kLeaf) cables += link.count;
  }
  EXPECT_EQ(cables, 512);
}

}  // namespace
}  // namespace headway
