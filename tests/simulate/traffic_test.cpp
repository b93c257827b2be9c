#include "sim/simulate/traffic.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/cluster/dead_links.hpp"
#include "sim/cluster/link_names.hpp"
#include "tests/cluster/clusters.hpp"

namespace headway {
namespace {

using testing::HasSubstr;

// Servers of two GPUs with a NIC of 25 GB/s each; every transfer below is 25 GB: a second at a
// whole NIC's bandwidth. Latencies are microseconds.
constexpr Bytes kSecond{25'000'000'000};

std::string leaf_spine(const std::string& leaf_nodes, const std::string& more = "") {
  return changed(kSmallCluster, {{R"("rail-leaf-spine", "leaf_nodes": 2)",
                                  R"("leaf-spine", "leaf_nodes": )" + leaf_nodes + more}});
}

std::vector<double> seconds(const Topology& topology, const std::vector<std::pair<int, int>>& pairs,
                            const std::map<std::string, double>& degraded = {}) {
  std::vector<Transfer> transfers;
  for (const auto& [from, to] : pairs) transfers.push_back({from, to, kSecond, {}, {}, 1, ""});
  Problems problems;
  const std::vector<double> shares = link_shares(topology, degraded, "degraded", problems);
  EXPECT_TRUE(problems.empty());
  std::vector<LinkId> dead;
  for (std::size_t l = 0; l < shares.size(); ++l) {
    if (shares[l] == 0) dead.push_back(static_cast<LinkId>(l));
  }
  std::vector<double> ends;
  for (const TransferTimes& times :
       play_traffic(dead.empty() ? topology : without(topology, dead), transfers, shares)) {
    ends.push_back(times.end.seconds());
  }
  return ends;
}

MATCHER_P(Seconds, expected, "") { return std::abs(arg - expected) < 1e-4; }
using testing::ElementsAre;

TEST(Traffic, HalfARailsNicSlowsWhatUsesItToHalf) {
  const Topology topology = topology_of(kSmallCluster, 4);
  EXPECT_THAT(seconds(topology, {{0, 2}, {1, 3}}, {{"node0/nic0:unit0/leaf0", 0.5}}),
              ElementsAre(Seconds(2.0), Seconds(1.0)));
}

// Two spines with one NIC's bandwidth each from a leaf: receivers 2 and 3 take one each, until one
// is dead.
TEST(Traffic, ADeadSpineLeavesItsShareToTheOther) {
  const Topology topology = topology_of(leaf_spine("1", R"(, "spines": 2)"), 4);
  EXPECT_THAT(seconds(topology, {{0, 2}, {1, 3}}), ElementsAre(Seconds(1.0), Seconds(1.0)));
  EXPECT_THAT(seconds(topology, {{0, 2}, {1, 3}}, {{"pod0/spine0", 0}}),
              ElementsAre(Seconds(2.0), Seconds(2.0)));
}

// A leaf's two NICs send 50 GB/s and its uplinks carry a seventh of that.
TEST(Traffic, OversubscribedOneToSevenAllTogetherGetASeventh) {
  const Topology topology = topology_of(leaf_spine("1", R"(, "oversubscription": 7)"), 4);
  EXPECT_THAT(seconds(topology, {{0, 2}, {1, 3}}), ElementsAre(Seconds(7.0), Seconds(7.0)));
  // Alone, a transfer has both NICs' share: 50/7 of 25 GB/s.
  EXPECT_THAT(seconds(topology, {{0, 2}}), ElementsAre(Seconds(3.5)));
}

TEST(Traffic, TwoGpusOnOneNicGetHalfEach) {
  const Topology topology =
      topology_of(changed(leaf_spine("1"), {{"\"count\": 2", "\"count\": 1"}}), 4);
  EXPECT_THAT(seconds(topology, {{0, 2}, {1, 3}}), ElementsAre(Seconds(2.0), Seconds(2.0)));
  // Inside the server they do not meet it.
  EXPECT_THAT(seconds(topology, {{0, 2}, {0, 1}}), ElementsAre(Seconds(1.0), Seconds(25.0 / 300)));
}

// Servers 0 and 1 share a leaf whose uplinks carry two NICs: one job sends from server 0, the other
// with both GPUs from server 1. Three share 50 GB/s.
TEST(Traffic, TwoJobsOnOneLeafShareItsUplinks) {
  const Topology topology = topology_of(leaf_spine("2", R"(, "oversubscription": 2)"), 8);
  EXPECT_THAT(seconds(topology, {{0, 4}}), ElementsAre(Seconds(1.0)));
  EXPECT_THAT(seconds(topology, {{0, 4}, {2, 6}, {3, 7}}),
              ElementsAre(Seconds(1.5), Seconds(1.5), Seconds(1.5)));
}

TEST(Traffic, ConnectionsWeighAndWhatWaitsBeginsAfterwards) {
  const Topology topology = topology_of(kSmallCluster, 4);
  std::vector<Transfer> transfers = {{0, 2, kSecond, {}, {}, 3, "a"},
                                     {0, 2, kSecond, {}, {}, 1, "b"},
                                     {0, 2, kSecond, Time::from_seconds(1), {0, 1}, 1, "c"}};
  // a has three quarters until it ends at 4/3 s; b has moved 1/3 by then and ends at 2 s.
  const std::vector<TransferTimes> times = play_traffic(topology, transfers);
  EXPECT_NEAR(times[0].end.seconds(), 4.0 / 3, 1e-4);
  EXPECT_NEAR(times[1].end.seconds(), 2, 1e-4);
  EXPECT_NEAR(times[2].start.seconds(), 3, 1e-4);
  EXPECT_NEAR(times[2].end.seconds(), 4, 1e-4);
}

TEST(Traffic, ReadsTransfersAndNamesWhatIsWrong) {
  const Topology topology = topology_of(kSmallCluster, 4);
  Problems problems;
  const auto read = [&](const std::string& text) {
    return read_transfers(JsonNode::parse_text(text, "t.json"), topology, problems);
  };
  const std::vector<Transfer> two = read(R"({"transfers": [
      {"name": "a", "from": 0, "to": 2, "bytes": "1 GiB"},
      {"from": 2, "to": 0, "bytes": "1 MB", "start": "2 ms", "after": ["a"], "connections": 4}]})");
  EXPECT_TRUE(problems.empty());
  ASSERT_EQ(two.size(), 2U);
  EXPECT_EQ(two[1].after, std::vector<int>{0});
  EXPECT_EQ(two[1].connections, 4);
  read(R"({"transfers": [{"from": 0, "to": 4, "bytes": "1 GiB"},
                         {"from": 1, "to": 1, "bytes": "0 B", "after": ["z"]}]})");
  const std::string text = lines_of(problems);
  EXPECT_THAT(text, HasSubstr("t.json: /transfers/0/to: "));
  EXPECT_THAT(text, HasSubstr("t.json: /transfers/1/to: a transfer from a GPU to itself"));
  EXPECT_THAT(text, HasSubstr("t.json: /transfers/1/bytes: no bytes"));
  EXPECT_THAT(text, HasSubstr("t.json: /transfers/1/after: \"z\" is no transfer before this one"));
}

}  // namespace
}  // namespace headway
