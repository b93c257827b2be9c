#include "sim/report/step_report.hpp"

#include <gmock/gmock.h>

#include "tests/report/small_step.hpp"

namespace headway {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

std::string with(std::string text, const std::string& piece, const std::string& by) {
  return text.replace(text.find(piece), piece.size(), by);
}

Time sum(const std::vector<CausePart>& parts) {
  Time total;
  for (const CausePart& part : parts) total += part.time;
  return total;
}

TEST(StepReport, BreakdownAndCriticalPathAddUpToTheStep) {
  const std::string unfused = with(kSmallJob, R"("tp": 2)", R"("tp": 2, "recompute": "full")");
  const std::string sharded =
      with(kSmallJob, R"("tp": 2)", R"("tp": 2, "dp_kind": "distributed_optimizer")");
  const std::string interleaved =
      with(kSmallJob, R"("tp": 2)", R"("tp": 2, "schedule": "interleaved", "vpp": 3)");
  const std::string gpipe = with(kSmallJob, R"("tp": 2)", R"("tp": 2, "schedule": "gpipe")");
  for (const std::string& text : {std::string(kSmallJob), unfused, sharded, interleaved, gpipe}) {
    for (const bool unfolded : {false, true}) {
      StepOptions options;
      options.unfolded = unfolded;
      const StepReport report = play(text, options).report;
      EXPECT_EQ(report.breakdown.total(), report.iteration) << text;
      EXPECT_EQ(sum(report.critical_path), report.iteration) << text;
    }
  }
}

TEST(StepReport, CriticalPathIsOfWorkAloneLongestFirst) {
  const StepReport report = play(kSmallJob).report;
  ASSERT_FALSE(report.critical_path.empty());
  EXPECT_EQ(report.critical_path.front().cause, "compute");
  for (std::size_t i = 1; i < report.critical_path.size(); ++i) {
    EXPECT_LE(report.critical_path[i].time, report.critical_path[i - 1].time);
  }
  // Two stages, eight micro-batches: the path computes at least what a rank does.
  EXPECT_GE(report.critical_path.front().time, report.breakdown.compute);
}

TEST(StepReport, FiguresFollowFromTheStepTime) {
  const Played played = play(kSmallJob);
  const StepReport& report = played.report;
  const double seconds = report.iteration.seconds();
  EXPECT_DOUBLE_EQ(report.samples_per_s, 16 / seconds);
  EXPECT_DOUBLE_EQ(report.tokens_per_s, 16 * 2048 / seconds);
  EXPECT_DOUBLE_EQ(report.tokens_per_s_per_gpu, 2048 * 2 / seconds);
  // 312 TFLOP/s is the A100's dense bf16 peak.
  EXPECT_DOUBLE_EQ(report.mfu, report.model_flops_per_s_per_gpu / 312e12);
  // Without recomputation the ranks execute what the model asks for, and nothing else.
  EXPECT_NEAR(report.hfu, report.mfu, 1e-3);
  EXPECT_EQ(report.gpus, 8);
  EXPECT_EQ(report.dp, 2);
  EXPECT_LT(report.interval_low, report.iteration);
  EXPECT_GT(report.interval_high, report.iteration);
  // A node takes 6,500 W, a GPU 1.90 $/h.
  EXPECT_NEAR(report.energy_j.value(), 6500 * seconds, 1e-6);
  EXPECT_NEAR(report.cost_usd.value(), 1.9 * 8 / 3600 * seconds, 1e-12);
}

TEST(StepReport, RecomputationIsInHfuAlone) {
  const StepReport plain = play(kSmallJob).report;
  const StepReport full =
      play(with(kSmallJob, R"("tp": 2)", R"("tp": 2, "recompute": "full")")).report;
  EXPECT_GT(full.hfu, full.mfu * 1.2);
  EXPECT_GT(full.iteration, plain.iteration);
}

TEST(StepReport, NoCommunicationIsExposedForLongerThanItTakes) {
  for (const CommunicationLine& line : play(kSmallJob).report.communication) {
    EXPECT_LE(line.exposed, line.time) << line.kind << " over " << line.group;
    EXPECT_GT(line.count, 0);
    EXPECT_GT(line.bytes_per_rank.count, 0);
    EXPECT_GE(line.size, 2);
  }
}

TEST(StepReport, ADeadlockHasWaitsInTheSchedulesWordsAndNoTimes) {
  const StepReport report = play_deadlock().report;
  ASSERT_FALSE(report.deadlock.empty());
  EXPECT_THAT(report.deadlock, testing::Contains(AllOf(HasSubstr("pipeline rank 0 (rank 0), "),
                                                       HasSubstr("waits for"))));
  EXPECT_THAT(report.critical_path, IsEmpty());
  EXPECT_GT(report.memory.peak.count, 0);
}

}  // namespace
}  // namespace headway
