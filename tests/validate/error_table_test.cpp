#include "sim/validate/error_table.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace headway {
namespace {

PredictedRun run(const std::string& id, double measured, double predicted,
                 const std::string& group = "g") {
  PredictedRun result;
  result.id = id;
  result.file = "source";
  result.group = group;
  result.identity = id;
  result.measured_s = measured;
  result.predicted_s = predicted;
  result.interval_low_s = predicted * 0.9;
  result.interval_high_s = predicted * 1.1;
  return result;
}

std::vector<const PredictedRun*> pointers(const std::vector<PredictedRun>& runs) {
  std::vector<const PredictedRun*> result;
  for (const PredictedRun& one : runs) result.push_back(&one);
  return result;
}

TEST(ErrorFigures, AreMeansOfRelativeErrors) {
  // Errors: +10 %, -20 %, 0.
  const std::vector<PredictedRun> runs = {run("a", 1, 1.1), run("b", 10, 8), run("c", 4, 4)};
  const ErrorFigures figures = error_figures(pointers(runs));
  EXPECT_EQ(figures.count, 3);
  EXPECT_NEAR(figures.mape, 0.1, 1e-12);
  EXPECT_NEAR(figures.signed_mean, -0.1 / 3, 1e-12);
  EXPECT_NEAR(figures.p95, 0.2, 1e-12);
  EXPECT_EQ(figures.worst_id, "b");
  EXPECT_NEAR(figures.worst_error, -0.2, 1e-12);
  // 1 lies in [0.99, 1.21], 10 not in [7.2, 8.8], 4 in [3.6, 4.4].
  EXPECT_NEAR(figures.within_interval, 2.0 / 3, 1e-12);
}

TEST(ErrorFigures, LeaveOutRunsWithoutATime) {
  std::vector<PredictedRun> runs = {run("a", 1, 2)};
  runs[0].measured_s.reset();
  EXPECT_EQ(error_figures(pointers(runs)).count, 0);
}

TEST(DecisionFigures, RegretIsWhatTheChosenPlanLosesToTheBest) {
  // Predicted best: b (1.0), measured 2.2; measured best: a, 2.0: regret 10 %. Of the ten pairs only
  // (a, b) is ordered wrongly: tau = (9 - 1) / 10.
  const std::vector<PredictedRun> runs = {run("a", 2.0, 1.1), run("b", 2.2, 1.0), run("c", 3, 3),
                                          run("d", 4, 4), run("e", 5, 5)};
  const DecisionFigures figures = decision_figures(pointers(runs), 0.01);
  EXPECT_EQ(figures.groups, 1);
  EXPECT_NEAR(figures.mean_regret, 0.1, 1e-12);
  EXPECT_EQ(figures.top1, 0);
  EXPECT_NEAR(figures.kendall_tau, 0.8, 1e-12);
}

TEST(DecisionFigures, TimesWithinNoiseAreEqual) {
  const std::vector<PredictedRun> runs = {run("a", 2.0, 1.1), run("b", 2.2, 1.0), run("c", 3, 3),
                                          run("d", 4, 4), run("e", 5, 5)};
  const DecisionFigures figures = decision_figures(pointers(runs), 0.15);
  EXPECT_EQ(figures.top1, 1);
  EXPECT_NEAR(figures.kendall_tau, 1, 1e-12);
}

TEST(DecisionFigures, SmallGroupsSayNothing) {
  const std::vector<PredictedRun> runs = {run("a", 2.0, 1.1), run("b", 2.2, 1.0)};
  EXPECT_EQ(decision_figures(pointers(runs), 0.01).groups, 0);
}

TEST(RepetitionNoise, IsTheSpreadOfIdenticalJobs) {
  std::vector<PredictedRun> runs = {run("a", 0.9, 1), run("b", 1.1, 1), run("c", 7, 1)};
  runs[0].identity = runs[1].identity = "same";
  // Deviations -0.1 and +0.1 of the mean, one degree of freedom: sqrt(0.02).
  EXPECT_NEAR(repetition_noise(pointers(runs)), std::sqrt(0.02), 1e-12);
}

TEST(MemoryFigures, CountVerdicts) {
  std::vector<PredictedRun> runs = {run("a", 1, 1), run("b", 1, 1), run("c", 1, 1), run("d", 1, 1)};
  runs[0].out_of_memory = true;
  runs[0].fits = false;  // right
  runs[1].out_of_memory = true;  // missed
  runs[2].fits = false;  // false alarm
  runs[3].measured_bytes = 100;
  runs[3].predicted_bytes = 90;
  const MemoryFigures figures = memory_figures(pointers(runs));
  EXPECT_EQ(figures.right, 2);
  EXPECT_EQ(figures.missed, 1);
  EXPECT_EQ(figures.false_alarm, 1);
  EXPECT_EQ(figures.count, 1);
  EXPECT_NEAR(figures.signed_mean, -0.1, 1e-12);
}

TEST(Tabulate, LeavesOutFittedAndUnreliableRuns) {
  std::vector<PredictedRun> runs = {run("a", 1, 1.1), run("b", 1, 2), run("c", 1, 3)};
  runs[1].used_in_fit = true;
  runs[2].reliability = Reliability::kLow;
  const ErrorTable table = tabulate(runs, false);
  EXPECT_EQ(table.all.count, 1);
  EXPECT_EQ(table.with_fit_rows.count, 2);
  EXPECT_EQ(tabulate(runs, true).all.count, 2);
}

TEST(UsedInFit, IsAPropertyOfTheIdAlone) {
  // FNV-1a 64 of "" is the offset basis 14695981039346656037, 2 mod 5; of "a" 0xaf63dc4c8601ec8c =
  // 12638187200555641996, 1 mod 5.
  EXPECT_FALSE(used_in_fit(""));
  EXPECT_FALSE(used_in_fit("a"));
  int used = 0;
  for (int i = 0; i < 1000; ++i) used += used_in_fit("run-" + std::to_string(i)) ? 1 : 0;
  EXPECT_GT(used, 150);
  EXPECT_LT(used, 250);
}

}  // namespace
}  // namespace headway
