// One rank of an executed plan: its memory, which of its operations may start, what each computes,
// and the numbers that a step leaves. How ranks meet and wait for each other is its owner's
// business: threads (executor) or processes (process_executor). Not thread-safe.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/cpu/collectives.hpp"
#include "kernels/execute/executor.hpp"
#include "kernels/execute/rank_memory.hpp"

namespace headway {

using ExecutionClock = std::chrono::steady_clock;

// What a rank's part of a step came to.
struct RankNumbers {
  std::map<int, double> losses;      // sum over the tokens of a micro-batch, by micro-batch
  std::optional<double> loss_total;  // as the Program sums them
  std::optional<double> norm;        // of the whole gradient, as the clipping reads it
  // By allocation: gradients as the optimizer first reads them, parameters (or their master copies)
  // as it leaves them. Only where ExecuteOptions::checked.
  std::map<int, std::vector<double>> gradients, updated;
};

class RankRun {
 public:
  // `plan` and `options` outlive it. Throws AllocationRefused.
  RankRun(const ExecutionPlan& plan, int rank, const ExecuteOptions& options);

  // Times are counted from `start`.
  void begin_step(int step, ExecutionClock::time_point start);
  bool done() const { return left_ == 0; }
  // The operation to start now, or -1.
  int startable() const;
  // Marks it as begun; its owner then makes its operands and computes it or meets others.
  void begin(int operation) { begun_[static_cast<std::size_t>(operation)] = 1; }
  void make_operands(int operation);
  // Runs an operation that no other rank takes part in.
  MeasuredTimes compute_alone(int operation);
  // The operands of one that others take part in.
  CollectiveMember operands(int operation) const;
  // Marks it as ended. What it used last is freed by the next release(), which only the rank's own
  // thread may call.
  void end(int operation, MeasuredTimes times);
  void release();
  // The time now, from the start of the step.
  Time now() const;

  const RankPlan& plan() const { return plan_.ranks[static_cast<std::size_t>(rank_)]; }
  const PlannedOperation& planned(int operation) const {
    return plan().operations[static_cast<std::size_t>(operation)];
  }
  const std::vector<char>& begun() const { return begun_; }
  const std::vector<char>& ended() const { return ended_; }
  const std::vector<MeasuredTimes>& times() const { return times_; }
  Bytes peak() const { return memory_.peak(); }
  // After the step.
  RankNumbers numbers() const;
  // Which experts its tokens have chosen, in all steps.
  const RoutingRecord& routing() const { return routing_; }

 private:
  void note_before(const PlannedOperation& planned);
  void note_after(const PlannedOperation& planned);
  void compute(const PlannedOperation& planned, const CollectiveMember& own);

  const ExecutionPlan& plan_;
  int rank_;
  const ExecuteOptions& options_;
  RankMemory memory_;
  int step_ = 0;
  ExecutionClock::time_point start_;
  std::vector<char> begun_, ended_;  // by operation
  std::vector<std::size_t> heads_;   // by stream: the first operation that has not ended
  std::size_t left_ = 0;             // operations that have not ended
  std::vector<MeasuredTimes> times_;
  std::vector<int> released_;  // uses of allocations that have ended
  RankNumbers numbers_;
  RoutingRecord routing_;
  std::map<int, int> updates_;  // count_update()
  int loss_total_ = -1;         // the allocation that the Program sums losses in
};

// The kernel of an operation that is one, else nullptr.
const Kernel* kernel_of(const PlannedOperation& planned);
// The positions in an operation's reads of whole, reduced gradients: what the optimizer's kernels
// read. Empty for all other operations, and, where every micro-batch has an update of its own, for
// all but the last one's, which is the step's.
std::pair<std::size_t, std::size_t> gradients_read(const Program& program,
                                                   const PlannedOperation& planned);
// Where every micro-batch has an update of its own, AdamW's step is the number of its updates.
// `updates`: of what each update writes first, in all steps.
void count_update(const PlannedOperation& planned, std::map<int, int>& updates,
                  Placement& placement);
// How many of an operation's writes are parameters, or masters, that it has updated.
std::size_t parameters_written(const PlannedOperation& planned);
// A kernel over rows that depend on the routing works on all there is room for.
Operation with_held_rows(const Program& program, const TemplateOperation& planned,
                         const CollectiveMember& own);
// Of an operation by which tokens choose their experts: the tokens, counted over all steps; empty
// for all others.
std::vector<std::int64_t> choosing_tokens(const PlannedOperation& planned,
                                          const Placement& placement);

// A step's numbers from those of all ranks, in order: each part of the data counts once.
ExecutedStep executed_step(const ExecutionPlan& plan, std::span<const RankNumbers> ranks);
// The model's tensors as the optimizers left them.
GlobalTensors updated_parameters(const ExecutionPlan& plan, std::span<const RankNumbers> ranks);

// Throws std::invalid_argument where members of a meeting take part in different collectives.
void require_same_collective(const ExecutionPlan& plan, const Meeting& meeting);

}  // namespace headway
