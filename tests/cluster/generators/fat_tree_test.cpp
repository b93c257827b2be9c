#include <gmock/gmock.h>

#include "tests/cluster/clusters.hpp"

namespace headway {
namespace {

using testing::HasSubstr;

std::string fat_tree(const std::string& ports, const std::string& nodes = "8") {
  return changed(kSmallCluster, {{"\"max_nodes\": 64", "\"max_nodes\": " + nodes},
                                 {R"("generator": "rail-leaf-spine", "leaf_nodes": 2)",
                                  R"("generator": "fat-tree", "ports": )" + ports}});
}

// Four ports: pods of two leaves and two spines, two NICs a leaf, four cores (figure 3 of the
// paper).
TEST(FatTree, HasHalfItsPortsUpAndHalfDownAtEveryLayer) {
  const Topology topology = topology_of(fat_tree("4"), 16);
  EXPECT_EQ(count(topology, NodeKind::kLeaf), 8);
  EXPECT_EQ(count(topology, NodeKind::kSpine), 8);
  EXPECT_EQ(count(topology, NodeKind::kCore), 4);
  EXPECT_EQ(count(topology, "nic"), 2 * 16);
  EXPECT_EQ(count(topology, "leaf-spine"), 2 * 8 * 2);
  EXPECT_EQ(count(topology, "spine-core"), 2 * 8 * 2);
  for (const TopologyLink& link : topology.links()) {
    if (link.kind == "spine-core") EXPECT_DOUBLE_EQ(link.bandwidth.bytes_per_second, 25e9);
  }
}

TEST(FatTree, SpreadsReceiversOverSpinesAndCores) {
  const Topology topology = topology_of(fat_tree("4"), 16);
  EXPECT_EQ(way(topology, 0, 2),
            "node0/gpu0 node0/pcie0 node0/nic0 pod0/leaf0 pod0/spine0 pod0/leaf1 node1/nic0 "
            "node1/pcie0 node1/gpu0");
  EXPECT_THAT(way(topology, 0, 3), HasSubstr(" pod0/spine1 "));
  // 15 = 1 + 2 * 7: the second spine, and of its two cores the second.
  EXPECT_THAT(way(topology, 0, 15), HasSubstr(" pod0/spine1 core3 pod3/spine1 "));
  EXPECT_THAT(way(topology, 0, 14), HasSubstr(" pod0/spine0 core1 pod3/spine0 "));
  EXPECT_THAT(way(topology, 0, 12), HasSubstr(" pod0/spine0 core0 pod3/spine0 "));
}

TEST(FatTree, BuildsOnlyWhatIsUsed) {
  const Topology one_pod = topology_of(fat_tree("4"), 4);
  EXPECT_EQ(count(one_pod, NodeKind::kCore), 0);
  EXPECT_EQ(count(one_pod, NodeKind::kSpine), 2);
  EXPECT_EQ(count(topology_of(fat_tree("4"), 2), NodeKind::kSpine), 0);
}

TEST(FatTree, RefusesMoreNodesThanItsPortsJoinAndOddPorts) {
  EXPECT_THAT(problems_of(fat_tree("4", "9")),
              HasSubstr("t.json: /network/generator: joins 16 NICs, and 9 nodes have 18"));
  EXPECT_THAT(problems_of(fat_tree("5")),
              HasSubstr("t.json: /network/ports: 5 ports cannot be halved"));
}

}  // namespace
}  // namespace headway
