#include "sim/search/plan_question.hpp"

#include <gmock/gmock.h>

#include "sim/search/plan_ranking.hpp"
#include "sim/search/plan_report.hpp"
#include "tests/search/small_space.hpp"

namespace headway {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

PlanQuestion question(const std::string& job) {
  PlanQuestion asked{.job = JsonNode::parse_text(job, "job.json")};
  asked.search.top = 3;
  return asked;
}

const std::string kOpen = R"({"tp": [1, 2], "pp": [1, 2], "micro_batch": [1, 2]})";

TEST(PlanQuestion, SaysWhatItLeftOpenByDefault) {
  const PlanAnswer given = answer(question(small_job(kOpen)));
  EXPECT_THAT(given.open, ElementsAre("tp", "pp", "micro_batch"));
  EXPECT_THAT(given.notes, Not(Contains(HasSubstr("leaves no key of its plan open"))));
  PlanQuestion asked = question(small_job(R"({"pp": 1, "recompute": "none", "dp_kind": "ddp"})"));
  asked.space.fixed = {{"micro_batch", "1", "--fix"}};
  const PlanAnswer open = answer(asked);
  EXPECT_THAT(open.notes, Contains(HasSubstr("the search is over tp, schedule")));
}

TEST(PlanQuestion, SearchesWithinTheFrameworksReach) {
  PlanQuestion asked =
      question(small_job(R"({"pp": 4, "tp": 2, "schedule": "auto"})", "megatron-2022"));
  asked.search.top = 100;
  const PlanAnswer bound = answer(asked);
  for (const FoundPlan& plan : bound.result.plans)
    EXPECT_THAT(plan.job.plan.schedule, testing::AnyOf("1f1b", "interleaved"));
  asked.launched_by = "any";
  EXPECT_GT(answer(asked).result.counts.legal, bound.result.counts.legal);
  asked.launched_by = "torchtitan";  // whose software then is the job's too
  EXPECT_EQ(answer(asked).result.plans.front().job.software.framework, "torchtitan");
}

TEST(PlanQuestion, SweepsTheSizeOfTheCluster) {
  PlanQuestion asked = question(small_job(kOpen));
  asked.gpus = {8, 16, 32};
  const PlanAnswer by_time = answer(asked);
  ASSERT_EQ(by_time.scales.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(by_time.scales[i].best->report.gpus, asked.gpus[i]);
  EXPECT_EQ(by_time.result.plans.front().report.gpus, 32);
  asked.search.objective = Objective::kCost;
  const PlanAnswer by_cost = answer(asked);
  for (const ScaleAnswer& scale : by_time.scales) {
    EXPECT_LE(cost_of(by_cost.result.plans.front(), Objective::kCost),
              cost_of(*scale.best, Objective::kCost) * 1.2);
  }
  // No plan of the front is beaten by another in time, GPUs and memory left.
  const auto& front = by_time.result.front;
  EXPECT_GE(front.size(), 3U);
  for (const FoundPlan& a : front) {
    for (const FoundPlan& b : front) {
      EXPECT_FALSE(a.report.iteration < b.report.iteration && a.report.gpus <= b.report.gpus &&
                   a.memory_margin >= b.memory_margin);
    }
  }
}

// 7 billion parameters with their whole optimizer state on one GPU each.
TEST(PlanQuestion, AnswersWithTheNearestFeasiblePlan) {
  const std::string text =
      R"({"model": "llama2-7b", "cluster": {"topology": "dgx-a100", "gpus": 4},
    "sequence_length": 4096, "global_batch": 4, "software": {"framework": "megatron-2022"},
    "plan": {"tp": 1, "pp": 1, "dp_kind": "ddp", "micro_batch": [1, 2]}})";
  const PlanAnswer found = answer(question(text));
  EXPECT_THAT(found.result.plans, IsEmpty());
  EXPECT_EQ(found.result.counts.over_memory, found.result.counts.legal);
  ASSERT_TRUE(found.nearest);
  EXPECT_EQ(found.nearest->plan.report.gpus, 4);
  EXPECT_THAT(found.nearest->change, HasSubstr(" in place of "));
  const std::string said = plan_text(found, {});
  EXPECT_THAT(said, HasSubstr("no plan found: none fits the memory"));
  EXPECT_THAT(said, HasSubstr("nearest"));
  EXPECT_THAT(plan_json(found, {}), HasSubstr("\"fits\": false"));
}

// Eight GPUs have no NIC to be slower, sixteen do: the trial leaves the former as they are.
TEST(PlanQuestion, HoldsPlansOfSeveralSizesAgainstTheSameTrials) {
  PlanQuestion asked = question(small_job(kOpen));
  asked.gpus = {8, 16};
  asked.search.top = 8;
  asked.search.objective = Objective::kCost;
  const PlanAnswer found = answer(asked);
  const Sensitivity& nic = found.sensitivity.front();
  EXPECT_EQ(nic.name, "nic");
  const auto cost = [&](std::size_t i) {
    return nic.times[i].seconds() * found.result.plans[i].report.gpus;
  };
  for (std::size_t i = 0; i < nic.times.size(); ++i) {
    const StepReport& step = found.result.plans[i].report;
    EXPECT_GE(nic.times[i], step.iteration);
    EXPECT_TRUE(step.gpus > 8 || nic.times[i] == step.iteration);
    EXPECT_GE(cost(i), cost(nic.best));
  }
}

// Experts that some tokens prefer are a question of their own; where the job says how tokens
// choose, that is what was simulated already.
TEST(PlanQuestion, HoldsExpertsAgainstUnevenChoices) {
  const std::string text = R"({"model": "mixtral-8x7b",
    "cluster": {"topology": "dgx-h100", "gpus": 64}, "sequence_length": 4096, "global_batch": 128,
    "software": {"framework": "megatron-core"},
    "plan": {"tp": 1, "pp": 4, "ep": [4, 8], "dp_kind": "distributed_optimizer")";
  const PlanAnswer even = answer(question(text + "}}"));
  ASSERT_EQ(even.sensitivity.back().name, "hot_experts");
  EXPECT_GT(even.sensitivity.back().factor, 1);
  for (std::size_t i = 0; i < even.result.plans.size(); ++i)
    EXPECT_GT(even.sensitivity.back().times[i], even.result.plans[i].report.iteration);
  const PlanAnswer uneven = answer(question(text + R"(, "moe": {"routing": {"zipf": 0.5}}}})"));
  EXPECT_EQ(uneven.sensitivity.back().name, "slow_gpu");
}

TEST(PlanQuestion, HoldsTheChoiceAgainstSlowerMachines) {
  const PlanAnswer found = answer(question(small_job(kOpen)));
  ASSERT_EQ(found.sensitivity.size(), 3U);  // NICs, matrix multiplications, one GPU
  for (const Sensitivity& trial : found.sensitivity) {
    ASSERT_EQ(trial.times.size(), found.result.plans.size());
    for (std::size_t i = 0; i < trial.times.size(); ++i) {
      EXPECT_GE(trial.times[i], found.result.plans[i].report.iteration);
      EXPECT_GE(trial.times[i], trial.times[trial.best]);
    }
  }
}

TEST(PlanQuestion, ReportsAllProblemsOfTheQuestion) {
  PlanQuestion asked = question(small_job(R"({"bucket": "auto", "tp": []})"));
  try {
    answer(asked);
    FAIL();
  } catch (const InvalidInput& error) {
    EXPECT_EQ(error.problems().size(), 2U);
  }
}

// 1e12 tokens at the plan's tokens per second; the topology's price and watts.
TEST(TrainingRun, FollowsFromTheStep) {
  const PlanAnswer found = answer(question(small_job(kOpen)));
  const FoundPlan& plan = found.result.plans.front();
  const TrainingRun run = training_run(plan.job, plan.report, 1e12);
  EXPECT_DOUBLE_EQ(run.days * 86400 * plan.report.tokens_per_s, 1e12);
  EXPECT_DOUBLE_EQ(run.gpu_hours, run.days * 24 * 16);
  EXPECT_DOUBLE_EQ(*run.dollars, run.gpu_hours * 1.9);
  EXPECT_NEAR(*run.kilowatt_hours, run.days * 24 * 2 * 6.5, 1e-6);
}

}  // namespace
}  // namespace headway
