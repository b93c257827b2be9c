// Random plans in which all families meet, executed: each must give the loss, the gradients and the
// parameters of one rank, in two orders of what could start, and its memory must be ordered.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "kernels/execute/executor.hpp"
#include "kernels/execute/plan_order.hpp"
#include "kernels/execute/reference_check.hpp"
#include "sim/program/training_step.hpp"
#include "tests/support/random_plan.hpp"

namespace headway {
namespace {

bool nightly() { return std::getenv("HEADWAY_NIGHTLY") != nullptr; }

constexpr int kEveryRun = 6, kNightly = 200;
// As in executed_plans_test: AdamW's first step divides a gradient by itself.
constexpr double kAdamEpsilon = 1e-4;

void expect_numbers_of_one_rank(unsigned seed) {
  std::mt19937 random(seed);
  const RandomPlan plan = random_plan(random, {});
  SCOPED_TRACE("seed " + std::to_string(seed) + ": " + plan.text);
  const Program program = lower(plan.job);
  ASSERT_NO_THROW(check(program, "random plan"));
  const ExecutionPlan spelled_out(program);
  const PlanOrder order(spelled_out);
  ASSERT_TRUE(order.ends());
  EXPECT_THAT(order.unordered(), testing::IsEmpty());
  ExecuteOptions options;
  options.steps = 2;
  options.optimizer.epsilon = kAdamEpsilon;
  Program reference_program = lower(reference_job(plan.job));
  // A post-validated step is executed in the case that it is valid.
  Program executed_program = program;
  if (program.steps_overlap) executed_program.clip_norm = reference_program.clip_norm = 1e6;
  const ExecutionResult reference = execute(reference_program, options);
  ASSERT_EQ(reference.outcome, Outcome::kFinished) << testing::PrintToString(reference.messages);
  if (!reference.routing.empty()) options.routing = &reference.routing;
  for (const Preference preference : {Preference::kFirstIssued, Preference::kLastIssued}) {
    options.preference = preference;
    const ExecutionResult executed = execute(executed_program, options);
    ASSERT_EQ(executed.outcome, Outcome::kFinished)
        << testing::PrintToString(executed.messages) << testing::PrintToString(executed.deadlock);
    EXPECT_THAT(check_against(executed, reference, parameter_type(program)).problems,
                testing::IsEmpty());
  }
}

TEST(MixedPlansExecuted, GiveTheNumbersOfOneRank) {
  for (int seed = 0; seed < (nightly() ? kNightly : kEveryRun); ++seed) {
    expect_numbers_of_one_rank(static_cast<unsigned>(seed));
  }
}

}  // namespace
}  // namespace headway
