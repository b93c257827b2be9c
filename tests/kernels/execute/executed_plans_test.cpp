#include "tests/kernels/execute/executed_plans.hpp"

#include <gmock/gmock.h>

#include <cstdlib>

#include "kernels/execute/plan_order.hpp"
#include "kernels/execute/rank_memory.hpp"
#include "kernels/execute/reference_check.hpp"
#include "sim/program/training_step.hpp"
#include "tests/kernels/execute/mutations.hpp"

namespace headway {

// How a row is named in messages.
void PrintTo(const ExecutedPlan& plan, std::ostream* out) { *out << plan.name; }

namespace {

// Set where all rows are to be run, not only those of every run.
bool nightly() { return std::getenv("HEADWAY_NIGHTLY") != nullptr; }

// AdamW's first step divides a gradient by itself; this epsilon keeps that well conditioned.
constexpr double kAdamEpsilon = 1e-4;

// Adafactor divides likewise, by the root of squares to which this is added.
OptimizerConstants well_conditioned() {
  OptimizerConstants constants;
  constants.epsilon = kAdamEpsilon;
  constants.squared_epsilon = kAdamEpsilon * kAdamEpsilon;
  return constants;
}

class ExecutedPlans : public testing::TestWithParam<ExecutedPlan> {};
class FreelyRoutedPlans : public testing::TestWithParam<ExecutedPlan> {};

std::vector<ExecutedPlan> freely_routed_plans() {
  std::vector<ExecutedPlan> plans = executed_plans();
  std::erase_if(plans, [](const ExecutedPlan& plan) { return !plan.routes_freely; });
  return plans;
}

// A test's name may hold letters, digits and underscores.
std::string test_name(const testing::TestParamInfo<ExecutedPlan>& row) {
  std::string name;
  for (const char c : row.param.name) {
    name += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  }
  return name;
}

TEST_P(ExecutedPlans, GivesTheLossAndGradientsOfOneRank) {
  const ExecutedPlan& plan = GetParam();
  if (!plan.every_run && !nightly()) GTEST_SKIP() << "nightly: set HEADWAY_NIGHTLY";
  const Job job = plan.job();
  EXPECT_EQ(plan.routes_freely, job.model.num_experts > 0 && job.precision == Precision::kFp64);
  const Program program = plan.program();
  ASSERT_NO_THROW(check(program, plan.name));
  const ExecutionPlan spelled_out(program);
  const PlanOrder order(spelled_out);
  ASSERT_TRUE(order.ends());
  EXPECT_THAT(order.unordered(), testing::IsEmpty());
  const Program reference_program = plan.reference();
  ExecuteOptions options;
  options.steps = plan.steps;
  options.optimizer = well_conditioned();
  const ExecutionResult reference = execute(reference_program, options);
  ASSERT_EQ(reference.outcome, Outcome::kFinished) << testing::PrintToString(reference.messages);
  if (!reference.routing.empty()) options.routing = &reference.routing;
  for (const Preference preference : {Preference::kFirstIssued, Preference::kLastIssued}) {
    options.preference = preference;
    const ExecutionResult executed = execute(program, options);
    ASSERT_EQ(executed.outcome, Outcome::kFinished)
        << testing::PrintToString(executed.messages) << testing::PrintToString(executed.deadlock);
    const CheckReport report = check_against(executed, reference, parameter_type(program));
    EXPECT_THAT(report.problems, testing::IsEmpty());
    EXPECT_THAT(order_violations(spelled_out, executed.times), testing::IsEmpty());
    RecordProperty("gradient_error", std::to_string(report.gradient_error));
    if (std::getenv("HEADWAY_VERBOSE") != nullptr) {
      std::cerr << plan.name << ": loss " << executed.steps.front().loss << " error "
                << report.loss_error << ", gradients " << report.gradient_error << " ("
                << report.gradient_tensor << "), parameters " << report.parameter_error << '\n';
    }
  }
}

// Not replayed: in 64 bits every rank's router chooses what the reference's does.
TEST_P(FreelyRoutedPlans, RouteAsTheReferenceDoes) {
  const ExecutedPlan& plan = GetParam();
  if (!plan.mutated && !nightly()) GTEST_SKIP() << "nightly: set HEADWAY_NIGHTLY";
  ExecuteOptions options;
  options.steps = plan.steps;
  options.optimizer = well_conditioned();
  const ExecutionResult reference = execute(plan.reference(), options);
  const Program program = plan.program();
  const ExecutionResult executed = execute(program, options);
  ASSERT_EQ(executed.outcome, Outcome::kFinished) << testing::PrintToString(executed.messages);
  ASSERT_FALSE(reference.routing.empty());
  EXPECT_EQ(executed.routing, reference.routing);
  const CheckReport report = check_against(executed, reference, parameter_type(program));
  EXPECT_THAT(report.problems, testing::IsEmpty());
}

TEST_P(ExecutedPlans, LearnsInFiftySteps) {
  const ExecutedPlan& plan = GetParam();
  if (!nightly()) GTEST_SKIP() << "nightly: set HEADWAY_NIGHTLY";
  constexpr int kSteps = 50, kMean = 5;
  ExecuteOptions options;
  options.steps = kSteps;
  const ExecutionResult result = execute(plan.program(), options);
  ASSERT_EQ(result.outcome, Outcome::kFinished) << testing::PrintToString(result.messages);
  double first = 0, last = 0;
  for (int s = 0; s < kMean; ++s) {
    first += result.steps[static_cast<std::size_t>(s)].loss / kMean;
    last += result.steps[static_cast<std::size_t>(kSteps - 1 - s)].loss / kMean;
  }
  std::cout << plan.name << ": loss " << first << " -> " << last << '\n';
  EXPECT_LT(last, 0.9 * first);
}

TEST_P(ExecutedPlans, HidesNoMutation) {
  const ExecutedPlan& plan = GetParam();
  if (!plan.mutated && !nightly()) GTEST_SKIP() << "nightly: set HEADWAY_NIGHTLY";
  const Program lowered = plan.program();
  if (held_in_double(lowered)) {
    GTEST_SKIP() << "scales are powers of two: faults in how one is found leave most numbers alone";
  }
  ExecuteOptions options;
  options.steps = plan.steps;
  options.optimizer = well_conditioned();
  const Program program = in_fp64(lowered);
  const ExecutionResult reference = execute(in_fp64(plan.reference()), options);
  if (!reference.routing.empty()) options.routing = &reference.routing;
  const MutationCount count = count_mutations(program, reference, options, nightly());
  std::cout << plan.name << ": of " << count.removed << " removed collectives and " << count.swapped
            << " swaps " << count.deadlocked << " deadlock, " << count.differed
            << " give other numbers, " << count.unordered << " leave memory unordered, "
            << count.harmless << " are harmless by rule\n";
  EXPECT_THAT(count.missed, testing::IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Table, ExecutedPlans, testing::ValuesIn(executed_plans()), test_name);
INSTANTIATE_TEST_SUITE_P(Table, FreelyRoutedPlans, testing::ValuesIn(freely_routed_plans()),
                         test_name);

}  // namespace
}  // namespace headway
