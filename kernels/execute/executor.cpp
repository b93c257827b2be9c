#include "kernels/execute/executor.hpp"

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "kernels/execute/measured_timeline.hpp"
#include "kernels/execute/rank_run.hpp"
#include "kernels/execute/resident_memory.hpp"
#include "kernels/execute/wait_for_graph.hpp"

namespace headway {
namespace {

// How long a rank that was asked to end may take before it is left behind.
constexpr std::chrono::milliseconds kGrace{1000};

// A rank, and what others may know of it.
struct RankState {
  std::unique_ptr<RankRun> run;
  std::int64_t idle_since = -1;  // the progress at which it found nothing to do
  int running = -1;              // an operation outside the lock
  std::condition_variable wake;
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
    const ResidentMemory memory;
    in_every_rank(
        [this](int rank) { state(rank).run = std::make_unique<RankRun>(plan_, rank, options_); });
    std::vector<std::vector<std::vector<MeasuredTimes>>> times;  // by measured step
    std::vector<RankNumbers> numbers;
    for (int step = 0; step < options_.warm_up + options_.steps; ++step) {
      if (result_.outcome != Outcome::kFinished || !run_step(step)) break;
      numbers.clear();
      for (const RankState& rank : ranks_) numbers.push_back(rank.run->numbers());
      result_.steps.push_back(executed_step(plan_, numbers));
      if (step < options_.warm_up) continue;
      auto& all = times.emplace_back();
      for (const RankState& rank : ranks_) all.push_back(rank.run->times());
    }
    if (result_.outcome == Outcome::kFinished) {
      result_.messages.clear();
      result_.parameters = updated_parameters(plan_, numbers);
      for (const RankState& rank : ranks_) {
        result_.peak.push_back(rank.run->peak());
        result_.routing.add(rank.run->routing());
      }
      result_.resident = {memory.grown()};
      set_times(plan_, options_.warm_up, std::move(times), result_);
      return std::move(result_);
    }
    // A rank that was left behind may yet come back and say so.
    const std::lock_guard lock(mutex_);
    return result_;
  }

 private:
  RankState& state(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }

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

  // Returns whether all ranks finished it.
  bool run_step(int step) {
    arrived_.assign(plan_.meetings.size(), 0);
    start_ = ExecutionClock::now();
    for (RankState& rank : ranks_) {
      rank.run->begin_step(step, start_);
      rank.idle_since = -1;
    }
    in_every_rank([this](int rank) { run_rank(rank); });
    return result_.outcome == Outcome::kFinished;
  }

  void run_rank(int rank) {
    RankRun& own = *state(rank).run;
    std::unique_lock lock(mutex_);
    while (!own.done()) {
      if (stop_) {
        auto& message = result_.messages[static_cast<std::size_t>(rank)];
        if (message.empty()) {
          message = "rank " + std::to_string(rank) + " was stopped: rank " +
                    std::to_string(first_failure_) + " failed";
        }
        return;
      }
      own.release();
      const int next = own.startable();
      if (next < 0) {
        rest(rank, lock);
        continue;
      }
      start(rank, next, lock);
    }
    own.release();
    // Others may now be the only ones left, and wait for ever.
    ++progress_;
    wake_all();
  }

  // Nothing to do until something ends elsewhere; if that can never be, says so.
  void rest(int rank, std::unique_lock<std::mutex>& lock) {
    RankState& own = state(rank);
    own.idle_since = progress_;
    const bool stuck = std::all_of(ranks_.begin(), ranks_.end(), [&](const RankState& other) {
      return other.run->done() || (other.running < 0 && other.idle_since == progress_);
    });
    if (stuck) {
      result_.outcome = Outcome::kDeadlock;
      std::vector<std::vector<char>> begun, ended;
      for (const RankState& other : ranks_) {
        begun.push_back(other.run->begun());
        ended.push_back(other.run->ended());
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
      return other.run->done() || other.running < 0;
    });
    if (all_rest) wake_all();
    own.wake.wait(lock, [&] { return stop_ || progress_ != own.idle_since; });
  }

  void start(int rank, int operation, std::unique_lock<std::mutex>& lock) {
    RankState& own = state(rank);
    const int meeting = own.run->planned(operation).meeting;
    own.run->begin(operation);
    own.running = operation;
    lock.unlock();
    if (options_.before_operation) options_.before_operation(rank, plan_.words(rank, operation));
    own.run->make_operands(operation);
    const MeasuredTimes times = meeting < 0 ? own.run->compute_alone(operation) : MeasuredTimes{};
    lock.lock();
    own.running = -1;
    if (meeting < 0) {
      end(rank, operation, times);
    } else {
      arrive(rank, operation, meeting, lock);
    }
  }

  // REQUIRES: the lock.
  void end(int rank, int operation, MeasuredTimes times) {
    state(rank).run->end(operation, times);
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
    times.start = state(rank).run->now();
    meet(meeting);
    times.end = state(rank).run->now();
    lock.lock();
    state(rank).running = -1;
    for (const Meeting::Member& member : meeting.members) {
      end(member.rank, member.operation, times);
      state(member.rank).wake.notify_all();
    }
  }

  void meet(const Meeting& meeting) {
    require_same_collective(plan_, meeting);
    std::vector<CollectiveMember> members;
    for (const Meeting::Member& member : meeting.members) {
      members.push_back(state(member.rank).run->operands(member.operation));
    }
    const Meeting::Member& first = meeting.members.front();
    const PlannedOperation& planned = state(first.rank).run->planned(first.operation);
    communicate(std::get<Collective>(planned.operation->operation), members);
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
  ExecutionClock::time_point start_;
};

}  // namespace

void set_times(const ExecutionPlan& plan, int warm_up,
               std::vector<std::vector<std::vector<MeasuredTimes>>> times,
               ExecutionResult& result) {
  std::vector<std::pair<Time, std::size_t>> order;
  for (std::size_t s = 0; s < times.size(); ++s) {
    Time& duration = result.steps[static_cast<std::size_t>(warm_up) + s].duration;
    for (const std::vector<MeasuredTimes>& rank : times[s]) {
      for (const MeasuredTimes& span : rank) duration = std::max(duration, span.end);
    }
    order.emplace_back(duration, s);
  }
  result.steps.erase(result.steps.begin(), result.steps.begin() + warm_up);
  std::sort(order.begin(), order.end());
  result.times = std::move(times[order[(order.size() - 1) / 2].second]);
  result.timeline = measured_timeline(plan, result.times);
}

ExecutionResult execute(const Program& program, const ExecuteOptions& options) {
  return std::make_shared<Run>(program, options)->execute();
}

}  // namespace headway
