#include <gmock/gmock.h>

#include "tests/cluster/clusters.hpp"

namespace headway {
namespace {

const std::vector<Change> kFatTree = {{"rail-leaf-spine", "leaf-spine"}};

double uplink(const Topology& topology, const std::string& kind) {
  for (const TopologyLink& link : topology.links()) {
    if (link.kind == kind) return link.bandwidth.bytes_per_second;
  }
  return 0;
}

TEST(LeafSpine, PutsAllNicsOfAServerUnderItsLeaf) {
  const Topology topology = topology_of(changed(kSmallCluster, kFatTree), 10);
  // Five servers, two a leaf: three leaves and one layer of spines.
  EXPECT_EQ(count(topology, NodeKind::kLeaf), 3);
  EXPECT_EQ(count(topology, NodeKind::kSpine), 1);
  EXPECT_EQ(count(topology, NodeKind::kCore), 0);
  EXPECT_EQ(count(topology, "nic"), 2 * 10);
  EXPECT_EQ(count(topology, "leaf-spine"), 2 * 3);
  EXPECT_EQ(way(topology, 0, 3),
            "node0/gpu0 node0/pcie0 node0/nic0 leaf0 node1/nic1 node1/pcie0 node1/gpu1");
  EXPECT_EQ(
      way(topology, 0, 8),
      "node0/gpu0 node0/pcie0 node0/nic0 leaf0 spines0 leaf2 node4/nic0 node4/pcie0 node4/gpu0");
}

TEST(LeafSpine, DividesUplinksByTheOversubscription) {
  // Two servers x two NICs x 25 GB/s leave a leaf at 100 GB/s, or a quarter of that.
  EXPECT_DOUBLE_EQ(uplink(topology_of(changed(kSmallCluster, kFatTree), 8), "leaf-spine"), 100e9);
  std::vector<Change> changes = kFatTree;
  changes.push_back({"\"leaf_nodes\": 2", "\"leaf_nodes\": 2, \"oversubscription\": 4"});
  EXPECT_DOUBLE_EQ(uplink(topology_of(changed(kSmallCluster, changes), 8), "leaf-spine"), 25e9);
}

TEST(LeafSpine, JoinsPodsByACore) {
  std::vector<Change> changes = kFatTree;
  changes.push_back({"\"leaf_nodes\": 2",
                     "\"leaf_nodes\": 2, \"pod_nodes\": 4, \"core_oversubscription\": 8, "
                     "\"core_latency\": \"1 us\""});
  const Topology topology = topology_of(changed(kSmallCluster, changes), 20);
  // Ten servers: five leaves, pods of two leaves: three spine layers under one core.
  EXPECT_EQ(count(topology, NodeKind::kLeaf), 5);
  EXPECT_EQ(count(topology, NodeKind::kSpine), 3);
  EXPECT_EQ(count(topology, NodeKind::kCore), 1);
  // A pod of four servers sends 200 GB/s, and an eighth of it to the core.
  EXPECT_DOUBLE_EQ(uplink(topology, "spine-core"), 25e9);
  EXPECT_EQ(way(topology, 0, 18),
            "node0/gpu0 node0/pcie0 node0/nic0 leaf0 spines0 core spines2 leaf4 node9/nic0 "
            "node9/pcie0 node9/gpu0");
  // Within a pod nothing passes the core.
  EXPECT_EQ(way(topology, 8, 14).find("core"), std::string::npos);
}

TEST(LeafSpine, OfTheLlama3ClusterIsUnderSubscribedBelowAndOversubscribedAbove) {
  // 405B ran on 16,384 GPUs: six pods of 3,072. A rack's 16 NICs of 50 GB/s have twice the uplinks,
  // a pod's 3,072 a seventh.
  const Topology topology = preset("grand-teton-h100-96gb", 16384);
  EXPECT_EQ(count(topology, NodeKind::kLeaf), 1024);
  EXPECT_EQ(count(topology, NodeKind::kSpine), 6);
  EXPECT_DOUBLE_EQ(uplink(topology, "leaf-spine"), 2 * 16 * 50e9);
  EXPECT_DOUBLE_EQ(uplink(topology, "spine-core"), 3072 * 50e9 / 7);
}

}  // namespace
}  // namespace headway
