// The text form of actions, and the table of schedules.
#include "sim/program/schedule.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>
#include <stdexcept>

#include "tests/pipeline/replay.hpp"

namespace headway {
namespace {

TEST(Action, HasThePytorchTextForm) {
  EXPECT_EQ(to_text(Action{2, ActionKind::kForward, 0}), "2F0");
  EXPECT_EQ(to_text(Action{0, ActionKind::kBackward, 11}), "0B11");
  EXPECT_EQ(to_text(Action{3, ActionKind::kBackwardInput, 7}), "3I7");
  EXPECT_EQ(to_text(Action{12, ActionKind::kBackwardWeight, 4}), "12W4");
}

TEST(Action, ReadsBackWhatItWrites) {
  const std::string text = "0F0 3F0 3I0 3W0 (0F3;3B1)OVERLAP_F_B 3B2";
  EXPECT_EQ(to_text(parse_actions(text)), text);
}

TEST(Action, ReadsAPairWithoutItsSuffixAndAnyBlanks) {
  EXPECT_EQ(to_text(parse_actions("  0F0\n\t(0F3;3B1)  ")), "0F0 (0F3;3B1)OVERLAP_F_B");
  EXPECT_TRUE(parse_actions(" \n").empty());
}

TEST(Action, NamesTheTokenThatIsNone) {
  for (const char* token : {"F0", "0F", "0X1", "0f1", "-1F0", "0F-1", "0F1x", "(0F1)", "(0F1;0B2",
                            "(0F1;0B2)OVERLAP", "99999999999F0", "0F1,0F2", "(;)", ")0F1;0B1("}) {
    try {
      parse_actions(std::string("0F0 ") + token + " 0B0");
      ADD_FAILURE() << token << " was taken";
    } catch (const std::invalid_argument& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("\"" + std::string(token) + "\"")) << token;
    }
  }
}

TEST(ScheduleTable, FindsEachByItsName) {
  std::set<std::string> names;
  for (const Schedule& schedule : schedules()) {
    EXPECT_TRUE(names.insert(schedule.name).second) << schedule.name;
    EXPECT_EQ(find_schedule(schedule.name), &schedule);
    EXPECT_FALSE(schedule.source.empty()) << schedule.name;
  }
  EXPECT_EQ(find_schedule("1f1B"), nullptr);
}

TEST(ScheduleTable, HasThePlansDefaultFirst) { EXPECT_EQ(schedules().front().name, "1f1b"); }

TEST(Schedule, RefusesShapesInWordsThatSayWhatIsExpected) {
  const Schedule& one = *find_schedule("1f1b");
  EXPECT_EQ(one.refusal({.ranks = 4, .stages_per_rank = 1, .micro_batches = 1}), "");
  EXPECT_EQ(one.refusal({.ranks = 4, .stages_per_rank = 2, .micro_batches = 8}),
            "has 1 stage per rank, not 2");
  EXPECT_EQ(one.refusal({.ranks = 4, .stages_per_rank = 1, .micro_batches = 0}),
            "needs at least 1 micro-batch");
  const Schedule& loops = *find_schedule("interleaved");
  EXPECT_EQ(loops.refusal({.ranks = 4, .stages_per_rank = 1, .micro_batches = 8}),
            "needs at least 2 virtual stages per rank (vpp)");
  EXPECT_EQ(loops.refusal({.ranks = 4, .stages_per_rank = 2, .micro_batches = 3}),
            "needs at least as many micro-batches as pipeline ranks: 3 < 4");
  EXPECT_EQ(
      loops.refusal({.ranks = 4, .stages_per_rank = 2, .micro_batches = 8, .group = 3}),
      "needs a group (vpp_group) between the 4 pipeline ranks and the 8 micro-batches, not 3");
  // 10 = 4 + 4 + 2: the last group of 2 is smaller than the pipeline.
  EXPECT_EQ(loops.refusal({.ranks = 4, .stages_per_rank = 2, .micro_batches = 10}),
            "10 micro-batches in groups of 4 leave a last group of 2; it must be empty or have at "
            "least 4 "
            "(the pipeline ranks)");
  // 11 = 6 + 5 and 10 = 5 + 5 are legal.
  EXPECT_EQ(loops.refusal({.ranks = 4, .stages_per_rank = 2, .micro_batches = 11, .group = 6}), "");
  EXPECT_EQ(loops.refusal({.ranks = 4, .stages_per_rank = 2, .micro_batches = 10, .group = 5}), "");
}

// Every shape that a schedule does not refuse is complete and runs to its end, with any durations.
TEST(Schedule, IsCompleteAndFreeOfDeadlockForEveryShapeItAccepts) {
  std::mt19937 random(20240607);
  const auto draw = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  for (const Schedule& schedule : schedules()) {
    int accepted = 0;
    for (int attempt = 0; attempt < 4000 && accepted < 200; ++attempt) {
      ScheduleShape shape;
      shape.ranks = draw(1, 9);
      shape.stages_per_rank =
          schedule.fixed_stages_per_rank > 0 ? schedule.fixed_stages_per_rank : draw(1, 4);
      shape.micro_batches = draw(1, 40);
      shape.group = draw(0, 2) == 0 ? draw(1, 40) : 0;
      if (!schedule.refusal(shape).empty()) continue;
      ++accepted;
      const std::string what = schedule.name + " p" + std::to_string(shape.ranks) + " v" +
                               std::to_string(shape.stages_per_rank) + " m" +
                               std::to_string(shape.micro_batches) + " N" +
                               std::to_string(shape.group);
      EXPECT_EQ(completeness_fault(schedule, shape), "") << what;
      const Durations durations = {.forward = 1.0 * draw(1, 9),
                                   .backward = 1.0 * draw(1, 9),
                                   .backward_input = 1.0 * draw(1, 9),
                                   .backward_weight = 1.0 * draw(1, 9),
                                   .pair = 1.0 * draw(1, 9),
                                   .latency = 1.0 * draw(0, 3)};
      const Replay played = replay(schedule, shape, durations);
      EXPECT_TRUE(played.finished) << what << ": " << played.stuck;
    }
    EXPECT_GE(accepted, 60) << schedule.name;
  }
}

}  // namespace
}  // namespace headway
