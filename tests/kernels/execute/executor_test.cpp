#include "kernels/execute/executor.hpp"

#include <gmock/gmock.h>

#include <chrono>
#include <future>
#include <memory>
#include <thread>

#include "sim/program/training_step.hpp"
#include "tests/kernels/execute/executed_plans.hpp"
#include "tests/kernels/execute/tiny_program.hpp"

namespace headway {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

const char* const kModel =
    R"({"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
        "intermediate_size": 24, "vocab_size": 32, "hidden_act": "silu", "gated_mlp": true})";

Program lowered(int gpus, const std::string& plan, const std::string& precision = "fp64") {
  return lower(small_job(kModel, gpus,
                         R"("precision": ")" + precision +
                             R"(", "sequence_length": 8, "global_batch": 4, "plan": )" + plan));
}

// Rank 0 sends before it receives, and so does rank 1: each waits for the other to receive.
Program crossed_sends() {
  TinyProgram tiny(2);
  const int left = tiny.buffer("left", InitialValue::kOne);
  const int right = tiny.buffer("right", InitialValue::kOne);
  tiny.issue(0, "0F", {TinyProgram::send("send left", left, 1)}, 3);
  tiny.issue(0, "0B", {TinyProgram::receive("receive right", right, 1)}, 3);
  tiny.issue(1, "1F", {TinyProgram::send("send right", right, -1)}, 3);
  tiny.issue(1, "1B", {TinyProgram::receive("receive left", left, -1)}, 3);
  return tiny.program();
}

TEST(Executor, ADeadlockIsAResultInTheSchedulesWords) {
  const ExecutionResult result = execute(crossed_sends());
  EXPECT_EQ(result.outcome, Outcome::kDeadlock);
  EXPECT_THAT(
      result.deadlock,
      ElementsAre(
          "rank 0, 0F3, send left (layer 0): waits for rank 1 to come to it",
          "rank 1, 1B3, receive left (layer 0): waits for rank 1, 1F3, send right (layer 0)",
          "rank 1, 1F3, send right (layer 0): waits for rank 0 to come to it",
          "rank 0, 0B3, receive right (layer 0): waits for rank 0, 0F3, send left (layer 0)"));
  EXPECT_THAT(result.messages, SizeIs(2));
}

TEST(Executor, AWaitForSomeoneWhoNeverComesIsSaid) {
  TinyProgram tiny(2);
  const int sum = tiny.buffer("sum", InitialValue::kOne);
  tiny.issue(0, "reduce", {tiny.all_reduce("sum.all_reduce", sum)});
  tiny.issue(1, "nothing", {TinyProgram::zero("sum.zero", sum)});
  const ExecutionResult result = execute(tiny.program());
  EXPECT_EQ(result.outcome, Outcome::kDeadlock);
  EXPECT_THAT(result.deadlock, ElementsAre("rank 0, reduce, sum.all_reduce (layer 0): waits for "
                                           "rank 1, which never comes"));
  EXPECT_THAT(result.messages[1], HasSubstr("had finished"));
}

TEST(Executor, OneRankThatThrowsEndsAllWithAMessage) {
  const Program program = lowered(4, R"({"tp": 2, "pp": 2})");
  ExecuteOptions options;
  options.before_operation = [](int rank, const std::string& operation) {
    if (rank == 2 && operation.find("mlp.activation") != std::string::npos) {
      throw std::runtime_error("cosmic ray");
    }
  };
  const ExecutionResult result = execute(program, options);
  EXPECT_EQ(result.outcome, Outcome::kFailed);
  ASSERT_THAT(result.messages, SizeIs(4));
  EXPECT_THAT(result.messages[2], HasSubstr("mlp.activation (layer 1): cosmic ray"));
  for (const int other : {0, 1, 3}) {
    EXPECT_THAT(result.messages[static_cast<std::size_t>(other)], HasSubstr("rank 2 failed"));
  }
}

TEST(Executor, ARefusedAllocationEndsAllWithAMessage) {
  const Program program = lowered(2, R"({"pp": 2})");
  const Bytes peak = execute(program).peak.at(0);
  ExecuteOptions options;
  options.memory_limit = {peak.count - 1};
  const ExecutionResult result = execute(program, options);
  EXPECT_EQ(result.outcome, Outcome::kFailed);
  EXPECT_THAT(result.messages[0] + result.messages[1], HasSubstr("exceed the limit of"));
  options.memory_limit = {1000};
  EXPECT_THAT(execute(program, options).messages[0], HasSubstr("no memory for"));
}

TEST(Executor, ARankThatStandsStillIsLeftBehind) {
  const Program program = lowered(2, R"({"tp": 2})");
  // Outlives the test's frame: the thread that stands still goes on afterwards.
  const auto gate = std::make_shared<std::promise<void>>();
  const auto opened = std::make_shared<std::shared_future<void>>(gate->get_future().share());
  ExecuteOptions options;
  options.patience = std::chrono::milliseconds(50);
  options.before_operation = [opened](int rank, const std::string& operation) {
    if (rank == 1 && operation.find("attention.core ") != std::string::npos) opened->wait();
  };
  const ExecutionResult result = execute(program, options);
  gate->set_value();
  // Until the thread has let go of the run, it still reads the program: wait for it, or it would
  // outlive that and the process (two stay: this function's and the options').
  while (opened.use_count() > 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(result.outcome, Outcome::kFailed);
  EXPECT_THAT(result.messages[1], HasSubstr("attention.core (layer 0): stands still"));
  EXPECT_THAT(result.messages[0], HasSubstr("rank 1 failed"));
}

TEST(Executor, MembersThatMeetInDifferentCollectivesAreRefused) {
  TinyProgram tiny(2);
  const int sum = tiny.buffer("sum", InitialValue::kOne);
  TemplateOperation maximum = tiny.all_reduce("sum.maximum", sum);
  std::get<Collective>(maximum.operation).reduce = ReduceOperator::kMaximum;
  tiny.issue(0, "reduce", {tiny.all_reduce("sum.all_reduce", sum)});
  tiny.issue(1, "reduce", {maximum});
  const ExecutionResult result = execute(tiny.program());
  EXPECT_EQ(result.outcome, Outcome::kFailed);
  EXPECT_THAT(result.messages[0] + result.messages[1], HasSubstr("different collectives"));
}

TEST(Executor, NumbersDoNotDependOnWhatTheThreadsDo) {
  const Program program = lowered(8, R"({"tp": 2, "pp": 2, "sequence_parallel": true})", "fp32");
  ExecuteOptions options;
  options.steps = 2;
  const ExecutionResult first = execute(program, options);
  for (int run = 0; run < 5; ++run) {
    options.preference = run % 2 == 0 ? Preference::kLastIssued : Preference::kFirstIssued;
    const ExecutionResult again = execute(program, options);
    ASSERT_EQ(again.outcome, Outcome::kFinished);
    for (std::size_t s = 0; s < 2; ++s) {
      EXPECT_EQ(again.steps[s].loss, first.steps[s].loss);
      for (const auto& [name, tensor] : first.steps[s].gradients.tensors()) {
        EXPECT_EQ(again.steps[s].gradients.tensors().at(name).values, tensor.values) << name;
      }
    }
  }
}

TEST(Executor, AnotherSeedIsAnotherModel) {
  const Program program = lowered(1, "{}");
  ExecuteOptions options;
  const double loss = execute(program, options).steps[0].loss;
  options.seed = 2;
  EXPECT_NE(execute(program, options).steps[0].loss, loss);
}

// -- Order
// ------------------------------------------------------------------------------------------

TEST(OrderViolations, ADroppedDependencyIsSeenInTheTimes) {
  // b on a stream of its own comes after a.
  const auto made = [](bool dropped) {
    TinyProgram tiny(1, {"compute", "beside"});
    const int x = tiny.buffer("x", InitialValue::kOne), y = tiny.buffer("y"), z = tiny.buffer("z");
    TemplateOperation a = TinyProgram::copy("a", x, y), b = TinyProgram::copy("b", x, z);
    b.stream = 1;
    if (!dropped) b.after = {0};
    tiny.issue(0, "0F", {a, b}, 0);
    return tiny.program();
  };
  const Program whole = made(false), dropped = made(true);
  ExecuteOptions options;
  options.preference = Preference::kLastIssued;
  const ExecutionPlan plan(whole);
  EXPECT_THAT(order_violations(plan, execute(whole, options).times), IsEmpty());
  EXPECT_THAT(
      order_violations(plan, execute(dropped, options).times),
      ElementsAre(testing::AllOf(HasSubstr("rank 0, 0F0, b (layer 0) started"),
                                 HasSubstr("before rank 0, 0F0, a (layer 0) ended (after)"))));
  EXPECT_EQ(order_demands(plan), 1);
}

TEST(OrderViolations, ADroppedPortOfALoweredPlanIsSeen) {
  const Program whole = lowered(2, R"({"overlap_grad_reduce": true, "bucket_elements": 500})");
  Program dropped = whole;
  int ports = 0;
  for (Template& list : dropped.templates) {
    for (TemplateOperation& operation : list.operations) {
      if (operation.name.starts_with("reduce.")) {
        ports += static_cast<int>(operation.awaits.size());
        operation.awaits.clear();
      }
    }
  }
  ASSERT_GT(ports, 0);
  ExecuteOptions options;
  options.preference = Preference::kLastIssued;
  const ExecutionPlan plan(whole);
  EXPECT_THAT(order_violations(plan, execute(whole, options).times), IsEmpty());
  const ExecutionResult result = execute(dropped, options);
  EXPECT_THAT(order_violations(plan, result.times), testing::Contains(HasSubstr("(port)")));
}

TEST(OrderViolations, MembersOfAMeetingMustOverlap) {
  TinyProgram tiny(2);
  const int sum = tiny.buffer("sum", InitialValue::kOne);
  for (const int rank : {0, 1})
    tiny.issue(rank, "reduce", {tiny.all_reduce("sum.all_reduce", sum)});
  const ExecutionPlan plan(tiny.program());
  EXPECT_THAT(order_violations(plan, {{{{0}, {5}}}, {{{4}, {8}}}}), IsEmpty());
  EXPECT_THAT(order_violations(plan, {{{{0}, {5}}}, {{{6}, {8}}}}),
              ElementsAre(HasSubstr("rank 0, reduce, sum.all_reduce (layer 0) ended before")));
}

// -- Memory
// -----------------------------------------------------------------------------------------

TEST(ExecutionPlan, AllocatesAsTheLifetimesOfTheProgram) {
  for (const char* text :
       {R"({"pp": 2, "recompute": "full"})", R"({"tp": 2, "sequence_parallel": true})",
        R"({"dp_kind": "zero1", "bucket_elements": 500})"}) {
    const Program program = lowered(2, text);
    const ExecutionPlan plan(program);
    for (const RankPlan& rank : plan.ranks) {
      const Lifetimes lives =
          lifetimes(program, program.kinds[static_cast<std::size_t>(rank.kind)]);
      std::vector<BufferInstance> expected = lives.persistent;
      for (const LifetimeEvent& event : lives.allocations) expected.push_back(event.buffer);
      std::vector<BufferInstance> found;
      for (const Allocation& allocation : rank.allocations) found.push_back(allocation.buffer);
      std::sort(expected.begin(), expected.end());
      std::sort(found.begin(), found.end());
      EXPECT_EQ(found, expected) << text;
    }
  }
}

TEST(ExecutionPlan, OneRankReachesThePeakOfTheIssueOrder) {
  for (const char* text : {"{}", R"({"recompute": "full"})", R"({"micro_batch": 2})"}) {
    const Program program = lowered(1, text);
    const ExecutionResult result = execute(program);
    EXPECT_EQ(result.peak.at(0), memory_use(program, program.kinds[0]).peak) << text;
  }
}

}  // namespace
}  // namespace headway
