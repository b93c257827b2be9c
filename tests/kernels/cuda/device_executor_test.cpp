#include "kernels/execute/device_executor.hpp"

#include <gmock/gmock.h>

#include <cstdlib>
#include <iostream>
#include <set>

#include "kernels/execute/plan_order.hpp"
#include "kernels/execute/rank_memory.hpp"
#include "kernels/execute/reference_check.hpp"
#include "tests/kernels/cuda/both_backends.hpp"
#include "tests/kernels/execute/executed_plans.hpp"

namespace headway {

void PrintTo(const ExecutedPlan& plan, std::ostream* out) { *out << plan.name; }

namespace {

constexpr double kAdamEpsilon = 1e-4;  // as executed_plans_test: keeps the first step comparable

// One of each family; the others are nightly. The emulated device takes a second for one.
const std::set<std::string> kEveryRun = {
    "one rank",
    "dp4, accumulation in three micro-batches, dropout",
    "dp2, distributed optimizer, gather overlapped",
    "dp3, zero3, padded shares, prefetch of a layer",
    "tp4, sequence parallel, gpt, dropout, selective",
    "cp2, ring",
    "pp4, zb-v, tied",
    "pp4, vocabulary parallel-1",
    "ep2, capacity with drops",
    "latent attention, dense, tp2 without sequence parallelism",
    "bf16, tp2 dp2, distributed optimizer, sequence parallel"};

// Numbers against one rank on the CPU; times in the order the Program demands. On the emulated
// device streams run as far out of order as events allow.
void expect_the_numbers_of_one_rank(const ExecutedPlan& plan) {
  const Program program = plan.program();
  if (const std::string why = not_on_device(program); !why.empty()) {
    std::cout << plan.name << ": " << why << '\n';
    return;
  }
  ExecuteOptions options;
  options.steps = plan.steps;
  options.optimizer.epsilon = kAdamEpsilon;
  const ExecutionResult reference = execute(plan.reference(), options);
  ASSERT_EQ(reference.outcome, Outcome::kFinished) << testing::PrintToString(reference.messages);
  if (!reference.routing.empty()) options.routing = &reference.routing;
  const ExecutionResult executed = execute_on_device(program, options).result;
  ASSERT_EQ(executed.outcome, Outcome::kFinished)
      << testing::PrintToString(executed.messages) << testing::PrintToString(executed.deadlock);
  const CheckReport report = check_against(executed, reference, parameter_type(program));
  EXPECT_THAT(report.problems, testing::IsEmpty());
  const ExecutionPlan spelled_out(program);
  EXPECT_THAT(order_violations(spelled_out, executed.times), testing::IsEmpty());
}

std::vector<ExecutedPlan> plans(bool every_run) {
  std::vector<ExecutedPlan> chosen;
  for (const ExecutedPlan& plan : executed_plans()) {
    if (kEveryRun.contains(plan.name) == every_run) chosen.push_back(plan);
  }
  return chosen;
}

class DevicePlans : public testing::TestWithParam<ExecutedPlan> {};

TEST_P(DevicePlans, GiveTheLossAndGradientsOfOneRankOnTheCpu) {
  SKIP_WITHOUT_DEVICE();
  expect_the_numbers_of_one_rank(GetParam());
}

INSTANTIATE_TEST_SUITE_P(Table, DevicePlans, testing::ValuesIn(plans(true)),
                         [](const testing::TestParamInfo<ExecutedPlan>& row) {
                           std::string name;
                           for (const char c : row.param.name) {
                             name += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
                           }
                           return name;
                         });

TEST(AllDevicePlans, GiveTheLossAndGradientsOfOneRankOnTheCpu) {
  SKIP_WITHOUT_DEVICE();
  if (std::getenv("HEADWAY_NIGHTLY") == nullptr) GTEST_SKIP() << "nightly: set HEADWAY_NIGHTLY";
  for (const ExecutedPlan& plan : plans(false)) {
    SCOPED_TRACE(plan.name);
    expect_the_numbers_of_one_rank(plan);
  }
}

}  // namespace
}  // namespace headway
