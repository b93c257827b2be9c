// The runs of the vocabulary-parallelism paper (arXiv 2411.05288, table 5;
// results/validation/runs/vocabpp.json): all ways to place the vocabulary are simulated, and ranked
// as measured.
#include <gtest/gtest.h>

#include "tests/validate/run_groups.hpp"

namespace headway {
namespace {

const Validation& validated() {
  static const Validation validation = validated_runs("vocabpp.json");
  return validation;
}

TEST(VocabularyRuns, AreAllSimulated) {
  EXPECT_TRUE(validated().skipped.empty());
  EXPECT_EQ(validated().runs.size(), 25U);
}

TEST(VocabularyRuns, AreOrderedAsMeasured) {
  const OrderedPairs pairs = ordered_pairs(validated());
  EXPECT_GT(pairs.count, 30);
  EXPECT_LE(100 * pairs.wrong.size(), 5U * pairs.count) << pairs.text();
}

}  // namespace
}  // namespace headway
