// The ranks of process_executor_test: each process is one, started by launch_ranks as
//   process_ranks FAULT TOKEN
// with a small plan of four ranks, of which rank 2 has the fault. What a rank comes to is told to
// the launcher; "equal" where all numbers are those of the threads' run.
#include <signal.h>
#include <unistd.h>

#include <stdexcept>
#include <string>

#include "kernels/execute/launch_ranks.hpp"
#include "kernels/execute/process_executor.hpp"
#include "kernels/execute/reference_check.hpp"
#include "sim/program/training_step.hpp"
#include "tests/kernels/execute/executed_plans.hpp"
#include "tests/kernels/execute/tiny_program.hpp"

namespace headway {
namespace {

constexpr int kFaulty = 2;

Program small_plan() {
  return lower(small_job(
      R"({"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
          "intermediate_size": 24, "vocab_size": 32, "hidden_act": "silu", "gated_mlp": true})",
      4,
      R"("precision": "fp32", "sequence_length": 8, "global_batch": 4,
         "plan": {"tp": 2, "pp": 2, "sequence_parallel": true})"));
}

// Ranks 0 and 1 send to each other before either receives.
Program crossed_sends() {
  TinyProgram tiny(4);
  const int left = tiny.buffer("left", InitialValue::kOne);
  const int right = tiny.buffer("right", InitialValue::kOne);
  tiny.issue(0, "0F", {TinyProgram::send("send left", left, 1)}, 3);
  tiny.issue(0, "0B", {TinyProgram::receive("receive right", right, 1)}, 3);
  tiny.issue(1, "1F", {TinyProgram::send("send right", right, -1)}, 3);
  tiny.issue(1, "1B", {TinyProgram::receive("receive left", left, -1)}, 3);
  return tiny.program();
}

bool equal(const GlobalTensors& a, const GlobalTensors& b) {
  if (a.tensors().size() != b.tensors().size()) return false;
  for (const auto& [name, tensor] : a.tensors()) {
    const auto other = b.tensors().find(name);
    if (other == b.tensors().end() || other->second.values != tensor.values) return false;
  }
  return true;
}

// To the bit, and in a legal order.
std::string compared(const Program& program, const ExecutionResult& processes,
                     const ExecutionResult& threads) {
  if (processes.steps.size() != threads.steps.size()) return "other steps";
  for (std::size_t s = 0; s < threads.steps.size(); ++s) {
    if (processes.steps[s].loss != threads.steps[s].loss) return "another loss";
    if (!equal(processes.steps[s].gradients, threads.steps[s].gradients)) return "other gradients";
  }
  if (!equal(processes.parameters, threads.parameters)) return "other parameters";
  const auto violations = order_violations(ExecutionPlan(program), processes.times);
  return violations.empty() ? "equal" : violations.front();
}

void act(const std::string& fault) {
  if (fault == "throw") throw std::runtime_error("cosmic ray");
  if (fault == "hang") {
    for (;;) pause();
  }
  if (fault == "stop") raise(SIGSTOP);
  if (fault == "die") raise(SIGKILL);
}

int run(const std::string& fault) {
  MpiWorld world;
  const int rank = world.rank();
  tell_launcher_when_stopped(rank);
  const Program program = fault == "deadlock" ? crossed_sends() : small_plan();
  ExecuteOptions options;
  options.steps = 2;
  options.warm_up = 1;
  options.patience = std::chrono::milliseconds(200);
  if (fault == "refuse" && rank == kFaulty) options.memory_limit = {1000};
  options.before_operation = [&](int own, const std::string& operation) {
    if (own == kFaulty && operation.find("mlp.activation") != std::string::npos) act(fault);
  };
  const ExecutionResult result = execute_in_processes(
      program, options, world,
      {[rank](const std::string& message) { tell_launcher(rank, message); }, [] { _exit(1); }});
  if (result.outcome == Outcome::kFinished) {
    options.before_operation = nullptr;
    if (rank == 0) tell_launcher(0, compared(program, result, execute(program, options)));
    return 0;
  }
  if (result.outcome == Outcome::kDeadlock) {
    if (rank == 0) tell_launcher(0, result.deadlock.front());
    return 0;
  }
  _exit(1);
}

}  // namespace
}  // namespace headway

int main(int count, char** values) { return count < 2 ? 2 : headway::run(values[1]); }
