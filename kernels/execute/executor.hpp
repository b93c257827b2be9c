// Runs a Program for real on CPU: its ranks are threads of this process, each of which runs
// whatever its streams allow, meets others in collectives and messages, and records when every
// operation began and ended. Numbers depend on the Program and the seed alone (reductions add in
// rank order), whatever the threads do. Where every rank waits the cycle of waits is found at once;
// where a rank throws, is refused memory or stands still, every rank ends with a message.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "kernels/cpu/operators.hpp"
#include "kernels/execute/global_tensors.hpp"
#include "kernels/execute/happens_before.hpp"
#include "kernels/execute/routing_record.hpp"
#include "sim/engine/timeline.hpp"
#include "sim/program/program.hpp"

namespace headway {

// Which of several operations that could start a rank takes. Any choice is legal; the second finds
// what a Program forgot to order.
enum class Preference : std::uint8_t { kFirstIssued, kLastIssued };

struct ExecuteOptions {
  int steps = 1;
  int warm_up = 0;  // steps before those, of which nothing is kept
  std::uint64_t seed = 1;
  OptimizerConstants optimizer;
  std::optional<double> learning_rate;  // else the Program's
  Preference preference = Preference::kFirstIssued;
  Bytes memory_limit;  // per rank; 0: none
  // Gradients and parameters are kept for a check, and memory that nobody has written is filled
  // with NaN. Costs time, so that a run which is only timed goes without.
  bool checked = true;
  // A run in which no operation ends for this long is given up.
  std::chrono::milliseconds patience{60000};
  std::optional<SwappedOperations> swapped;  // a fault on purpose
  // Which experts the tokens choose, as another run has recorded it; nullptr: as the router says.
  // It outlives the run.
  const RoutingRecord* routing = nullptr;
  // Called by the rank's thread before each operation, with its words: for tests of faults.
  std::function<void(int rank, const std::string& operation)> before_operation;
};

enum class Outcome : std::uint8_t { kFinished, kDeadlock, kFailed };

// One training step's numbers.
struct ExecutedStep {
  double loss = 0;  // mean over the tokens of the global batch, from every token's own
  // What the Program itself makes of them, by rank that has one: the loss of the last stage, the
  // norm of the whole gradient before clipping.
  std::vector<double> own_losses, own_norms;
  GlobalTensors gradients;  // whole, before clipping
  Time duration;
};

struct ExecutionResult {
  Outcome outcome = Outcome::kFinished;
  // By rank, why it ended; empty where all finished.
  std::vector<std::string> messages;
  // The cycle of waits, one a line, each waiting for the next.
  std::vector<std::string> deadlock;

  std::vector<ExecutedStep> steps;
  RoutingRecord routing;     // of all steps
  GlobalTensors parameters;  // after the last step
  // Of the step of median duration (of two the shorter), as ExecutionPlan lists operations.
  std::vector<std::vector<MeasuredTimes>> times;
  Timeline timeline;        // likewise; devices are ranks, instances count issues over all ranks
  std::vector<Bytes> peak;  // by rank, as the Program declares sizes
  // By process: what its resident memory grew to, from before the first allocation of the Program.
  std::vector<Bytes> resident;
};

// Sets the durations of `result.steps`, drops the first `warm_up`, and keeps the times of the step
// of median duration. `times`: by measured step, rank and operation.
void set_times(const ExecutionPlan& plan, int warm_up,
               std::vector<std::vector<std::vector<MeasuredTimes>>> times, ExecutionResult& result);

// REQUIRES: check(program, ...) passes.
ExecutionResult execute(const Program& program, const ExecuteOptions& options = {});

}  // namespace headway
