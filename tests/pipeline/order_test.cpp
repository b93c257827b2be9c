// The order of each schedule as a text grid, one line per rank: facts 3.3, order oracles.
#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "sim/program/schedule.hpp"

namespace headway {
namespace {

std::string grid(const char* name, const ScheduleShape& shape) {
  const Schedule& schedule = *find_schedule(name);
  std::string text;
  for (int rank = 0; rank < shape.ranks; ++rank)
    text += to_text(schedule.actions(rank, shape)) + "\n";
  return text;
}

std::string rank_order(const char* name, int rank, const ScheduleShape& shape) {
  return to_text(find_schedule(name)->actions(rank, shape));
}

TEST(Gpipe, RunsAllForwardThenAllBackward) {
  EXPECT_EQ(grid("gpipe", {.ranks = 2, .stages_per_rank = 1, .micro_batches = 3}),
            "0F0 0F1 0F2 0B0 0B1 0B2\n"
            "1F0 1F1 1F2 1B0 1B1 1B2\n");
}

// torch's Pipe(chunks=4) of a sequential model on two devices.
TEST(Gpipe, IsPipeWithFourChunks) {
  EXPECT_EQ(grid("gpipe", {.ranks = 2, .stages_per_rank = 1, .micro_batches = 4}),
            "0F0 0F1 0F2 0F3 0B0 0B1 0B2 0B3\n"
            "1F0 1F1 1F2 1F3 1B0 1B1 1B2 1B3\n");
}

// Three stages, of three layers each where there are nine, with one to three micro-batches.
TEST(OneFOneB, RunsThreeStages) {
  const auto of = [](int micro_batches) {
    return grid("1f1b", {.ranks = 3, .stages_per_rank = 1, .micro_batches = micro_batches});
  };
  EXPECT_EQ(of(1), "0F0 0B0\n1F0 1B0\n2F0 2B0\n");
  EXPECT_EQ(of(2), "0F0 0F1 0B0 0B1\n1F0 1F1 1B0 1B1\n2F0 2B0 2F1 2B1\n");
  EXPECT_EQ(of(3),
            "0F0 0F1 0F2 0B0 0B1 0B2\n"
            "1F0 1F1 1B0 1F2 1B1 1B2\n"
            "2F0 2B0 2F1 2B1 2F2 2B2\n");
}

TEST(OneFOneB, WarmsUpByTheDistanceToTheLastRank) {
  EXPECT_EQ(grid("1f1b", {.ranks = 4, .stages_per_rank = 1, .micro_batches = 8}),
            "0F0 0F1 0F2 0F3 0B0 0F4 0B1 0F5 0B2 0F6 0B3 0F7 0B4 0B5 0B6 0B7\n"
            "1F0 1F1 1F2 1B0 1F3 1B1 1F4 1B2 1F5 1B3 1F6 1B4 1F7 1B5 1B6 1B7\n"
            "2F0 2F1 2B0 2F2 2B1 2F3 2B2 2F4 2B3 2F5 2B4 2F6 2B5 2F7 2B6 2B7\n"
            "3F0 3B0 3F1 3B1 3F2 3B2 3F3 3B3 3F4 3B4 3F5 3B5 3F6 3B6 3F7 3B7\n");
}

TEST(OneFOneB, RunsWithFewerMicroBatchesThanRanks) {
  EXPECT_EQ(grid("1f1b", {.ranks = 3, .stages_per_rank = 1, .micro_batches = 1}),
            "0F0 0B0\n"
            "1F0 1B0\n"
            "2F0 2B0\n");
}

TEST(Interleaved, PassesGroupsThroughItsChunks) {
  EXPECT_EQ(grid("interleaved", {.ranks = 2, .stages_per_rank = 2, .micro_batches = 4}),
            "0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 0B2 0B3\n"
            "1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3\n");
}

// Groups of 3 and then 2 of 5 micro-batches.
TEST(Interleaved, TakesAGroupOtherThanTheRanks) {
  EXPECT_EQ(grid("interleaved", {.ranks = 2, .stages_per_rank = 2, .micro_batches = 5, .group = 3}),
            "0F0 0F1 0F2 2F0 2F1 2F2 2B0 0F3 2B1 0F4 2B2 2F3 0B0 2F4 0B1 0B2 2B3 2B4 0B3 0B4\n"
            "1F0 1F1 1F2 3F0 3B0 3F1 3B1 3F2 3B2 1F3 1B0 1F4 1B1 3F3 1B2 3F4 3B3 3B4 1B3 1B4\n");
}

TEST(LoopedBfs, PassesEveryMicroBatchThroughAChunkBeforeTheNext) {
  EXPECT_EQ(grid("looped-bfs", {.ranks = 2, .stages_per_rank = 2, .micro_batches = 2}),
            "0F0 0F1 2F0 2F1 2B1 2B0 0B1 0B0\n"
            "1F0 1F1 3F0 3F1 3B1 3B0 1B1 1B0\n");
}

TEST(ZeroBubble, OfOneMemoryFillsTheCoolDownWithWeightGradients) {
  EXPECT_EQ(rank_order("zb-h1", 3, {.ranks = 4, .stages_per_rank = 1, .micro_batches = 8}),
            "3F0 3I0 3F1 3I1 3F2 3I2 3F3 3I3 3W0 3F4 3I4 3W1 3F5 3I5 3W2 3F6 3I6 3W3 3F7 3I7 3W4 "
            "3W5 3W6 3W7");
}

TEST(ZeroBubble, OfTwiceTheMemoryRunsFurtherAhead) {
  EXPECT_EQ(rank_order("zb-h2", 0, {.ranks = 4, .stages_per_rank = 1, .micro_batches = 8}),
            "0F0 0F1 0F2 0F3 0F4 0F5 0F6 0I0 0W0 0F7 0I1 0W1 0I2 0W2 0I3 0W3 0I4 0W4 0I5 0W5 0I6 "
            "0W6 0I7 0W7");
}

TEST(ZbV, FoldsBackOnTheFirstRank) {
  EXPECT_EQ(rank_order("zb-v", 0, {.ranks = 2, .stages_per_rank = 2, .micro_batches = 4}),
            "0F0 0F1 0F2 3F0 3I0 3W0 3F1 3I1 3W1 0F3 0I0 0W0 3F2 3I2 3W2 0I1 0W1 3F3 3I3 3W3 0I2 "
            "0W2 0I3 0W3");
}

TEST(DualpipeV, OverlapsAForwardWithABackward) {
  EXPECT_EQ(rank_order("dualpipe-v", 0, {.ranks = 2, .stages_per_rank = 2, .micro_batches = 4}),
            to_text(parse_actions(
                "0F0 0F1 0F2 3F0 3I0 3W0 3F1 (0F3;3B1) (3F2;0B0) 3B2 (3F3;0B1) 3B3 0I2 0W2 "
                "0I3 0W3")));
}

// Stages 4 to 7 are the second copy; its first stage is on the last rank.
TEST(Chimera, RunsTwoPipelinesInOppositeDirections) {
  EXPECT_EQ(grid("chimera", {.ranks = 4, .stages_per_rank = 2, .micro_batches = 4}),
            "0F0 0F1 7F2 7B2 7F3 7B3 0B0 0B1\n"
            "1F0 6F2 1F1 6F3 6B2 1B0 6B3 1B1\n"
            "5F2 2F0 5F3 2F1 2B0 5B2 2B1 5B3\n"
            "4F2 4F3 3F0 3B0 3F1 3B1 4B2 4B3\n");
}

// Slots 0, 4, 8 and 13 of the first micro-batch, and six later of the next.
TEST(VHalf, RepeatsItsBlock) {
  EXPECT_EQ(rank_order("v-half", 0, {.ranks = 2, .stages_per_rank = 2, .micro_batches = 4}),
            "0F0 3F0 0F1 3I0 3W0 3F1 0F2 0I0 3I1 0W0 3F2 3W1 0F3 0I1 3I2 0W1 3F3 3W2 0I2 3I3 0W2 "
            "3W3 0I3 0W3");
}

// Slots 0, 3, 4 and 7.
TEST(VMin, RepeatsItsBlock) {
  EXPECT_EQ(rank_order("v-min", 0, {.ranks = 2, .stages_per_rank = 2, .micro_batches = 4}),
            "0F0 3F0 3I0 3W0 0F1 0I0 0W0 3F1 3I1 3W1 0F2 0I1 0W1 3F2 3I2 3W2 0F3 0I2 0W2 3F3 3I3 "
            "3W3 0I3 0W3");
}

// Rank r of one direction does what rank p - 1 - r does of the other.
TEST(Dualpipe, IsItsOwnMirrorImage) {
  const ScheduleShape shape = {.ranks = 4, .stages_per_rank = 2, .micro_batches = 8};
  const Schedule& schedule = *find_schedule("dualpipe");
  for (int rank = 0; rank < shape.ranks; ++rank) {
    std::vector<Action> mirrored = schedule.actions(shape.ranks - 1 - rank, shape);
    for (Action& action : mirrored) {
      action.stage = (action.stage + shape.ranks) % (2 * shape.ranks);
      action.micro_batch = (action.micro_batch + shape.micro_batches / 2) % shape.micro_batches;
    }
    EXPECT_EQ(to_text(schedule.actions(rank, shape)), to_text(mirrored)) << rank;
  }
}

}  // namespace
}  // namespace headway
