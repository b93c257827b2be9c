#include "kernels/execute/device_executor.hpp"

#include <algorithm>
#include <set>

#include "kernels/cuda/cuda_error.hpp"
#include "kernels/cuda/device_operators.hpp"
#include "kernels/execute/device_rank.hpp"
#include "kernels/execute/measured_timeline.hpp"
#include "kernels/execute/wait_for_graph.hpp"

namespace headway {
namespace {

std::int64_t free_bytes() {
  std::size_t free = 0, total = 0;
  checked(cudaMemGetInfo(&free, &total));
  return static_cast<std::int64_t>(free);
}

class DeviceRun {
 public:
  DeviceRun(const Program& program, const ExecuteOptions& options)
      : options_(options),
        plan_(program, options.swapped),
        partition_(static_cast<int>(plan_.ranks.size())),
        start_(true) {}

  DeviceExecution execute() {
    DeviceExecution execution{{}, partition_.multiprocessors(), partition_.shared_why()};
    ExecutionResult& result = execution.result;
    const std::int64_t free_before = free_bytes();
    try {
      run_steps(result);
    } catch (const std::exception& failure) {
      result.outcome = Outcome::kFailed;
      result.messages.assign(plan_.ranks.size(), "");
      auto& message = result.messages[static_cast<std::size_t>(current_rank_)];
      message = current_operation_ < 0
                    ? "rank " + std::to_string(current_rank_) + ": " + failure.what()
                    : plan_.words(current_rank_, current_operation_) + ": " + failure.what();
    }
    if (result.outcome != Outcome::kFinished) return execution;
    result.resident = {{free_before - free_bytes()}};
    for (const auto& rank : ranks_) result.peak.push_back(rank->peak());
    return execution;
  }

 private:
  void run_steps(ExecutionResult& result) {
    for (int rank = 0; rank < static_cast<int>(plan_.ranks.size()); ++rank) {
      current_rank_ = rank;
      ranks_.push_back(std::make_unique<DeviceRank>(plan_, rank, options_, library_, partition_));
    }
    std::vector<std::vector<std::vector<MeasuredTimes>>> times;  // by timed step
    const int measured = options_.warm_up + options_.steps;
    for (int step = 0; step < measured + (options_.checked ? 0 : 1); ++step) {
      const bool timed = options_.checked || step == measured;
      const Time duration = run_step(step, timed, result);
      if (result.outcome != Outcome::kFinished) return;
      if (timed) times.push_back(times_of_step());
      if (step == measured) break;
      std::vector<RankNumbers> numbers;
      for (const auto& rank : ranks_) numbers.push_back(rank->numbers());
      result.steps.push_back(executed_step(plan_, numbers));
      result.steps.back().duration = duration;
      result.parameters = updated_parameters(plan_, numbers);
    }
    if (options_.checked) {
      times.erase(times.begin(), times.begin() + options_.warm_up);
      return set_times(plan_, options_.warm_up, std::move(times), result);
    }
    result.steps.erase(result.steps.begin(), result.steps.begin() + options_.warm_up);
    result.times = std::move(times.front());
    result.timeline = measured_timeline(plan_, result.times);
  }

  // From an idle device to an idle device.
  Time run_step(int step, bool timed, ExecutionResult& result) {
    arrived_.assign(plan_.meetings.size(), 0);
    for (const auto& rank : ranks_) rank->begin_step(step, timed);
    if (timed) {
      ranks_.front()->stream(0).record(start_);
      ranks_.front()->stream(0).synchronise();
    }
    const auto begin = ExecutionClock::now();
    if (!issue_all()) {
      tell_deadlock(result);
      return {};
    }
    for (const auto& rank : ranks_) rank->synchronise();
    const auto elapsed = ExecutionClock::now() - begin;
    return Time::from_seconds(std::chrono::duration<double>(elapsed).count());
  }

  // Ranks take turns, an operation each. Returns false where none can go on.
  bool issue_all() {
    for (bool all_done = false; !all_done;) {
      bool progress = false;
      all_done = true;
      for (std::size_t r = 0; r < ranks_.size(); ++r) {
        if (ranks_[r]->done()) continue;
        all_done = false;
        const int operation = ranks_[r]->issuable();
        if (operation < 0) continue;
        issue(static_cast<int>(r), operation);
        progress = true;
      }
      if (!all_done && !progress) return false;
    }
    current_operation_ = -1;
    return true;
  }

  void issue(int rank, int operation) {
    current_rank_ = rank;
    current_operation_ = operation;
    DeviceRank& own = *ranks_[static_cast<std::size_t>(rank)];
    own.prepare(operation);
    const int meeting = own.planned(operation).meeting;
    if (meeting < 0) return own.issue_alone(operation);
    own.arrive(operation);
    const Meeting& whole = plan_.meetings[static_cast<std::size_t>(meeting)];
    if (++arrived_[static_cast<std::size_t>(meeting)] == static_cast<int>(whole.ranks.size())) {
      meet(whole, meeting);
    }
  }

  // The work of all members, on the first one's stream: behind all arrivals, before anyone goes on.
  void meet(const Meeting& meeting, int index) {
    require_same_collective(plan_, meeting);
    const Meeting::Member& first = meeting.members.front();
    DeviceStream& stream = ranks_[static_cast<std::size_t>(first.rank)]->stream(first.operation);
    std::vector<CollectiveMember> members;
    for (const Meeting::Member& member : meeting.members) {
      DeviceRank& rank = *ranks_[static_cast<std::size_t>(member.rank)];
      stream.wait(rank.arrival(member.operation));
      members.push_back(rank.operands(member.operation));
    }
    communicate_on_device(std::get<Collective>(ranks_[static_cast<std::size_t>(first.rank)]
                                                   ->planned(first.operation)
                                                   .operation->operation),
                          members, stream);
    const DeviceEvent& done = done_event(index);
    stream.record(done);
    for (const Meeting::Member& member : meeting.members) {
      ranks_[static_cast<std::size_t>(member.rank)]->leave(member.operation, done);
    }
  }

  const DeviceEvent& done_event(int meeting) {
    if (done_.empty()) done_.resize(plan_.meetings.size());
    auto& event = done_[static_cast<std::size_t>(meeting)];
    if (!event) event.emplace(true);
    return *event;
  }

  // Members of a meeting begin when the last one has come, and end when its work is done.
  std::vector<std::vector<MeasuredTimes>> times_of_step() const {
    std::vector<std::vector<MeasuredTimes>> times;
    for (const auto& rank : ranks_) times.push_back(rank->times(start_));
    const auto time = [&](const Meeting::Member& member) -> MeasuredTimes& {
      return times[static_cast<std::size_t>(member.rank)]
                  [static_cast<std::size_t>(member.operation)];
    };
    for (std::size_t m = 0; m < plan_.meetings.size(); ++m) {
      MeasuredTimes all;
      for (const Meeting::Member& member : plan_.meetings[m].members) {
        all.start = std::max(all.start, time(member).start);
      }
      all.end = elapsed(start_, *done_[m]);
      for (const Meeting::Member& member : plan_.meetings[m].members) time(member) = all;
    }
    return times;
  }

  void tell_deadlock(ExecutionResult& result) const {
    std::vector<std::vector<char>> begun, ended;
    for (const auto& rank : ranks_) {
      begun.push_back(rank->begun());
      ended.push_back(rank->ended());
    }
    result.outcome = Outcome::kDeadlock;
    result.deadlock = wait_cycle(plan_, begun, ended);
    for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) {
      result.messages.push_back(waiting_words(plan_, begun, ended, rank));
    }
  }

  const ExecuteOptions options_;
  const ExecutionPlan plan_;
  DevicePartition partition_;
  GemmLibrary library_;
  DeviceEvent start_;
  std::vector<std::unique_ptr<DeviceRank>> ranks_;
  std::vector<std::optional<DeviceEvent>> done_;  // by meeting
  std::vector<int> arrived_;                      // by meeting
  int current_rank_ = 0, current_operation_ = -1;
};

}  // namespace

std::string not_on_device(const Program& program) {
  for (const BufferFamily& family : program.buffers) {
    if (family.on_host) return family.name + ": offload is executed on CPU only";
  }
  for (const Template& list : program.templates) {
    for (const TemplateOperation& operation : list.operations) {
      const std::string why = not_on_device(operation.operation);
      if (!why.empty()) return list.name + ", " + operation.name + ": " + why;
    }
  }
  return "";
}

DeviceExecution execute_on_device(const Program& program, const ExecuteOptions& options) {
  return DeviceRun(program, options).execute();
}

}  // namespace headway
