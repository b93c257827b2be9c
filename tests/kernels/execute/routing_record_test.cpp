#include "kernels/execute/routing_record.hpp"

#include <gmock/gmock.h>

#include "kernels/execute/reference_check.hpp"
#include "sim/program/training_step.hpp"
#include "tests/kernels/execute/executed_plans.hpp"

namespace headway {
namespace {

using testing::ElementsAre;

TEST(RoutingRecord, FindsTheChoicesOfARunOfTokens) {
  RoutingRecord record, other;
  record.add(1, {4, 5}, 2, {0, 1, 2, 3});
  other.add(1, {6}, 2, {5, 4});
  record.add(other);
  EXPECT_THAT(record.find(1, {6, 5}), ElementsAre(5, 4, 2, 3));
  EXPECT_THROW(record.find(1, {6, 7}), std::invalid_argument);
  EXPECT_THROW(record.find(0, {4}), std::invalid_argument);
}

constexpr const char* kModel =
    R"({"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 48, "vocab_size": 200, "hidden_act": "silu", "gated_mlp": true,
        "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16})";

Job job(int gpus, const std::string& precision, const std::string& plan) {
  return small_job(kModel, gpus, R"("precision": ")" + precision +
                                     R"(", "sequence_length": 16, "global_batch": 4, "plan": {)" +
                                     plan + "}");
}

// In fp64 no rounding is large enough to change a choice: free routers decide alike.
TEST(FreeRouting, ChoosesAsTheReferenceDoes) {
  const Job two = job(2, "fp64", R"("ep": 2)");
  const ExecutionResult reference = execute(lower(reference_job(two)));
  const ExecutionResult executed = execute(lower(two));
  ASSERT_EQ(executed.outcome, Outcome::kFinished) << testing::PrintToString(executed.messages);
  EXPECT_EQ(executed.routing, reference.routing);
  EXPECT_FALSE(executed.routing.empty());
  const CheckReport report = check_against(executed, reference, DataType::kFp64);
  EXPECT_THAT(report.problems, testing::IsEmpty());
}

// What is repeated is what another run chose, not what the router would choose.
TEST(FreeRouting, IsReplacedByARecordedOne) {
  const Job one = job(1, "fp64", "");
  ExecuteOptions other;
  other.seed = 2;
  const ExecutionResult foreign = execute(lower(one), other);
  ExecuteOptions options;
  options.routing = &foreign.routing;
  const ExecutionResult executed = execute(lower(one), options);
  ASSERT_EQ(executed.outcome, Outcome::kFinished) << testing::PrintToString(executed.messages);
  EXPECT_EQ(executed.routing, foreign.routing);
  EXPECT_NE(execute(lower(one)).routing, foreign.routing);
}

}  // namespace
}  // namespace headway
