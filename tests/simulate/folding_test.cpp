#include "sim/simulate/folding.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <vector>

namespace headway {
namespace {

using ::testing::ElementsAre;

// dp replicas of a pipeline with `stages` stages; rank = replica + dp * stage, as in
// tp-cp-ep-dp-pp. Groups: data-parallel groups of each stage, and a message from each stage to the
// next.
FoldingStructure pipelines(int dp, int stages) {
  FoldingStructure structure;
  for (int rank = 0; rank < dp * stages; ++rank) {
    structure.rank_colours.push_back(static_cast<std::uint64_t>(rank / dp));
  }
  for (int stage = 0; stage < stages; ++stage) {
    std::vector<int> members(static_cast<std::size_t>(dp));
    std::iota(members.begin(), members.end(), stage * dp);
    structure.add_group(1, false, members, {});
  }
  for (int rank = 0; rank + dp < dp * stages; ++rank) {
    structure.add_group(2, true, {rank, rank + dp}, {});
  }
  return structure;
}

TEST(Folding, RanksOfAStageFoldIntoOne) {
  const Partition partition = fold(pipelines(4, 3));
  EXPECT_THAT(partition.rank_class, ElementsAre(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2));
  EXPECT_THAT(partition.rank_representative, ElementsAre(0, 4, 8));
  EXPECT_THAT(partition.rank_multiplicity, ElementsAre(4, 4, 4));
  // Three data-parallel groups of different stages, two kinds of message.
  EXPECT_EQ(partition.group_representative.size(), 5U);
}

TEST(Folding, AStragglerSplitsItsPipelineFromTheOthers) {
  FoldingStructure structure = pipelines(4, 3);
  structure.rank_colours[5] = 99;  // replica 1, stage 1
  const Partition partition = fold(structure);
  // In every stage replica 1 differs from the three others, which stay together.
  EXPECT_THAT(partition.rank_class, ElementsAre(0, 1, 0, 0, 2, 3, 2, 2, 4, 5, 4, 4));
}

TEST(Folding, ALinkThatOnlySomeGroupsLoadSplitsThem) {
  FoldingStructure structure = pipelines(4, 2);
  structure.link_colours = {7, 7};
  structure.loads.clear();
  structure.groups.resize(2);  // the data-parallel groups alone
  structure.members.resize(8);
  structure.add_group(2, true, {0, 4}, {{.link = 0, .load = 64}});
  structure.add_group(2, true, {1, 5}, {{.link = 0, .load = 64}});
  structure.add_group(2, true, {2, 6}, {{.link = 1, .load = 64}});
  structure.add_group(2, true, {3, 7}, {});
  const Partition partition = fold(structure);
  EXPECT_THAT(partition.rank_class, ElementsAre(0, 0, 1, 2, 3, 3, 4, 5));
  EXPECT_THAT(partition.link_class, ElementsAre(0, 1));
}

TEST(Folding, MessagesHaveRoles) {
  // A directed chain a -> b -> c of alike ranks has three classes; an undirected one would have
  // two.
  FoldingStructure structure;
  structure.rank_colours = {0, 0, 0};
  structure.add_group(1, true, {0, 1}, {});
  structure.add_group(1, true, {1, 2}, {});
  EXPECT_EQ(fold(structure).rank_representative.size(), 3U);
  structure.groups[0].ordered = structure.groups[1].ordered = false;
  EXPECT_EQ(fold(structure).rank_representative.size(), 2U);
}

TEST(Folding, AnUnequalPartitionIsNotEquitable) {
  const FoldingStructure structure = pipelines(2, 2);
  Partition partition = fold(structure);
  ASSERT_TRUE(is_equitable(structure, partition));
  // Ranks of different stages in one class: their colours differ.
  partition.rank_class = {0, 0, 0, 0};
  EXPECT_FALSE(is_equitable(structure, partition));
}

// Every base has a k-fold lift in which member i of each group is a copy chosen by a permutation;
// the map to the base is an equitable partition, so the coarsest one has no more classes than the
// base.
class FoldingProperty : public ::testing::TestWithParam<int> {};

TEST_P(FoldingProperty, ALiftHasNoMoreClassesThanItsBase) {
  std::mt19937 random(static_cast<unsigned>(GetParam()));
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const int ranks = 2 + below(6), links = 1 + below(4), groups = 1 + below(6),
            copies = 2 + below(3);
  FoldingStructure base, lift;
  for (int r = 0; r < ranks; ++r) base.rank_colours.push_back(static_cast<unsigned>(below(3)));
  for (int l = 0; l < links; ++l) base.link_colours.push_back(static_cast<unsigned>(below(2)));
  for (int k = 0; k < copies; ++k) {
    lift.rank_colours.insert(lift.rank_colours.end(), base.rank_colours.begin(),
                             base.rank_colours.end());
    lift.link_colours.insert(lift.link_colours.end(), base.link_colours.begin(),
                             base.link_colours.end());
  }
  for (int g = 0; g < groups; ++g) {
    std::vector<int> members;
    for (int r = 0; r < ranks; ++r) {
      if (below(2) == 0) members.push_back(r);
    }
    std::vector<FoldingStructure::Load> loads;
    for (int l = 0; l < links; ++l) {
      if (below(2) == 0) loads.push_back({l, 1 + below(3)});
    }
    const auto colour = static_cast<std::uint64_t>(below(2));
    const bool ordered = below(2) == 0;
    base.add_group(colour, ordered, members, loads);
    // Each neighbour of each copy of the group is taken from a shifted copy: a random covering.
    std::vector<int> member_shift(members.size()), load_shift(loads.size());
    for (int& shift : member_shift) shift = below(copies);
    for (int& shift : load_shift) shift = below(copies);
    for (int k = 0; k < copies; ++k) {
      std::vector<int> lifted = members;
      for (std::size_t i = 0; i < lifted.size(); ++i) {
        lifted[i] += ranks * ((k + member_shift[i]) % copies);
      }
      std::vector<FoldingStructure::Load> lifted_loads = loads;
      for (std::size_t i = 0; i < loads.size(); ++i) {
        lifted_loads[i].link += links * ((k + load_shift[i]) % copies);
      }
      lift.add_group(colour, ordered, lifted, lifted_loads);
    }
  }
  const Partition of_base = fold(base), of_lift = fold(lift);
  EXPECT_TRUE(is_equitable(base, of_base));
  EXPECT_TRUE(is_equitable(lift, of_lift));
  EXPECT_LE(of_lift.rank_representative.size(), of_base.rank_representative.size());
  EXPECT_LE(of_lift.link_representative.size(), of_base.link_representative.size());
  EXPECT_TRUE(is_equitable(lift, unfolded(lift)));
}

INSTANTIATE_TEST_SUITE_P(RandomLifts, FoldingProperty, ::testing::Range(0, 200));

}  // namespace
}  // namespace headway
