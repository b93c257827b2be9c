#include "sim/search/plan_search.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "sim/price/memory.hpp"
#include "sim/program/training_step.hpp"
#include "sim/search/plan_judge.hpp"
#include "tests/search/small_space.hpp"

namespace headway {
namespace {

using testing::HasSubstr;

// 2 x 3 x 2 x 3 choices, of which some are illegal and, on a small device, some do not fit.
constexpr const char* kSpace = R"({"tp": [1, 2], "pp": [1, 2, 4], "recompute": ["none", "full"],
    "micro_batch": [1, 2, 4], "dp_kind": "distributed_optimizer"})";

std::vector<std::string> texts(const SearchResult& result) {
  std::vector<std::string> list;
  for (const FoundPlan& plan : result.plans) list.push_back(plan.text);
  return list;
}

std::vector<std::string> in_order(std::vector<std::string> list) {
  std::sort(list.begin(), list.end());
  return list;
}

// Each choice judged and simulated on its own, without the search.
struct Forced {
  std::string plan;
  Time time;
};
std::vector<Forced> by_force(const Profile& profile, double margin) {
  std::vector<Forced> plans;
  const OpenJob job = open_job(small_job("{}"));
  for (const std::string tp : {"1", "2"}) {
    for (const std::string pp : {"1", "2", "4"}) {
      for (const std::string recompute : {"none", "full"}) {
        for (const std::string size : {"1", "2", "4"}) {
          const std::string plan = "{\"dp_kind\":\"distributed_optimizer\",\"tp\":" + tp +
                                   ",\"pp\":" + pp + ",\"recompute\":\"" + recompute +
                                   "\",\"micro_batch\":" + size + "}";
          Problems problems;
          const JobReading reading = job.with_plan(JsonNode::parse_text(plan, "plan"), problems);
          if (!reading.job) continue;
          const SimulatedStep step = simulate_step(*reading.job, profile);
          const MemoryReport memory = report_memory(*reading.job, step.program, profile.device);
          const auto capacity = static_cast<double>(profile.device.memory.count);
          if (static_cast<double>(needed_memory(memory).count) > capacity * (1 - margin)) continue;
          plans.push_back({plan, step.timeline.makespan});
        }
      }
    }
  }
  std::stable_sort(plans.begin(), plans.end(),
                   [](const Forced& a, const Forced& b) { return a.time < b.time; });
  return plans;
}

TEST(PlanSearch, FindsWhatBruteForceFinds) {
  for (const double gib : {80.0, 14.0, 8.0}) {
    const Profile profile = a100_with(gib);
    SearchOptions options;
    options.top = 3;
    const SearchResult result = search(kSpace, profile, options);
    const std::vector<Forced> forced = by_force(profile, options.memory_margin);
    ASSERT_GE(forced.size(), 3U) << gib;
    std::vector<std::string> best;
    for (std::size_t i = 0; i < 3; ++i) best.push_back(forced[i].plan);
    EXPECT_EQ(in_order(texts(result)), in_order(best)) << gib;
    const auto fastest = std::find_if(result.plans.begin(), result.plans.end(),
                                      [](const FoundPlan& plan) { return plan.fastest; });
    ASSERT_NE(fastest, result.plans.end());
    EXPECT_EQ(fastest->report.iteration, forced.front().time);
    EXPECT_EQ(result.counts.legal - result.counts.over_memory,
              static_cast<std::int64_t>(forced.size()));
  }
}

// Pruning changes what is simulated, never the answer; so no plan that was
// pruned beats the best.
TEST(PlanSearch, PrunesNothingThatBeatsTheBest) {
  for (const Objective objective : {Objective::kTime, Objective::kMemory}) {
    SearchOptions options;
    options.objective = objective;
    options.top = 5;
    const std::string space = R"({"tp": [1, 2], "pp": [2, 4], "micro_batch": "auto",
        "recompute": ["none", "full"], "schedule": ["1f1b", "interleaved"], "vpp": "auto"})";
    const SearchResult pruned = search(space, a100(), options);
    options.prune = false;
    const SearchResult all = search(space, a100(), options);
    EXPECT_GT(pruned.counts.pruned, 0);
    EXPECT_EQ(all.counts.pruned, 0);
    EXPECT_EQ(pruned.counts.legal, all.counts.legal);
    EXPECT_EQ(texts(pruned), texts(all));
    ASSERT_EQ(pruned.front.size(), all.front.size());
    for (std::size_t i = 0; i < all.front.size(); ++i) {
      EXPECT_EQ(pruned.front[i].report.iteration, all.front[i].report.iteration);
      EXPECT_EQ(pruned.front[i].memory_margin, all.front[i].memory_margin);
    }
  }
}

TEST(PlanSearch, IsTheSameOnAnyNumberOfThreads) {
  SearchOptions options;
  const SearchResult one = search(kSpace, a100(), options);
  options.threads = 3;
  const SearchResult three = search(kSpace, a100(), options);
  EXPECT_EQ(texts(one), texts(three));
  EXPECT_EQ(one.counts.simulated, three.counts.simulated);
  EXPECT_EQ(one.counts.pruned, three.counts.pruned);
}

TEST(PlanSearch, CountsApart) {
  SearchOptions options;
  const SearchCounts counts = search(kSpace, a100_with(14), options).counts;
  EXPECT_EQ(counts.legal + counts.illegal, 36);  // explicit lists are tried whole
  EXPECT_EQ(counts.legal, counts.over_memory + counts.pruned + counts.simulated);
  EXPECT_GT(counts.over_memory, 0);
}

TEST(PlanSearch, LeavesTheMarginFree) {
  SearchOptions options;
  options.memory_margin = 0.5;
  for (const FoundPlan& plan : search(kSpace, a100_with(24), options).plans) {
    EXPECT_GE(plan.memory_margin, 0.5);
    EXPECT_LE(needed_memory(plan.report.memory).gib(), 12);
  }
}

// Ties by memory left, then by simplicity; those outside the interval behind them by time.
TEST(PlanSearch, OrdersTiesByMemoryLeft) {
  SearchOptions options;
  options.top = 36;
  const SearchResult result = search(kSpace, a100(), options);
  ASSERT_GT(result.plans.size(), 4U);
  Time low = Time::max(), high;
  for (const FoundPlan& plan : result.plans) {
    if (plan.report.interval_low >= low && low != Time::max()) continue;
    if (plan.fastest) {
      low = plan.report.interval_low;
      high = plan.report.interval_high;
    }
  }
  for (std::size_t i = 0; i < result.plans.size(); ++i) {
    const FoundPlan& plan = result.plans[i];
    const StepReport& step = plan.report;
    EXPECT_EQ(plan.tie, step.interval_low <= high && low <= step.interval_high);
    if (i == 0) continue;
    const FoundPlan& before = result.plans[i - 1];
    if (plan.tie) {
      EXPECT_TRUE(before.tie);
      EXPECT_GE(before.memory_margin, plan.memory_margin);
    } else if (!before.tie) {
      EXPECT_LE(before.report.iteration, plan.report.iteration);
    }
  }
}

TEST(PlanSearch, SaysWhatEachPlanLosesTo) {
  SearchOptions options;
  options.top = 36;
  for (const FoundPlan& plan : search(kSpace, a100(), options).plans) {
    const Breakdown& parts = plan.report.breakdown;
    EXPECT_EQ(plan.loses_to.bubble, parts.bubble);
    EXPECT_EQ(plan.loses_to.exposed_communication,
              parts.tp + parts.cp + parts.ep + parts.pp + parts.dp);
    const bool recomputes = plan.job.plan.recompute != Recompute::kNothing;
    EXPECT_EQ(plan.loses_to.recompute > Time::zero(), recomputes) << plan.text;
    // Full recomputation is a forward pass more, a quarter of the operations at most.
    if (recomputes) {
      EXPECT_LT(plan.loses_to.recompute.seconds(), 0.27 * parts.compute.seconds());
      EXPECT_GT(plan.loses_to.recompute.seconds(), 0.15 * parts.compute.seconds());
    }
  }
}

TEST(PlanSearch, ExplainsRejectionsByTheNearestMiss) {
  SearchOptions options;
  const SearchResult result =
      search(R"({"tp": [2, 16], "recompute": ["none", "full"], "micro_batch": 4,
                 "dp_kind": "distributed_optimizer"})",
             a100_with(16), options);
  std::string text;
  for (const RejectedPlans& rejected : result.rejected)
    text += rejected.reason + ": " + rejected.nearest_miss + "\n";
  EXPECT_THAT(text, HasSubstr("over memory, most of it activations: tp 2, recompute none: needs "));
  EXPECT_THAT(text, HasSubstr("would fit with recompute full"));
  EXPECT_THAT(text, HasSubstr("does not divide"));
}

TEST(PlanSearch, AnswersAnInterruptionWithTheBestSoFar) {
  std::atomic<bool> stop{false};
  SearchOptions options;
  options.top = 1;
  options.stop = &stop;
  options.prune = false;
  options.progress = [&](const SearchProgress& progress) { stop = progress.simulating; };
  const SearchResult result = search(kSpace, a100(), options);
  EXPECT_TRUE(result.interrupted);
  EXPECT_EQ(result.plans.size(), 1U);
  EXPECT_GT(result.counts.pruned, 0);
}

}  // namespace
}  // namespace headway
