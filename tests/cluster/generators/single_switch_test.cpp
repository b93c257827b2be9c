#include <gmock/gmock.h>

#include "tests/cluster/clusters.hpp"

namespace headway {
namespace {

const std::vector<Change> kOneSwitch = {
    {"\"generator\": \"rail-leaf-spine\", \"leaf_nodes\": 2, \"latency\": \"0.25 us\"",
     "\"generator\": \"single-switch\""}};

TEST(SingleSwitch, HoldsTheNicsOfAllServers) {
  const Topology topology = topology_of(changed(kSmallCluster, kOneSwitch), 8);
  EXPECT_EQ(count(topology, NodeKind::kLeaf), 1);
  EXPECT_EQ(count(topology, NodeKind::kSpine), 0);
  EXPECT_EQ(count(topology, "nic"), 2 * 8);
  EXPECT_EQ(way(topology, 0, 7),
            "node0/gpu0 node0/pcie0 node0/nic0 leaf0 node3/nic1 node3/pcie0 node3/gpu1");
}

TEST(SingleSwitch, HasNoLeavesToFill) {
  EXPECT_THAT(
      problems_of(changed(kSmallCluster, {{"rail-leaf-spine", "single-switch"}})),
      testing::AllOf(testing::HasSubstr("/network/leaf_nodes"), testing::HasSubstr("unknown key")));
}

}  // namespace
}  // namespace headway
