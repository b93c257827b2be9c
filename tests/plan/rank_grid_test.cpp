#include "sim/plan/rank_grid.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace headway {
namespace {

using testing::ElementsAre;

// Megatron's example: 16 GPUs, tp 2, pp 4, dp 2.
RankGrid sixteen() { return RankGrid({{"tp", 2}, {"cp", 1}, {"dp", 2}, {"pp", 4}}); }

TEST(RankGrid, NumbersTheInnermostAxisFirst) {
  const RankGrid grid = sixteen();
  EXPECT_EQ(grid.size(), 16);
  EXPECT_THAT(grid.coordinates(7), ElementsAre(1, 0, 1, 1));  // 7 = 1 + 2 * 1 + 4 * 1
  EXPECT_EQ(grid.rank({1, 0, 1, 1}), 7);
  EXPECT_EQ(grid.coordinate(7, "pp"), 1);
  EXPECT_EQ(grid.coordinate(7, "ep"), 0);
  EXPECT_EQ(grid.axis_size("pp"), 4);
  EXPECT_EQ(grid.axis_size("ep"), 1);
}

// Megatron-LM's parallel_state documentation: tensor groups [g0, g1] ..., data groups [g0, g2] ...,
// pipeline groups [g0, g4, g8, g12] ...
TEST(RankGrid, HasMegatronsGroups) {
  const RankGrid grid = sixteen();
  EXPECT_THAT(grid.members({"tp", {"tp"}, {}}, 5), ElementsAre(4, 5));
  EXPECT_THAT(grid.members({"dp", {"dp"}, {}}, 5), ElementsAre(5, 7));
  EXPECT_THAT(grid.members({"pp", {"pp"}, {}}, 5), ElementsAre(1, 5, 9, 13));
  EXPECT_THAT(grid.members({"model", {"tp", "pp"}, {}}, 6),
              ElementsAre(2, 3, 6, 7, 10, 11, 14, 15));
  EXPECT_THAT(grid.members({"alone", {}, {}}, 6), ElementsAre(6));
}

TEST(RankGrid, RestrictsAFamilyToSomeCoordinates) {
  const RankGrid grid = sixteen();
  const GroupFamily embedding = {"embedding", {"pp"}, {0, 3}};
  EXPECT_THAT(grid.members(embedding, 1), ElementsAre(1, 13));
  EXPECT_THAT(grid.members(embedding, 13), ElementsAre(1, 13));
  EXPECT_THAT(grid.members(embedding, 5), ElementsAre());
  EXPECT_EQ(grid.group_size(embedding), 2);
  EXPECT_EQ(grid.index_in_group(embedding, 13), 1);
  EXPECT_EQ(grid.index_in_group(embedding, 5), -1);
}

TEST(RankGrid, ShiftsAroundTheRing) {
  const RankGrid grid = sixteen();
  EXPECT_EQ(grid.shifted(1, "pp", 1), 5);
  EXPECT_EQ(grid.shifted(1, "pp", -1), 13);
  EXPECT_EQ(grid.shifted(1, "pp", 9), 5);
  EXPECT_EQ(grid.shifted(1, "ep", 1), 1);
}

TEST(RankGrid, OfNothingIsOneRank) {
  const RankGrid grid;
  EXPECT_EQ(grid.size(), 1);
  EXPECT_THAT(grid.members({"tp", {"tp"}, {}}, 0), ElementsAre(0));
}

// On random grids every family partitions the ranks, members are sorted, and a rank's index is its
// position among them.
TEST(RankGrid, FamiliesPartitionTheRanks) {
  std::mt19937 random(7);
  const std::vector<std::string> names = {"tp", "cp", "dp", "pp"};
  for (int attempt = 0; attempt < 200; ++attempt) {
    std::vector<std::string> order = names;
    std::shuffle(order.begin(), order.end(), random);
    std::vector<Axis> axes;
    for (const std::string& name : order)
      axes.push_back({name, static_cast<int>(random() % 4 + 1)});
    const RankGrid grid(axes);
    GroupFamily family = {"any", {}, {}};
    for (const std::string& name : names) {
      if (random() % 2 == 0) family.axes.push_back(name);
    }
    if (family.axes.size() == 1 && random() % 2 == 0) family.only = {0, 2};
    std::vector<int> covered(static_cast<std::size_t>(grid.size()), 0);
    for (int rank = 0; rank < grid.size(); ++rank) {
      EXPECT_EQ(grid.rank(grid.coordinates(rank)), rank);
      const std::vector<int> members = grid.members(family, rank);
      const int index = grid.index_in_group(family, rank);
      if (index < 0) {
        EXPECT_TRUE(members.empty());
        continue;
      }
      EXPECT_TRUE(std::is_sorted(members.begin(), members.end()));
      ASSERT_EQ(static_cast<int>(members.size()), grid.group_size(family));
      EXPECT_EQ(members[static_cast<std::size_t>(index)], rank);
      for (int member : members) ++covered[static_cast<std::size_t>(member)];
    }
    for (int count : covered) EXPECT_TRUE(count == 0 || count == grid.group_size(family));
  }
}

}  // namespace
}  // namespace headway
