#include "sim/simulate/steady_step.hpp"

#include <algorithm>
#include <utility>

namespace headway {

namespace {

// The first repeat begins with all ranks idle; from the second on each begins where the one before
// has left its ranks.
constexpr int kRepeats = 3;

void subtract(std::vector<Time>& times, const std::vector<Time>& before) {
  for (std::size_t i = 0; i < times.size() && i < before.size(); ++i)
    times[i] = times[i] - before[i];
}

// Only the spans of the last repeat, as if it were alone.
void keep_last(std::vector<Span>& spans, int instances) {
  const int first = instances * (kRepeats - 1);
  spans.erase(std::remove_if(spans.begin(), spans.end(),
                             [&](const Span& span) { return span.instance < first; }),
              spans.end());
  Time begin = Time::max();
  for (const Span& span : spans) begin = std::min(begin, span.start);
  for (Span& span : spans) {
    span.instance -= first;
    span.start = span.start - begin;
    span.end = span.end - begin;
  }
}

}  // namespace

TaskGraph repeated(const TaskGraph& graph, int times) {
  TaskGraph result = graph;
  const auto shifted = [](std::vector<int>& into, const std::vector<int>& ids, int by) {
    for (const int id : ids) into.push_back(id + by);
  };
  for (int repeat = 1; repeat < times; ++repeat) {
    for (Instance instance : graph.instances) {
      instance.first_awaited += static_cast<int>(result.awaited_ports.size());
      instance.first_released += static_cast<int>(result.released_ports.size());
      instance.first_activity += static_cast<int>(result.bound_activities.size());
      result.instances.push_back(instance);
    }
    shifted(result.awaited_ports, graph.awaited_ports, repeat * graph.ports);
    shifted(result.released_ports, graph.released_ports, repeat * graph.ports);
    shifted(result.bound_activities, graph.bound_activities,
            repeat * static_cast<int>(graph.activities.size()));
    result.activities.insert(result.activities.end(), graph.activities.begin(),
                             graph.activities.end());
  }
  result.ports = graph.ports * times;
  return result;
}

Timeline beyond(Timeline longer, const Timeline& shorter) {
  longer.makespan = longer.makespan - shorter.makespan;
  longer.events -= shorter.events;
  for (std::size_t d = 0; d < longer.devices.size(); ++d) {
    subtract(longer.devices[d].busy, shorter.devices[d].busy);
    subtract(longer.devices[d].waiting, shorter.devices[d].waiting);
    longer.devices[d].idle = longer.devices[d].idle - shorter.devices[d].idle;
    longer.devices[d].end = longer.devices[d].end - shorter.devices[d].end;
  }
  subtract(longer.critical_path, shorter.critical_path);
  return longer;
}

Timeline steady_step(const TaskGraph& graph, const SimulateOptions& options) {
  SimulateOptions totals = options;
  totals.detail = Detail::kTotals;
  const Timeline before = simulate(repeated(graph, kRepeats - 1), totals);
  if (!before.deadlock.empty()) return simulate(graph, options);
  Timeline step = beyond(simulate(repeated(graph, kRepeats), options), before);
  keep_last(step.spans, static_cast<int>(graph.instances.size()));
  return step;
}

}  // namespace headway
