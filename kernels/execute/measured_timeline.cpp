#include "kernels/execute/measured_timeline.hpp"

#include <algorithm>
#include <tuple>

namespace headway {
namespace {

constexpr std::size_t kCauses = 16;  // as SimulateOptions::causes

// The waits of a plan as they were measured.
class Waiting {
 public:
  Waiting(const ExecutionPlan& plan, const std::vector<std::vector<MeasuredTimes>>& times)
      : plan_(plan), times_(times) {}

  DeviceTotals totals_of(int rank, Time makespan) const {
    const RankPlan& plan = plan_.ranks[static_cast<std::size_t>(rank)];
    const auto& times = times_[static_cast<std::size_t>(rank)];
    DeviceTotals totals;
    totals.busy.resize(kCauses);
    totals.waiting.resize(kCauses);
    Time clock;
    for (const int operation : plan.streams.front()) {
      const MeasuredTimes& span = times[static_cast<std::size_t>(operation)];
      if (span.start > clock) book(rank, operation, clock, totals);
      totals.busy[cause_of(rank, operation)] += span.end - span.start;
      clock = span.end;
    }
    for (const MeasuredTimes& span : times) totals.end = std::max(totals.end, span.end);
    totals.idle += makespan - clock;
    return totals;
  }

 private:
  struct Awaited {
    int rank = -1, operation = -1;
    Time end;
  };

  const MeasuredTimes& time(int rank, int operation) const {
    return times_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(operation)];
  }
  const PlannedOperation& planned(int rank, int operation) const {
    return plan_.ranks[static_cast<std::size_t>(rank)]
        .operations[static_cast<std::size_t>(operation)];
  }
  std::size_t cause_of(int rank, int operation) const {
    return static_cast<std::size_t>(planned(rank, operation).operation->cause);
  }

  // What an operation waited for last; of a member of a meeting, what the latest member did.
  Awaited last_awaited(int rank, int operation) const {
    Awaited latest;
    const auto look_at = [&](int of, int member) {
      for (const Dependency& wait : planned(of, member).waits) {
        const Time end = time(of, wait.operation).end;
        if (latest.rank < 0 || end > latest.end) latest = {of, wait.operation, end};
      }
    };
    const int index = planned(rank, operation).meeting;
    if (index < 0) {
      look_at(rank, operation);
    } else {
      for (const Meeting::Member& member :
           plan_.meetings[static_cast<std::size_t>(index)].members) {
        look_at(member.rank, member.operation);
      }
    }
    return latest;
  }

  // Books the gap before an operation of stream 0: idle until the awaited thing started, waiting
  // for its cause from then on.
  void book(int rank, int operation, Time from, DeviceTotals& totals) const {
    const Time start = time(rank, operation).start;
    const Awaited awaited = last_awaited(rank, operation);
    if (awaited.rank < 0 || awaited.end <= from) {
      totals.idle += start - from;
      return;
    }
    const Time begun = std::clamp(time(awaited.rank, awaited.operation).start, from, start);
    totals.idle += begun - from;
    totals.waiting[cause_of(awaited.rank, awaited.operation)] += start - begun;
  }

  const ExecutionPlan& plan_;
  const std::vector<std::vector<MeasuredTimes>>& times_;
};

}  // namespace

Timeline measured_timeline(const ExecutionPlan& plan,
                           const std::vector<std::vector<MeasuredTimes>>& times) {
  Timeline timeline;
  for (const std::vector<MeasuredTimes>& rank : times) {
    for (const MeasuredTimes& span : rank) {
      timeline.makespan = std::max(timeline.makespan, span.end);
    }
  }
  const Waiting waiting(plan, times);
  int first_instance = 0;
  for (std::size_t r = 0; r < plan.ranks.size(); ++r) {
    const RankPlan& rank = plan.ranks[r];
    for (std::size_t o = 0; o < rank.operations.size(); ++o) {
      const PlannedOperation& planned = rank.operations[o];
      timeline.spans.push_back({times[r][o].start, times[r][o].end, static_cast<int>(r),
                                planned.operation->stream, first_instance + planned.at.issue,
                                planned.task});
      ++timeline.events;
    }
    timeline.devices.push_back(waiting.totals_of(static_cast<int>(r), timeline.makespan));
    first_instance +=
        static_cast<int>(plan.program->kinds[static_cast<std::size_t>(rank.kind)].order.size());
  }
  std::stable_sort(timeline.spans.begin(), timeline.spans.end(), [](const Span& a, const Span& b) {
    return std::tie(a.start, a.device, a.stream, a.instance, a.task) <
           std::tie(b.start, b.device, b.stream, b.instance, b.task);
  });
  return timeline;
}

}  // namespace headway
