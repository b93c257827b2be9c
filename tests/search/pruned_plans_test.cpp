// At full size: plans that the search left out by their bounds, drawn at random and simulated all
// the same. What the search promises is that none of them beats its answer, and what makes it true
// that none undercuts its bound.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <ostream>
#include <random>
#include <thread>

#include "sim/core/parallel.hpp"
#include "sim/search/plan_judge.hpp"
#include "sim/search/plan_search.hpp"
#include "sim/simulate/simulated_step.hpp"
#include "tests/search/small_space.hpp"

namespace headway {
namespace {

constexpr std::size_t kDrawn = 1000;

struct Question {
  const char* name;
  const char* job;
};
const Question kQuestions[] = {
    {"Llama3_70bOn512", R"({"model": "llama3-70b", "cluster": {"topology": "dgx-h100", "gpus": 512},
        "sequence_length": 8192, "global_batch": 1024,
        "software": {"framework": "megatron-core"}})"},
    {"Llama3_405bOn16384",
     R"({"model": "llama3-405b", "cluster": {"topology": "dgx-h100", "gpus": 16384},
        "sequence_length": 8192, "global_batch": 2048,
        "software": {"framework": "megatron-core"}})"},
    {"DeepSeekV3On2048",
     R"({"model": "deepseek-v3", "cluster": {"topology": "h800", "gpus": 2048},
        "sequence_length": 4096, "global_batch": 15360,
        "software": {"framework": "megatron-core"}})"},
};

void PrintTo(const Question& question, std::ostream* out) { *out << question.name; }

class PrunedPlans : public testing::TestWithParam<Question> {};

TEST_P(PrunedPlans, NoneBeatsTheAnswer) {
  if (std::getenv("HEADWAY_NIGHTLY") == nullptr) GTEST_SKIP() << "minutes: HEADWAY_NIGHTLY runs it";
  const OpenJob job = open_job(GetParam().job);
  const Profile profile = read_profile(job.profile());
  const PriceBook prices(profile);
  const FrameworkReach& reach = framework_reach(job.software().framework);
  Problems problems;
  const PlanSpace space(job, reach, {}, problems);
  problems.throw_if_any();
  SearchOptions options;
  options.front = false;
  options.threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  const SearchResult found = search_plans(job, space, reach, prices, options);
  ASSERT_FALSE(found.plans.empty());
  Time best = Time::max(), worst;
  for (const FoundPlan& plan : found.plans) {
    best = std::min(best, plan.report.iteration);
    worst = std::max(worst, plan.report.iteration);
  }

  const PlanJudge judge(job, space, reach, prices, options.memory_margin);
  std::vector<PlanChoice> rows;
  space.for_each_row([&](const PlanChoice& row) {
    rows.push_back(row);
    return true;
  });
  std::vector<std::vector<JudgedPlan>> judged(rows.size());
  in_parallel(rows.size(), options.threads,
              [&](std::size_t i) { judged[i] = judge.judge_row(rows[i], [] { return false; }); });
  std::vector<JudgedPlan> pruned;
  for (const auto& row : judged) {
    for (const JudgedPlan& plan : row) {
      // A few of these were simulated all the same, in the first round.
      if (plan.verdict == Verdict::kFits && plan.bound > worst) pruned.push_back(plan);
    }
  }
  std::mt19937 random(1);
  std::shuffle(pruned.begin(), pruned.end(), random);
  pruned.resize(std::min(pruned.size(), kDrawn));
  std::vector<Time> times(pruned.size());
  in_parallel(pruned.size(), options.threads, [&](std::size_t i) {
    StepOptions step;
    step.prices = &prices;
    times[i] = simulate_step(judge.job_of(pruned[i].choice), profile, step).timeline.makespan;
  });
  int beat = 0, undercut = 0;
  for (std::size_t i = 0; i < pruned.size(); ++i) {
    beat += times[i] < best ? 1 : 0;
    undercut += times[i] < pruned[i].bound ? 1 : 0;
  }
  EXPECT_EQ(beat, 0);
  EXPECT_EQ(undercut, 0);
  std::printf("%s: %lld legal, %lld fit, %lld pruned; of these %zu simulated again\n",
              GetParam().name, static_cast<long long>(found.counts.legal),
              static_cast<long long>(found.counts.legal - found.counts.over_memory),
              static_cast<long long>(found.counts.pruned), pruned.size());
}

INSTANTIATE_TEST_SUITE_P(AtFullSize, PrunedPlans, testing::ValuesIn(kQuestions),
                         [](const auto& question) { return std::string(question.param.name); });

}  // namespace
}  // namespace headway
