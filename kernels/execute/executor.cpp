#include "kernels/execute/executor.hpp"

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

#include "kernels/cpu/collectives.hpp"
#include "kernels/execute/measured_timeline.hpp"
#include "kernels/execute/operation_placement.hpp"
#include "kernels/execute/rank_memory.hpp"
#include "kernels/execute/wait_for_graph.hpp"

namespace headway {
namespace {

using Clock = std::chrono::steady_clock;

// How long a rank that was asked to end may take before it is left behind.
constexpr std::chrono::milliseconds kGrace{1000};

const Kernel* kernel_of(const PlannedOperation& planned) {
  return std::get_if<Kernel>(&planned.operation->operation);
}

// The positions in an operation's reads of whole, reduced gradients: what the optimizer's kernels
// read. Empty for all other operations.
std::pair<std::size_t, std::size_t> gradients_read(const PlannedOperation& planned) {
  const Kernel* kernel = kernel_of(planned);
  if (kernel == nullptr) return {0, 0};
  const std::size_t reads = planned.reads.size(), writes = planned.writes.size();
  switch (kernel->kind) {
    case KernelKind::kSquaredNorm:
      return {0, reads - 1};
    case KernelKind::kClip:
      return {1, reads};
    case KernelKind::kSgd:
      return {writes, reads};
    case KernelKind::kAdam:
      return {writes - 2, reads - 2};
    default:
      return {0, 0};
  }
}

// How many of an operation's writes are parameters, or masters, that it has updated.
std::size_t parameters_written(const PlannedOperation& planned) {
  const Kernel* kernel = kernel_of(planned);
  if (kernel == nullptr) return 0;
  if (kernel->kind == KernelKind::kSgd) return planned.writes.size();
  return kernel->kind == KernelKind::kAdam ? planned.writes.size() - 2 : 0;
}

// What one rank has and has done.
struct RankState {
  std::unique_ptr<RankMemory> memory;
  std::vector<char> begun, ended;  // by operation
  std::vector<std::size_t> heads;  // by stream: the first operation that has not ended
  std::size_t left = 0;            // operations that have not ended
  std::vector<MeasuredTimes> times;
  std::int64_t idle_since = -1;  // the progress at which it found nothing to do
  int running = -1;              // an operation outside the lock
  std::condition_variable wake;
  std::vector<int> released;  // uses of allocations that others ended; its own thread frees them
  // Written by the rank's own thread only.
  std::map<int, double> losses;  // sum over the tokens of a micro-batch, by micro-batch
  int loss_total = -1;           // the allocation that the Program sums them in
  std::optional<double> norm;    // as the clipping reads it
  // By allocation: gradients as the optimizer first reads them, parameters (or their master copies)
  // as it leaves them.
  std::map<int, std::vector<double>> gradients, updated;
};

// Everything the ranks share. Threads that had to be left behind still hold it.
class Run : public std::enable_shared_from_this<Run> {
 public:
  Run(const Program& program, const ExecuteOptions& options)
      : program_(program),
        options_(options),
        plan_(program_, options.swapped),
        ranks_(plan_.ranks.size()) {}

  ExecutionResult execute() {
    result_.messages.assign(ranks_.size(), "");
    in_every_rank([this](int rank) {
      state(rank).memory =
          std::make_unique<RankMemory>(plan_, rank, options_.seed, options_.memory_limit);
    });
    for (int step = 0; step < options_.steps && result_.outcome == Outcome::kFinished; ++step) {
      run_step(step);
    }
    if (result_.outcome == Outcome::kFinished) {
      result_.messages.clear();
      collect_parameters();
      for (const RankState& rank : ranks_) result_.times.push_back(rank.times);
      result_.timeline = measured_timeline(plan_, result_.times);
      return std::move(result_);
    }
    // A rank that was left behind may yet come back and say so.
    const std::lock_guard lock(mutex_);
    return result_;
  }

 private:
  RankState& state(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  const RankPlan& plan(int rank) const { return plan_.ranks[static_cast<std::size_t>(rank)]; }

  // -- Threads --------------------------------------------------------------------------------

  // Runs `body` in a thread per rank, and waits until all have ended, or are given up.
  template <typename Body>
  void in_every_rank(Body body) {
    std::vector<std::thread> threads;
    threads.reserve(ranks_.size());
    finished_ = 0;
    for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) {
      threads.emplace_back(
          [self = shared_from_this(), body, rank] { self->in_rank(rank, [&] { body(rank); }); });
    }
    const bool all = supervise();
    for (std::thread& thread : threads) {
      if (all) {
        thread.join();
      } else {
        thread.detach();
      }
    }
  }

  template <typename Body>
  void in_rank(int rank, Body body) {
    std::string failure;
    try {
      body();
    } catch (const std::exception& error) {
      failure = error.what();
    } catch (...) {
      failure = "an exception of unknown type";
    }
    const std::lock_guard lock(mutex_);
    if (!failure.empty()) fail(rank, where(rank) + failure);
    state(rank).running = -1;
    ++finished_;
    supervisor_.notify_all();
  }

  // Returns false where some rank did not end.
  bool supervise() {
    std::unique_lock lock(mutex_);
    const auto all = [this] { return finished_ == ranks_.size(); };
    std::int64_t seen = progress_;
    while (!all() && !stop_) {
      supervisor_.wait_for(lock, options_.patience, [&] { return all() || stop_; });
      if (all() || stop_) break;
      if (progress_ == seen) give_up();
      seen = progress_;
    }
    if (supervisor_.wait_for(lock, kGrace, all)) return true;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      if (ranks_[r].running >= 0 && result_.messages[r].empty()) {
        result_.messages[r] = where(static_cast<int>(r)) + "stands still and was left behind";
      }
    }
    return false;
  }

  void give_up() {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      if (ranks_[r].running < 0) continue;
      fail(static_cast<int>(r), where(static_cast<int>(r)) + "stands still: nothing ended for " +
                                    std::to_string(options_.patience.count()) + " ms");
    }
    if (!stop_) fail(0, "nothing ended for " + std::to_string(options_.patience.count()) + " ms");
  }

  // REQUIRES: the lock. The first failure asks every rank to end.
  void fail(int rank, std::string message) {
    auto& own = result_.messages[static_cast<std::size_t>(rank)];
    if (own.empty()) own = std::move(message);
    if (stop_) return;
    stop_ = true;
    first_failure_ = rank;
    result_.outcome = Outcome::kFailed;
    wake_all();
    supervisor_.notify_all();
  }

  void wake_all() {
    for (RankState& rank : ranks_) rank.wake.notify_all();
  }

  std::string where(int rank) const {
    const int running = ranks_[static_cast<std::size_t>(rank)].running;
    return running >= 0 ? plan_.words(rank, running) + ": " : "rank " + std::to_string(rank) + ": ";
  }

  // -- A step ---------------------------------------------------------------------------------

  void run_step(int step) {
    for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) begin_step(rank, step);
    arrived_.assign(plan_.meetings.size(), 0);
    step_ = step;
    start_ = Clock::now();
    in_every_rank([this](int rank) { run_rank(rank); });
    if (result_.outcome != Outcome::kFinished) return;
    ExecutedStep executed;
    collect_numbers(executed);
    for (const RankState& rank : ranks_) {
      for (const MeasuredTimes& times : rank.times) {
        executed.duration = std::max(executed.duration, times.end);
      }
    }
    result_.steps.push_back(std::move(executed));
    result_.peak.clear();
    for (const RankState& rank : ranks_) result_.peak.push_back(rank.memory->peak());
  }

  void begin_step(int rank, int step) {
    RankState& own = state(rank);
    const std::size_t operations = plan(rank).operations.size();
    own.memory->begin_step(step);
    own.begun.assign(operations, 0);
    own.ended.assign(operations, 0);
    own.times.assign(operations, {});
    own.heads.assign(plan(rank).streams.size(), 0);
    own.left = operations;
    own.idle_since = -1;
    own.released.clear();
    own.losses.clear();
    own.loss_total = -1;
    own.norm.reset();
    own.gradients.clear();
    own.updated.clear();
  }

  void run_rank(int rank) {
    RankState& own = state(rank);
    std::unique_lock lock(mutex_);
    while (own.left > 0) {
      if (stop_) {
        auto& message = result_.messages[static_cast<std::size_t>(rank)];
        if (message.empty()) {
          message = "rank " + std::to_string(rank) + " was stopped: rank " +
                    std::to_string(first_failure_) + " failed";
        }
        return;
      }
      release(own);
      const int next = startable(rank);
      if (next < 0) {
        rest(rank, lock);
        continue;
      }
      start(rank, next, lock);
    }
    release(own);
    // Others may now be the only ones left, and wait for ever.
    ++progress_;
    wake_all();
  }

  // Memory is made and freed by its rank's own thread alone.
  static void release(RankState& own) {
    for (const int allocation : own.released) own.memory->ended(allocation);
    own.released.clear();
  }

  // The operation to start now, or -1.
  int startable(int rank) const {
    const RankState& own = ranks_[static_cast<std::size_t>(rank)];
    const RankPlan& mine = plan(rank);
    int best = -1;
    for (std::size_t s = 0; s < mine.streams.size(); ++s) {
      if (own.heads[s] == mine.streams[s].size()) continue;
      const int head = mine.streams[s][own.heads[s]];
      if (own.begun[static_cast<std::size_t>(head)] != 0) continue;
      const auto& waits = mine.operations[static_cast<std::size_t>(head)].waits;
      const bool ready = std::all_of(waits.begin(), waits.end(), [&](const Dependency& wait) {
        return own.ended[static_cast<std::size_t>(wait.operation)] != 0;
      });
      if (!ready) continue;
      const bool better =
          options_.preference == Preference::kFirstIssued ? head < best : head > best;
      if (best < 0 || better) best = head;
    }
    return best;
  }

  // Nothing to do until something ends elsewhere; if that can never be, says so.
  void rest(int rank, std::unique_lock<std::mutex>& lock) {
    RankState& own = state(rank);
    own.idle_since = progress_;
    const bool stuck = std::all_of(ranks_.begin(), ranks_.end(), [&](const RankState& other) {
      return other.left == 0 || (other.running < 0 && other.idle_since == progress_);
    });
    if (stuck) {
      result_.outcome = Outcome::kDeadlock;
      std::vector<std::vector<char>> begun, ended;
      for (const RankState& other : ranks_) {
        begun.push_back(other.begun);
        ended.push_back(other.ended);
      }
      result_.deadlock = wait_cycle(plan_, begun, ended);
      for (int other = 0; other < static_cast<int>(ranks_.size()); ++other) {
        result_.messages[static_cast<std::size_t>(other)] =
            waiting_words(plan_, begun, ended, other);
      }
      stop_ = true;
      wake_all();
      supervisor_.notify_all();
      return;
    }
    // Whoever rested earlier must look again before all can be said to be stuck.
    const bool all_rest = std::all_of(ranks_.begin(), ranks_.end(), [](const RankState& other) {
      return other.left == 0 || other.running < 0;
    });
    if (all_rest) wake_all();
    own.wake.wait(lock, [&] { return stop_ || progress_ != own.idle_since; });
  }

  void start(int rank, int operation, std::unique_lock<std::mutex>& lock) {
    RankState& own = state(rank);
    const PlannedOperation& planned = plan(rank).operations[static_cast<std::size_t>(operation)];
    own.begun[static_cast<std::size_t>(operation)] = 1;
    own.running = operation;
    lock.unlock();
    if (options_.before_operation) options_.before_operation(rank, plan_.words(rank, operation));
    for (const auto* list : {&planned.reads, &planned.writes}) {
      for (const int allocation : *list) own.memory->use(allocation);
    }
    const MeasuredTimes times =
        planned.meeting < 0 ? compute_alone(rank, planned) : MeasuredTimes{};
    lock.lock();
    own.running = -1;
    if (planned.meeting < 0) {
      end(rank, operation, times);
    } else {
      arrive(rank, operation, planned.meeting, lock);
    }
  }

  // REQUIRES: the lock.
  void end(int rank, int operation, MeasuredTimes times) {
    RankState& own = state(rank);
    const PlannedOperation& planned = plan(rank).operations[static_cast<std::size_t>(operation)];
    own.times[static_cast<std::size_t>(operation)] = times;
    own.ended[static_cast<std::size_t>(operation)] = 1;
    --own.left;
    ++own.heads[static_cast<std::size_t>(planned.operation->stream)];
    std::set<int> touched(planned.reads.begin(), planned.reads.end());
    touched.insert(planned.writes.begin(), planned.writes.end());
    own.released.insert(own.released.end(), touched.begin(), touched.end());
    ++progress_;
  }

  // The last member to come does the work for all.
  void arrive(int rank, int operation, int index, std::unique_lock<std::mutex>& lock) {
    ++progress_;
    const Meeting& meeting = plan_.meetings[static_cast<std::size_t>(index)];
    if (++arrived_[static_cast<std::size_t>(index)] < static_cast<int>(meeting.ranks.size()))
      return;
    state(rank).running = operation;
    lock.unlock();
    MeasuredTimes times;
    times.start = now();
    meet(meeting);
    times.end = now();
    lock.lock();
    state(rank).running = -1;
    for (const Meeting::Member& member : meeting.members) {
      end(member.rank, member.operation, times);
      state(member.rank).wake.notify_all();
    }
  }

  void meet(const Meeting& meeting) {
    std::vector<CollectiveMember> members;
    const TemplateOperation* first = nullptr;
    for (const Meeting::Member& member : meeting.members) {
      const PlannedOperation& planned =
          plan(member.rank).operations[static_cast<std::size_t>(member.operation)];
      const RankMemory& memory = *state(member.rank).memory;
      CollectiveMember& operands = members.emplace_back();
      for (const int read : planned.reads) operands.reads.push_back(memory.operand(read));
      for (const int write : planned.writes) operands.writes.push_back(memory.operand(write));
      if (first == nullptr) first = planned.operation;
      require_same(*first, *planned.operation);
    }
    communicate(std::get<Collective>(first->operation), members);
  }

  static void require_same(const TemplateOperation& first, const TemplateOperation& other) {
    Collective a = std::get<Collective>(first.operation), b = std::get<Collective>(other.operation);
    if (a.kind == CollectiveKind::kSend && b.kind == CollectiveKind::kReceive) b.kind = a.kind;
    if (a == b) return;
    throw std::invalid_argument(
        "members of one group meet in different collectives: " + first.name + " and " + other.name);
  }

  MeasuredTimes compute_alone(int rank, const PlannedOperation& planned) {
    MeasuredTimes times;
    note_gradients(rank, planned);
    times.start = now();
    if (std::holds_alternative<HostWork>(planned.operation->operation)) {
      for (const int write : planned.writes) state(rank).memory->deliver(write);
    } else {
      const RankMemory& memory = *state(rank).memory;
      std::vector<Operand> reads, writes;
      for (const int read : planned.reads) reads.push_back(memory.operand(read));
      for (const int write : planned.writes) writes.push_back(memory.operand(write));
      compute(planned.operation->operation, reads, writes,
              placement_of(program_, rank, planned, step_, options_));
    }
    times.end = now();
    note_loss(rank, planned);
    for (std::size_t i = 0; i < parameters_written(planned); ++i) {
      state(rank).updated[planned.writes[i]] = state(rank).memory->values(planned.writes[i]);
    }
    return times;
  }

  Time now() const {
    constexpr std::int64_t kPicosecondsPerNanosecond = 1000;
    const auto elapsed =
        std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start_).count();
    return {elapsed * kPicosecondsPerNanosecond};
  }

  // -- Numbers --------------------------------------------------------------------------------

  void note_gradients(int rank, const PlannedOperation& planned) {
    RankState& own = state(rank);
    const Kernel* kernel = kernel_of(planned);
    if (kernel != nullptr && kernel->kind == KernelKind::kClip) {
      own.norm = std::sqrt(own.memory->values(planned.reads.front()).front());
    }
    const auto [first, last] = gradients_read(planned);
    for (std::size_t i = first; i < last; ++i) {
      const int allocation = planned.reads[i];
      if (!own.gradients.contains(allocation)) {
        own.gradients[allocation] = own.memory->values(allocation);
      }
    }
  }

  void note_loss(int rank, const PlannedOperation& planned) {
    const Kernel* kernel = kernel_of(planned);
    if (kernel == nullptr || kernel->kind != KernelKind::kLossSum) return;
    double sum = 0;
    for (const double loss : state(rank).memory->values(planned.reads.front())) sum += loss;
    state(rank).losses[planned.micro_batch] += sum;
    state(rank).loss_total = planned.writes.front();
  }

  // The loss is summed once for each part of the data: ranks with the same coordinate see the same.
  void collect_numbers(ExecutedStep& executed) {
    std::map<std::pair<int, int>, double> losses;
    for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) {
      const int coordinate = program_.grid.coordinate(rank, program_.data_axis);
      for (const auto& [micro_batch, loss] : state(rank).losses) {
        losses[{coordinate, micro_batch}] = loss;
      }
      for (const auto& [allocation, values] : state(rank).gradients) {
        const auto& planned = plan(rank).allocations[static_cast<std::size_t>(allocation)];
        executed.gradients.add(fragments(program_, rank, planned.buffer), values);
      }
      const RankState& own = state(rank);
      if (own.norm) executed.own_norms.push_back(*own.norm);
      if (own.loss_total >= 0 && own.memory->is_there(own.loss_total)) {
        executed.own_losses.push_back(own.memory->values(own.loss_total).front());
      }
    }
    for (const auto& [where, loss] : losses) executed.loss += loss;
    executed.loss /=
        static_cast<double>(program_.grid.axis_size(program_.data_axis) * program_.micro_batches *
                            program_.sequences_per_micro_batch * program_.sequence_length);
  }

  void collect_parameters() {
    for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) {
      for (const auto& [allocation, values] : state(rank).updated) {
        const auto& planned = plan(rank).allocations[static_cast<std::size_t>(allocation)];
        result_.parameters.add(fragments(program_, rank, planned.buffer), values);
      }
    }
  }

  const Program program_;
  const ExecuteOptions options_;
  const ExecutionPlan plan_;
  std::vector<RankState> ranks_;
  ExecutionResult result_;

  std::mutex mutex_;
  std::condition_variable supervisor_;
  std::size_t finished_ = 0;
  bool stop_ = false;
  int first_failure_ = -1;
  std::int64_t progress_ = 0;  // grows whenever something may have become possible
  std::vector<int> arrived_;   // by meeting
  int step_ = 0;
  Clock::time_point start_;
};

}  // namespace

ExecutionResult execute(const Program& program, const ExecuteOptions& options) {
  return std::make_shared<Run>(program, options)->execute();
}

}  // namespace headway
