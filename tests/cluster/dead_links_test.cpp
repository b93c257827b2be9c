#include <gmock/gmock.h>

#include <algorithm>

#include "sim/cluster/dead_links.hpp"
#include "sim/cluster/link_names.hpp"
#include "tests/cluster/clusters.hpp"

namespace headway {
namespace {

using testing::HasSubstr;

// A leaf of its own for each server, and two spines.
std::string two_spines(const std::string& more = "") {
  return changed(kSmallCluster, {{R"("rail-leaf-spine", "leaf_nodes": 2)",
                                  R"("leaf-spine", "leaf_nodes": 1, "spines": 2)" + more}});
}

Topology without_named(const Topology& topology, const std::vector<std::string>& names) {
  std::vector<LinkId> dead;
  for (const std::string& name : names) {
    for (const LinkId link : links_named(topology, name)) dead.push_back(link);
  }
  EXPECT_FALSE(dead.empty());
  return without(topology, dead);
}

TEST(LinksNamed, AreOfAKindOfAVertexOrBetweenTwo) {
  const Topology topology = topology_of(two_spines(), 4);
  EXPECT_EQ(links_named(topology, "leaf-spine").size(), 2U * 2 * 2);
  EXPECT_EQ(links_named(topology, "pod0/spine0").size(), 2U * 2);
  EXPECT_EQ(links_named(topology, "node0/nic0:leaf0").size(), 2U);
  EXPECT_EQ(links_named(topology, "leaf0:node0/nic0"), links_named(topology, "node0/nic0:leaf0"));
  EXPECT_TRUE(links_named(topology, "node0/nic0:leaf1").empty());
  EXPECT_TRUE(links_named(topology, "spine").empty());
}

TEST(LinkShares, OfOneLinkMultiplyAndUnknownNamesAreProblems) {
  const Topology topology = topology_of(two_spines(), 4);
  Problems problems;
  const std::vector<double> shares =
      link_shares(topology, {{"nic", 0.5}, {"node0/nic0:leaf0", 0.5}}, "--degrade", problems);
  EXPECT_TRUE(problems.empty());
  EXPECT_DOUBLE_EQ(shares[static_cast<std::size_t>(links_named(topology, "node0/nic0:leaf0")[0])],
                   0.25);
  EXPECT_DOUBLE_EQ(shares[static_cast<std::size_t>(links_named(topology, "node0/nic1:leaf0")[0])],
                   0.5);
  link_shares(topology, {{"node0/nic7", 0.5}}, "--degrade", problems);
  EXPECT_THAT(lines_of(problems),
              HasSubstr("--degrade: this cluster has no links named 'node0/nic7'; did you mean"));
}

TEST(DeadLinks, ASpinesTrafficTakesTheOther) {
  const Topology topology = topology_of(two_spines(), 4);
  EXPECT_THAT(way(topology, 0, 2), HasSubstr(" pod0/spine0 "));
  EXPECT_THAT(way(topology, 0, 3), HasSubstr(" pod0/spine1 "));
  const Topology left = without_named(topology, {"pod0/spine0"});
  EXPECT_THAT(way(left, 0, 2), HasSubstr(" pod0/spine1 "));
  EXPECT_THAT(way(left, 0, 3), HasSubstr(" pod0/spine1 "));
  EXPECT_FALSE(cut_off(left));
}

TEST(DeadLinks, AGpuWithoutItsNicUsesTheNextOfItsServer) {
  const Topology left = without_named(topology_of(two_spines(), 4), {"node0/nic0"});
  EXPECT_THAT(way(left, 0, 2), HasSubstr(" node0/nic1 "));
  EXPECT_THAT(way(left, 2, 0), HasSubstr(" node0/nic1 "));
  EXPECT_EQ(left.nic_of(0), left.nic_of(1));
  EXPECT_EQ(left.placement({0, 2}).neighbours_sharing_nic, 2);
  // The other server's are as before.
  EXPECT_THAT(way(left, 2, 1), HasSubstr(" node1/nic0 "));
}

TEST(DeadLinks, WithoutNvlinkGpusOfAServerMeetOverPcie) {
  const Topology left = without_named(topology_of(two_spines(), 4), {"node0/gpu1:node0/nvswitch"});
  EXPECT_EQ(way(left, 0, 1), "node0/gpu0 node0/pcie0 node0/gpu1");
  EXPECT_EQ(way(left, 2, 3), "node1/gpu0 node1/nvswitch node1/gpu1");
}

TEST(DeadLinks, ARailWithoutItsNicIsReachedOverAnother) {
  const Topology rails = topology_of(
      changed(kSmallCluster, {{"\"latency\": \"0.25 us\"",
                               "\"latency\": \"0.25 us\", \"rails_over_nvlink\": true"}}),
      4);
  EXPECT_THAT(way(rails, 0, 3), HasSubstr("node0/gpu0 node0/nvswitch node0/gpu1 node0/pcie0 "));
  // GPU 3's NIC is gone: it is on rail 0 now, and so is GPU 0.
  const Topology left = without_named(rails, {"node1/nic1"});
  EXPECT_EQ(way(left, 0, 3),
            "node0/gpu0 node0/pcie0 node0/nic0 unit0/leaf0 node1/nic0 node1/pcie0 node1/gpu1");
}

TEST(DeadLinks, WhatIsCutOffIsFound) {
  const Topology topology = topology_of(two_spines(), 4);
  const auto apart = cut_off(without_named(topology, {"node1/nic0", "node1/nic1"}));
  ASSERT_TRUE(apart);
  EXPECT_EQ(*apart, std::pair(0, 2));
  EXPECT_FALSE(cut_off(topology));
}

TEST(HashedWays, DependOnBothEndsAndTheSeedAlone) {
  const auto spines = [&](const std::string& seed) {
    const Topology topology = topology_of(two_spines(R"(, "ways": "hash", "seed": )" + seed), 32);
    std::string text;
    for (int to = 2; to < 32; ++to) {
      text += way(topology, 0, to).find("spine0") != std::string::npos ? '0' : '1';
    }
    return text;
  };
  EXPECT_EQ(spines("1"), spines("1"));
  EXPECT_NE(spines("1"), spines("2"));
  // About half each: 30 draws of a fair coin are outside 5..25 once in ten thousand.
  const std::string one = spines("1");
  EXPECT_NEAR(static_cast<double>(std::count(one.begin(), one.end(), '0')), 15, 10);
}

TEST(HashedWays, AreUnknownWhereThereIsNoChoice) {
  EXPECT_THAT(problems_of(changed(kSmallCluster,
                                  {{R"("rail-leaf-spine", "leaf_nodes": 2, "latency": "0.25 us")",
                                    R"("single-switch", "ways": "hash")"}})),
              HasSubstr("/network"));
}

}  // namespace
}  // namespace headway
