#include <gmock/gmock.h>

#include "tests/cluster/clusters.hpp"

namespace headway {
namespace {

using testing::HasSubstr;

// Two routers a group, two NICs a router (a server), one global port: three groups.
std::string dragonfly(const std::string& nodes = "6", const std::string& more = "") {
  return changed(kSmallCluster, {{"\"max_nodes\": 64", "\"max_nodes\": " + nodes},
                                 {R"("generator": "rail-leaf-spine", "leaf_nodes": 2)",
                                  R"("generator": "dragonfly", "group_routers": 2, "router_nics": 2,
                      "global_ports": 1)" +
                                      more}});
}

TEST(Dragonfly, JoinsRoutersOfAGroupAndAllGroups) {
  const Topology topology = topology_of(dragonfly(), 12);
  EXPECT_EQ(count(topology, NodeKind::kLeaf), 6);
  EXPECT_EQ(count(topology, "local"), 2 * 3);
  EXPECT_EQ(count(topology, "global"), 2 * 3);
}

// Group 0 reaches group 1 from its first router and group 2 from its second; group 1 reaches group
// 0 from its second.
TEST(Dragonfly, TakesOneLocalOneGlobalOneLocalLink) {
  const Topology topology = topology_of(dragonfly(), 12);
  EXPECT_THAT(way(topology, 0, 4), HasSubstr(" group0/router0 group1/router1 group1/router0 "));
  EXPECT_THAT(way(topology, 0, 6), HasSubstr(" group0/router0 group1/router1 node3/"));
  EXPECT_THAT(way(topology, 2, 4),
              HasSubstr(" group0/router1 group0/router0 group1/router1 group1/router0 "));
  EXPECT_THAT(way(topology, 0, 2), HasSubstr(" group0/router0 group0/router1 node1/"));
}

// Two groups: both global ports of each go to the other.
TEST(Dragonfly, FewerGroupsShareTheGlobalPorts) {
  const Topology topology = topology_of(dragonfly("6", R"(, "global_bandwidth": "10 GB/s")"), 8);
  ASSERT_EQ(count(topology, "global"), 2);
  for (const TopologyLink& link : topology.links()) {
    if (link.kind == "global") EXPECT_DOUBLE_EQ(link.bandwidth.bytes_per_second, 20e9);
  }
}

TEST(Dragonfly, RefusesMoreNodesThanItsGroupsHold) {
  EXPECT_THAT(problems_of(dragonfly("7")),
              HasSubstr("t.json: /network/generator: joins 12 NICs, and 7 nodes have 14"));
  EXPECT_THAT(problems_of(dragonfly("6", R"(, "local_bandwidth": "0 GB/s")")),
              HasSubstr("t.json: /network/local_bandwidth: a bandwidth of 0; expected more"));
}

}  // namespace
}  // namespace headway
