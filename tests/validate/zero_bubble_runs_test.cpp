// The runs of the zero-bubble paper (arXiv 2401.10241, tables 4 and 5;
// results/validation/runs/zb.json): none is skipped, schedules are ranked as measured, and what
// they gain over 1F1B is right.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/validate/run_groups.hpp"

namespace headway {
namespace {

const Validation& validated() {
  static const Validation validation = validated_runs("zb.json");
  return validation;
}

// Predicted over measured, of the times that a schedule takes relative to 1F1B; the middle one of
// all groups.
double median_of_ratios(const std::string& schedule) {
  std::vector<double> ratios;
  for (const auto& [name, runs] : run_groups(validated())) {
    const auto base = std::find_if(runs.begin(), runs.end(), [](const PredictedRun* run) {
      return run->properties.at("schedule") == "1f1b";
    });
    if (base == runs.end()) continue;
    for (const PredictedRun* run : runs) {
      if (run->properties.at("schedule") != schedule) continue;
      if (run->properties.at("micro_batch") != (*base)->properties.at("micro_batch")) continue;
      ratios.push_back(*run->predicted_s / *(*base)->predicted_s /
                       (*run->measured_s / *(*base)->measured_s));
    }
  }
  EXPECT_GT(ratios.size(), 4U) << schedule;
  std::sort(ratios.begin(), ratios.end());
  return ratios[ratios.size() / 2];
}

TEST(ZeroBubbleRuns, AreAllSimulated) {
  EXPECT_TRUE(validated().skipped.empty());
  EXPECT_EQ(validated().runs.size(), 49U);
}

// Of the pairs in a group that are measured more than 3 % apart, 95 of 100 are ordered as measured.
TEST(ZeroBubbleRuns, AreOrderedAsMeasured) {
  const OrderedPairs pairs = ordered_pairs(validated());
  EXPECT_GT(pairs.count, 60);
  EXPECT_LE(100 * pairs.wrong.size(), 5U * pairs.count) << pairs.text();
}

TEST(ZeroBubbleRuns, GainOverOneFOneBWhatWasMeasured) {
  for (const char* schedule : {"zb-h1", "zb-h2", "interleaved"}) {
    EXPECT_NEAR(median_of_ratios(schedule), 1, 0.05) << schedule;
  }
}

// 16 bytes a parameter and what is in flight: 1F1B p - r micro-batches, H1 p, H2 2p - 1.
TEST(ZeroBubbleRuns, HaveTheMeasuredMemory) {
  for (const PredictedRun& run : validated().runs) {
    if (!run.measured_bytes) continue;
    EXPECT_NEAR(*run.predicted_bytes / *run.measured_bytes, 1, 0.1) << run.id;
  }
}

}  // namespace
}  // namespace headway
