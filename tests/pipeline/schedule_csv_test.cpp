// Schedules as files: what is written is read back, and what is wrong is named with its cell.
#include "sim/program/pipeline/schedule_csv.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/pipeline/replay.hpp"

namespace headway {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::string> faults(const std::string& text) {
  std::vector<std::string> lines;
  for (const ScheduleFault& fault : parse_schedule_csv(text, "mine.csv").faults) {
    lines.push_back(to_text(fault));
  }
  return lines;
}

TEST(ScheduleCsv, IsPytorchsRowPerRank) {
  EXPECT_EQ(to_csv(*find_schedule("1f1b"), {2, 1, 3}),
            "0F0,0F1,0B0,0F2,0B1,0B2\n"
            "1F0,1B0,1F1,1B1,1F2,1B2\n");
}

TEST(ScheduleCsv, ReadsBackEveryScheduleOfOneCopy) {
  for (const Schedule& schedule : schedules()) {
    if (schedule.copies > 1) continue;
    const int stages = schedule.fixed_stages_per_rank > 0 ? schedule.fixed_stages_per_rank : 2;
    const ScheduleShape shape = {4, stages, 8};
    const CsvSchedule read = parse_schedule_csv(to_csv(schedule, shape), "mine.csv");
    ASSERT_THAT(read.faults, IsEmpty()) << schedule.name << ": " << to_text(read.faults.front());
    EXPECT_EQ(read.shape, shape);
    EXPECT_EQ(read.schedule->refusal(shape), "");
    for (int rank = 0; rank < shape.ranks; ++rank) {
      EXPECT_EQ(read.schedule->actions(rank, shape), schedule.actions(rank, shape));
    }
    for (int stage = 0; stage < shape.ranks * stages; ++stage) {
      EXPECT_EQ(read.schedule->rank_of(stage, shape), schedule.rank_of(stage, shape));
    }
    EXPECT_EQ(read.schedule->splits_backward, schedule.splits_backward) << schedule.name;
  }
}

TEST(ScheduleCsv, LeavesOutBlanksAndCommunication) {
  const CsvSchedule read = parse_schedule_csv(
      "0UNSHARD, 0F0 ,,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD\r\n"
      "1RECV_F0,1F0,1B0,1SEND_B0\r\n\n",
      "mine.csv");
  ASSERT_THAT(read.faults, IsEmpty());
  EXPECT_EQ(to_csv(*read.schedule, read.shape), "0F0,0B0\n1F0,1B0\n");
}

TEST(ScheduleCsv, RefusesAnotherShapeThanItsOwn) {
  const CsvSchedule read =
      parse_schedule_csv(to_csv(*find_schedule("zb-v"), {2, 2, 4}), "mine.csv");
  EXPECT_EQ(read.schedule->refusal({4, 2, 4}), "is written for 2 pipeline ranks, not 4");
  EXPECT_EQ(read.schedule->refusal({2, 1, 4}), "is written for 2 stages per rank, not 1");
  EXPECT_EQ(read.schedule->refusal({2, 2, 8}), "is written for 4 micro-batches, not 8");
}

TEST(ScheduleCsv, NamesTheStepThatIsSkipped) {
  EXPECT_THAT(faults("0F0,0F1,0B0,0B1\n1F0,1B0,1B1\n"),
              ElementsAre("row 2, cell 3: 1B1 comes before 1F1", "row 2: 1F1 is missing"));
  EXPECT_THAT(faults("0F0,0I0\n1F0,1I0,1W0\n"), ElementsAre("row 1: 0W0 is missing"));
  EXPECT_THAT(faults("0F0,0F1,0B0\n1F0,1B0,1F1,1B1\n"), ElementsAre("row 1: 0B1 is missing"));
}

TEST(ScheduleCsv, NamesTheStepThatIsWrong) {
  EXPECT_THAT(faults("0F0,0G0\n"),
              ElementsAre("row 1, cell 2: \"0G0\" is no action; expected "
                          "<stage><F|B|I|W><micro-batch> such as \"2F0\" or a pair \"(0F3;3B1)\""));
  EXPECT_THAT(faults("0F0,0F0,0B0\n1F0,1B0\n"),
              ElementsAre("row 1, cell 2: 0F0 comes a second time"));
  EXPECT_THAT(faults("0F0,1F0,0B0\n1B0\n"),
              testing::Contains("row 1, cell 2: 1F0: stage 1 belongs to row 2"));
  EXPECT_THAT(faults("0F0,0B0\n1F0,1B0,2F0,2B0\n"),
              ElementsAre("3 stages on 2 rows; expected equally many on each"));
  EXPECT_THAT(faults("0F0,0I0,0B0\n"),
              ElementsAre("row 1, cell 3: 0B0: the backward pass is there already"));
  EXPECT_THAT(faults(""), ElementsAre("no action in any row"));
}

TEST(ScheduleCsv, NamesTheCycleOfADeadlock) {
  const CsvSchedule read = parse_schedule_csv("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n", "mine.csv");
  ASSERT_EQ(read.faults.size(), 1U);
  EXPECT_TRUE(read.faults.front().deadlock);
  EXPECT_EQ(to_text(read.faults.front()),
            "row 1, cell 2: deadlock: 0B0 waits for 1B0, which stands behind 1F1 (row 2, cell 2), "
            "which waits for 0F1, which stands behind 0B0");
}

}  // namespace
}  // namespace headway
