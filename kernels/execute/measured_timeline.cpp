#include "kernels/execute/measured_timeline.hpp"

#include <algorithm>
#include <tuple>

namespace headway {
namespace {

constexpr std::size_t kCauses = 16;  // as SimulateOptions::causes

// Before an operation of stream 0 starts, what it waited for last: another stream's operation
// (whose cause gets the time since it started), or nobody (idle).
void book_wait(const RankPlan& plan, const std::vector<MeasuredTimes>& times, int operation,
               Time from, DeviceTotals& totals) {
  const Time start = times[static_cast<std::size_t>(operation)].start;
  int last = -1;
  for (const Dependency& wait : plan.operations[static_cast<std::size_t>(operation)].waits) {
    const Time end = times[static_cast<std::size_t>(wait.operation)].end;
    if (end <= from) continue;
    if (last < 0 || end > times[static_cast<std::size_t>(last)].end) last = wait.operation;
  }
  if (last < 0) {
    totals.idle += start - from;
    return;
  }
  const MeasuredTimes& awaited = times[static_cast<std::size_t>(last)];
  const Time begun = std::clamp(awaited.start, from, start);
  const auto cause =
      static_cast<std::size_t>(plan.operations[static_cast<std::size_t>(last)].operation->cause);
  totals.idle += begun - from;
  totals.waiting[cause] += start - begun;
}

DeviceTotals totals_of(const RankPlan& plan, const std::vector<MeasuredTimes>& times) {
  DeviceTotals totals;
  totals.busy.resize(kCauses);
  totals.waiting.resize(kCauses);
  Time clock;
  for (const int operation : plan.streams.front()) {
    const MeasuredTimes& span = times[static_cast<std::size_t>(operation)];
    if (span.start > clock) book_wait(plan, times, operation, clock, totals);
    const auto cause = static_cast<std::size_t>(
        plan.operations[static_cast<std::size_t>(operation)].operation->cause);
    totals.busy[cause] += span.end - span.start;
    clock = span.end;
  }
  for (const MeasuredTimes& span : times) totals.end = std::max(totals.end, span.end);
  return totals;
}

}  // namespace

Timeline measured_timeline(const ExecutionPlan& plan,
                           const std::vector<std::vector<MeasuredTimes>>& times) {
  Timeline timeline;
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
    timeline.devices.push_back(totals_of(rank, times[r]));
    timeline.makespan = std::max(timeline.makespan, timeline.devices.back().end);
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
