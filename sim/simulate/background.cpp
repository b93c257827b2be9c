#include "sim/simulate/background.hpp"

#include <algorithm>
#include <cassert>
#include <string>

#include "sim/core/error.hpp"
#include "sim/simulate/steady_step.hpp"

namespace headway {

namespace {

constexpr const char* kOption = "--background";
// Of all graphs together: beyond, memory runs out before patience does.
constexpr std::size_t kMostInstances = 20'000'000;

template <typename T>
void append(std::vector<T>& to, const std::vector<T>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

void append_shifted(std::vector<int>& to, const std::vector<int>& from, int by) {
  for (const int value : from) to.push_back(value + by);
}

Time end_of(const Timeline& timeline, std::size_t first_device, std::size_t devices) {
  Time end;
  for (std::size_t d = first_device; d < first_device + devices; ++d) {
    end = std::max(end, timeline.devices[d].end);
  }
  return end;
}

// What of a timeline of several jobs is the first one's.
Timeline first_of(Timeline timeline, const TaskGraph& step, Time end) {
  const Time after = timeline.makespan - end;
  timeline.devices.resize(static_cast<std::size_t>(step.devices));
  for (DeviceTotals& device : timeline.devices) device.idle = device.idle - after;
  std::erase_if(timeline.spans, [&](const Span& span) { return span.device >= step.devices; });
  timeline.makespan = end;
  return timeline;
}

}  // namespace

TaskGraph joined(const TaskGraph& a, const TaskGraph& b) {
  assert(a.links.size() == b.links.size() && a.host_cause == b.host_cause);
  TaskGraph both = a;
  both.devices = a.devices + b.devices;
  both.streams_per_device = std::max(a.streams_per_device, b.streams_per_device);
  both.ports = a.ports + b.ports;
  for (TaskTemplate tasks : b.templates) {
    for (Task& task : tasks.tasks) {
      if (task.sensitivity != kNoIndex) task.sensitivity += static_cast<int>(a.slowdowns.size());
    }
    both.templates.push_back(std::move(tasks));
  }
  for (Instance instance : b.instances) {
    instance.device += a.devices;
    instance.task_template += static_cast<int>(a.templates.size());
    instance.first_awaited += static_cast<int>(a.awaited_ports.size());
    instance.first_released += static_cast<int>(a.released_ports.size());
    instance.first_activity += static_cast<int>(a.bound_activities.size());
    both.instances.push_back(instance);
  }
  append_shifted(both.awaited_ports, b.awaited_ports, a.ports);
  append_shifted(both.released_ports, b.released_ports, a.ports);
  append_shifted(both.bound_activities, b.bound_activities, static_cast<int>(a.activities.size()));
  for (Activity activity : b.activities) {
    activity.first_load += static_cast<int>(a.loads.size());
    both.activities.push_back(activity);
  }
  append(both.loads, b.loads);
  append(both.slowdowns, b.slowdowns);
  return both;
}

Timeline play_beside(const TaskGraph& step, const std::vector<const TaskGraph*>& others,
                     const SimulateOptions& options) {
  SimulateOptions beside = options;
  beside.critical_path = false;
  const Timeline alone = simulate(step, beside);
  if (!alone.deadlock.empty()) return alone;
  std::vector<std::int64_t> repeats;
  for (const TaskGraph* other : others) {
    const Timeline own = simulate(*other);
    if (!own.deadlock.empty()) throw InvalidInput(kOption, "", "its schedule deadlocks");
    // One more, so that its last one is under way when the step ends.
    repeats.push_back(2 + alone.makespan.picoseconds /
                              std::max<std::int64_t>(1, own.makespan.picoseconds));
  }
  for (;;) {
    std::size_t instances = step.instances.size();
    for (std::size_t i = 0; i < others.size(); ++i) {
      instances += others[i]->instances.size() * static_cast<std::size_t>(repeats[i]);
    }
    if (instances > kMostInstances) {
      throw InvalidInput(kOption, "",
                         "its steps are too short: beside one of the job they would be played " +
                             std::to_string(*std::max_element(repeats.begin(), repeats.end())) +
                             " times");
    }
    TaskGraph graph = step;
    for (std::size_t i = 0; i < others.size(); ++i) {
      graph = joined(graph, repeated(*others[i], static_cast<int>(repeats[i])));
    }
    Timeline timeline = simulate(graph, beside);
    const Time end = end_of(timeline, 0, static_cast<std::size_t>(step.devices));
    bool lasts = true;
    auto first = static_cast<std::size_t>(step.devices);
    for (std::size_t i = 0; i < others.size(); ++i) {
      const auto devices = static_cast<std::size_t>(others[i]->devices);
      if (end_of(timeline, first, devices) < end) {
        lasts = false;
        repeats[i] += 1 + repeats[i] / 2;
      }
      first += devices;
    }
    if (lasts) return first_of(std::move(timeline), step, end);
  }
}

}  // namespace headway
