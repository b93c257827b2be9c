// The published runs that decide whether the main job is right: GPT models of 1.7 to 1008 billion
// parameters on 32 to 3,072 A100s (arXiv 2104.04473, tables 1 and 2) and with or without selective
// recomputation (arXiv 2205.05198, table 5). Read from results/validation/runs.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "sim/validate/measured_runs.hpp"
#include "sim/validate/validation.hpp"
#include "tests/support/folders.hpp"

namespace headway {
namespace {

// Relative errors of the runs of a file whose names begin so, runs used in a fit among them.
std::vector<std::pair<std::string, double>> errors(const std::string& file,
                                                   const std::string& start) {
  Problems problems;
  std::vector<MeasuredRun> runs =
      read_measured_runs(source_dir() + "/results/validation/runs/" + file, problems);
  problems.throw_if_any();
  std::erase_if(runs, [&](const MeasuredRun& run) { return !run.id.starts_with(start); });
  const Validation validation = validate(runs, {});
  EXPECT_TRUE(validation.skipped.empty());
  std::vector<std::pair<std::string, double>> result;
  for (const PredictedRun& run : validation.runs) result.emplace_back(run.id, run.error());
  return result;
}

double mean_size(const std::vector<std::pair<std::string, double>>& errors) {
  double sum = 0;
  for (const auto& [id, error] : errors) sum += std::abs(error);
  return sum / static_cast<double>(errors.size());
}

TEST(PublishedRuns, OfTheWeakScalingTableAreWithinTenPercentEachAndFourInTheMean) {
  const auto rows = errors("megatron-sc21.json", "sc21-t1-");
  ASSERT_EQ(rows.size(), 10U);
  for (const auto& [id, error] : rows) EXPECT_LT(std::abs(error), 0.10) << id;
  EXPECT_LT(mean_size(rows), 0.04);
}

TEST(PublishedRuns, OfSelectiveRecomputationAreWithinTenPercentEachAndFourInTheMean) {
  const auto rows = errors("selective-recompute.json", "");
  ASSERT_EQ(rows.size(), 9U);
  for (const auto& [id, error] : rows) EXPECT_LT(std::abs(error), 0.10) << id;
  EXPECT_LT(mean_size(rows), 0.04);
}

TEST(PublishedRuns, OfTheParallelismOfTheStrongScalingTableAreWithinTenPercentInTheMean) {
  const auto rows = errors("megatron-sc21.json", "sc21-t2-ptd-");
  ASSERT_EQ(rows.size(), 6U);
  EXPECT_LT(mean_size(rows), 0.10);
}

}  // namespace
}  // namespace headway
