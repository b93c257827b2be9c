#include "kernels/execute/reference_check.hpp"

#include <gmock/gmock.h>

#include <limits>

#include "kernels/execute/execution_json.hpp"
#include "kernels/execute/measured_timeline.hpp"
#include "sim/engine/timeline_json.hpp"
#include "sim/program/training_step.hpp"
#include "tests/kernels/execute/executed_plans.hpp"
#include "tests/kernels/execute/tiny_program.hpp"

namespace headway {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

GlobalTensors tensors(double first, double second) {
  GlobalTensors made;
  made.add({{"big", 1, 2, 0, 0, 2}}, {first, 4});
  made.add({{"small", 1, 1, 0, 0, 1}}, {second});
  return made;
}

ExecutionResult result(double loss, double first, double second) {
  ExecutionResult made;
  ExecutedStep step;
  step.loss = loss;
  step.gradients = tensors(first, second);
  made.steps.push_back(step);
  made.parameters = tensors(1, 1);
  return made;
}

TEST(ReferenceCheck, PassesWithinTheLimitOfThePrecision) {
  const ExecutionResult reference = result(2, 3, 1);
  EXPECT_TRUE(check_against(result(2, 3, 1), reference, DataType::kFp64).passed);
  // 1e-6 of a norm of 5, and of 1.
  const ExecutionResult close = result(2, 3 + 5e-6, 1);
  EXPECT_FALSE(check_against(close, reference, DataType::kFp64).passed);
  const CheckReport report = check_against(close, reference, DataType::kFp32);
  EXPECT_TRUE(report.passed);
  EXPECT_NEAR(report.gradient_error, 1e-6, 1e-12);
  EXPECT_EQ(report.gradient_tensor, "big");
}

TEST(ReferenceCheck, NegligibleTensorsAreJudgedByTheWholeGradient) {
  const ExecutionResult reference = result(2, 3, 1e-12);
  // The whole norm is 5: the floor of `small` is 5e-6, its difference 1e-15.
  EXPECT_TRUE(check_against(result(2, 3, 1.001e-12), reference, DataType::kFp64).passed);
  EXPECT_FALSE(check_against(result(2, 3, 1e-12 + 1e-14), reference, DataType::kFp64).passed);
}

TEST(ReferenceCheck, RoundoffOfTheLayerIsNoError) {
  const auto made = [](double key_bias) {
    ExecutionResult of = result(2, 3, 1);
    of.steps[0].gradients.add({{"layers.0.weight", 1, 1, 0, 0, 1}}, {1});
    of.steps[0].gradients.add({{"layers.0.key_bias", 1, 1, 0, 0, 1}}, {key_bias});
    of.steps[0].gradients.add({{"layers.1.key_bias", 1, 1, 0, 0, 1}}, {0});
    return of;
  };
  const ExecutionResult reference = made(0);
  // bf16 has 8 bits: 2^-8 of the layer's 1.
  EXPECT_TRUE(check_against(made(0.0039), reference, DataType::kBf16).passed);
  EXPECT_FALSE(check_against(made(0.0040), reference, DataType::kBf16).passed);
  // fp32: 2^-24 = 6e-8; fp64: a millionth of the whole, 5.2, times 1e-9.
  EXPECT_TRUE(check_against(made(5.9e-8), reference, DataType::kFp32).passed);
  EXPECT_FALSE(check_against(made(6e-8), reference, DataType::kFp32).passed);
  EXPECT_FALSE(check_against(made(5.3e-15), reference, DataType::kFp64).passed);
}

TEST(ReferenceCheck, SaysWhatDiffersAndWhatIsMissing) {
  const ExecutionResult reference = result(2, 3, 1);
  EXPECT_THAT(check_against(result(2.1, 3, 1), reference, DataType::kBf16).problems,
              ElementsAre(HasSubstr("step 0: loss 2.1, reference 2")));
  ExecutionResult other = reference;
  other.steps[0].gradients = GlobalTensors();
  EXPECT_THAT(check_against(other, reference, DataType::kFp64).problems,
              Contains(HasSubstr("gradient of big is on no rank")));
  other = reference;
  other.steps[0].gradients.add({{"big", 1, 2, 0, 0, 1}}, {3.5});
  EXPECT_THAT(check_against(other, reference, DataType::kFp64).problems,
              Contains(HasSubstr("differs between ranks by 0.5")));
  other = reference;
  other.steps[0].own_losses = {2, 4};
  EXPECT_THAT(check_against(other, reference, DataType::kFp64).problems,
              ElementsAre(HasSubstr("own loss is 4, expected 2")));
}

TEST(ReferenceCheck, NotANumberNeverPasses) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const ExecutionResult reference = result(2, 3, 1);
  EXPECT_FALSE(check_against(result(nan, 3, 1), reference, DataType::kBf16).passed);
  EXPECT_FALSE(check_against(result(2, nan, 1), reference, DataType::kBf16).passed);
  EXPECT_FALSE(check_against(result(2, 3, nan), reference, DataType::kBf16).passed);
}

TEST(ReferenceCheck, OfEightBitsSeesWhatSixteenWouldHide) {
  // A difference of 3e-4 in a tensor whose norm is 5.
  const ExecutionResult reference = result(2, 3, 1), off = result(2, 3.0003, 1);
  EXPECT_TRUE(check_against(off, reference, DataType::kBf16).passed);
  EXPECT_FALSE(check_against(off, reference, DataType::kFp8).passed);
}

TEST(ReferenceCheck, IncludesTheOrderOfThePlan) {
  const Job job = small_job(R"({"hidden_size": 16, "num_hidden_layers": 1,
      "num_attention_heads": 2, "intermediate_size": 24, "vocab_size": 32, "hidden_act": "silu",
      "gated_mlp": true})",
                            2,
                            R"("precision": "fp64", "sequence_length": 8, "global_batch": 2,
                               "plan": {"tp": 2, "sequence_parallel": true})");
  Program program = lower(job);
  const ExecutionResult reference = execute(lower(reference_job(job)));
  const ExecutionResult executed = execute(program);
  const CheckReport report = check_execution(program, executed, reference);
  EXPECT_TRUE(report.passed) << testing::PrintToString(report.problems);
  EXPECT_GT(report.order_demands, 100);
  // Right by luck is not right: nothing orders the gather and what reads it.
  for (Template& list : program.templates) {
    for (TemplateOperation& operation : list.operations) {
      if (operation.name == "attention.qkv_wgrad") operation.after.clear();
    }
  }
  const CheckReport dropped = check_execution(program, executed, reference);
  EXPECT_THAT(dropped.problems, Contains(HasSubstr("and nothing orders them")));
}

TEST(ExecutionJson, HoldsWhatWasMeasuredAndCannotHoldNaN) {
  ExecutionResult failed = result(std::numeric_limits<double>::infinity(), 3, 1);
  failed.steps[0].duration = {1500};
  failed.peak = {{64}};
  CheckReport check;
  check.precision = "fp64";
  check.limit = 1e-9;
  check.problems.assign(30, "wrong");
  const std::string text = execution_json(failed, check);
  const JsonNode node = JsonNode::parse_text(text, "execution");
  EXPECT_EQ(node.find("outcome")->string(), "finished");
  EXPECT_TRUE(node.find("steps")->elements()[0].find("loss")->is_null());
  EXPECT_EQ(node.find("steps")->elements()[0].find("duration_ps")->integer(), 1500);
  EXPECT_EQ(node.find("peak_bytes")->elements()[0].integer(), 64);
  EXPECT_EQ(node.find("check")->find("problems")->elements().size(), 21U);
  EXPECT_EQ(node.find("check")->find("problems")->elements()[20].string(), "and 10 more");
}

TEST(MeasuredTimeline, BooksWaitingWhereTheAwaitedThingStarted) {
  // Rank 0: a copy on the compute stream, then one that comes after a communication beside it.
  TinyProgram tiny(1, {"compute", "beside"});
  const int x = tiny.buffer("x", InitialValue::kOne), y = tiny.buffer("y"), z = tiny.buffer("z");
  TemplateOperation a = TinyProgram::copy("a", x, y), b = TinyProgram::copy("b", x, z),
                    c = TinyProgram::copy("c", z, y);
  b.stream = 1;
  b.cause = Cause::kTensorParallel;
  c.after = {1};
  tiny.issue(0, "0F", {a, b, c}, 0);
  const ExecutionPlan plan(tiny.program());
  const Timeline timeline = measured_timeline(plan, {{{{0}, {10}}, {{14}, {30}}, {{31}, {40}}}});
  EXPECT_EQ(timeline.makespan.picoseconds, 40);
  ASSERT_EQ(timeline.devices.size(), 1U);
  const DeviceTotals& totals = timeline.devices[0];
  EXPECT_EQ(totals.busy[static_cast<std::size_t>(Cause::kCompute)].picoseconds, 19);
  EXPECT_EQ(totals.idle.picoseconds, 4);  // 10 to 14
  EXPECT_EQ(totals.waiting[static_cast<std::size_t>(Cause::kTensorParallel)].picoseconds, 17);
  ASSERT_EQ(timeline.spans.size(), 3U);
  EXPECT_EQ(timeline.spans[1].stream, 1);
  EXPECT_EQ(timeline.spans[2].task, 2);
}

TEST(TimelineJson, ReadsBackEqual) {
  TinyProgram tiny(2);
  const int sum = tiny.buffer("sum", InitialValue::kOne);
  for (const int rank : {0, 1}) tiny.issue(rank, "reduce", {tiny.all_reduce("sum", sum)});
  Timeline timeline =
      measured_timeline(ExecutionPlan(tiny.program()), {{{{0}, {5}}}, {{{2}, {5}}}});
  timeline.critical_path = {{3}, {2}};
  timeline.deadlock = {{1, 0, 0, "port 3"}};
  const auto text = [](const Timeline& of) {
    JsonWriter json;
    write_timeline(json, of);
    return json.text();
  };
  Problems problems;
  const Timeline again = read_timeline(JsonNode::parse_text(text(timeline), "timeline"), problems);
  EXPECT_TRUE(problems.empty());
  EXPECT_EQ(text(again), text(timeline));
  read_timeline(
      JsonNode::parse_text(R"({"makespan_ps": 1, "events": 0, "spans": [1, 2, 3]})", "timeline"),
      problems);
  EXPECT_THAT([&] { problems.throw_if_any(); },
              testing::ThrowsMessage<InvalidInput>(HasSubstr("3 numbers; expected six")));
}

}  // namespace
}  // namespace headway
