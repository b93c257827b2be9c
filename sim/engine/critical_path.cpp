#include "sim/engine/critical_path.hpp"

#include <algorithm>
#include <cassert>
#include <optional>
#include <tuple>
#include <utility>

namespace headway {
namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

// What ended at the moment in question: a task, or the launch of one.
struct Cause {
  int task = 0;  // number among all tasks of all instances
  bool launch = false;
};

class PathFinder {
 public:
  PathFinder(const TaskGraph& graph, const Timeline& timeline) : graph_(graph) {
    number_tasks();
    for (const Span& span : timeline.spans) {
      if (span.stream == graph.streams_per_device) continue;
      const std::size_t number = at(first_task_[at(span.instance)] + span.task);
      start_[number] = span.start;
      end_[number] = span.end;
    }
    replay_launches();
  }

  std::vector<CriticalLink> find() {
    std::vector<CriticalLink> path;
    std::optional<Cause> cause = last_to_end();
    while (cause) {
      const Task& task = task_of(cause->task);
      const Instance& instance = graph_.instances[at(instance_[at(cause->task)])];
      const Time end = cause->launch ? launched_[at(cause->task)] : end_[at(cause->task)];
      const Time start = cause->launch ? end - task.host : start_[at(cause->task)];
      if (end > start) {
        path.push_back({start, end, cause->launch ? graph_.host_cause : task.cause, task.label,
                        instance.device, cause->launch ? graph_.streams_per_device : task.stream,
                        instance_[at(cause->task)],
                        cause->task - first_task_[at(instance_[at(cause->task)])]});
      }
      cause = cause->launch ? before_launch(cause->task) : before_task(cause->task);
    }
    std::reverse(path.begin(), path.end());
    return path;
  }

 private:
  void number_tasks() {
    const int streams = graph_.streams_per_device;
    std::vector<int> last(at(graph_.devices * streams), kNoIndex);
    last_issued_.assign(at(graph_.devices), kNoIndex);
    releaser_.assign(at(graph_.ports), kNoIndex);
    members_.resize(graph_.activities.size());
    for (std::size_t i = 0; i < graph_.instances.size(); ++i) {
      const Instance& instance = graph_.instances[i];
      first_task_.push_back(static_cast<int>(instance_.size()));
      const auto before = last.begin() + static_cast<std::ptrdiff_t>(instance.device) * streams;
      before_instance_.insert(before_instance_.end(), before, before + streams);
      for (const Task& task : graph_.templates[at(instance.task_template)].tasks) {
        const int number = static_cast<int>(instance_.size());
        instance_.push_back(static_cast<int>(i));
        last[at(instance.device * streams + task.stream)] = number;
        issued_before_.push_back(std::exchange(last_issued_[at(instance.device)], number));
        for (const int slot : task.releases) {
          releaser_[at(graph_.released_ports[at(instance.first_released + slot)])] = number;
        }
        if (task.activity != kNoIndex) {
          members_[at(graph_.bound_activities[at(instance.first_activity + task.activity)])]
              .push_back(number);
        }
      }
    }
    start_.resize(instance_.size());
    end_.resize(instance_.size());
    launched_.resize(instance_.size());
  }

  void replay_launches() {
    std::vector<Time> host(at(graph_.devices));
    for (std::size_t n = 0; n < instance_.size(); ++n) {
      Time& now = host[at(graph_.instances[at(instance_[n])].device)];
      const Task& task = task_of(static_cast<int>(n));
      now += task.host;
      launched_[n] = now;
      if (task.host_waits) now = std::max(now, end_[n]);
    }
  }

  const Task& task_of(int number) const {
    const int instance = instance_[at(number)];
    return graph_.templates[at(graph_.instances[at(instance)].task_template)]
        .tasks[at(number - first_task_[at(instance)])];
  }

  // The last task on `stream` that its device issued before task `number`, or kNoIndex.
  int last_before(int number, int stream) const {
    const int instance = instance_[at(number)];
    for (int n = number - 1; n >= first_task_[at(instance)]; --n) {
      if (task_of(n).stream == stream) return n;
    }
    return before_instance_[at(instance * graph_.streams_per_device + stream)];
  }

  std::optional<Cause> last_to_end() const {
    std::optional<Cause> last;
    for (std::size_t n = 0; n < end_.size(); ++n) {
      const auto key = [&](int number) {
        return std::tuple(graph_.instances[at(instance_[at(number)])].device,
                          task_of(number).stream);
      };
      const int number = static_cast<int>(n);
      // Of several, the lowest device and stream, there the last in issue order.
      if (!last || end_[n] > end_[at(last->task)] ||
          (end_[n] == end_[at(last->task)] && key(number) <= key(last->task))) {
        last = Cause{number, false};
      }
    }
    return last;
  }

  // What ended last of all that the task itself waits for.
  std::optional<Cause> reason(int number) const {
    const Task& task = task_of(number);
    const int instance = instance_[at(number)];
    std::optional<Cause> reason;
    Time time;
    const auto consider = [&](int other) {
      if (other == kNoIndex || (reason && end_[at(other)] <= time)) return;
      reason = Cause{other, false};
      time = end_[at(other)];
    };
    consider(last_before(number, task.stream));
    for (const int before : task.after) consider(first_task_[at(instance)] + before);
    for (const int stream : task.joins) consider(last_before(number, stream));
    for (const int slot : task.awaits) {
      consider(releaser_[at(
          graph_.awaited_ports[at(graph_.instances[at(instance)].first_awaited + slot)])]);
    }
    if (!reason || launched_[at(number)] > time) reason = Cause{number, true};
    return reason;
  }

  Time time_of(const std::optional<Cause>& cause) const {
    return cause->launch ? launched_[at(cause->task)] : end_[at(cause->task)];
  }

  std::optional<Cause> before_task(int number) const {
    const Task& task = task_of(number);
    if (task.activity == kNoIndex) return reason(number);
    const Instance& instance = graph_.instances[at(instance_[at(number)])];
    int latest = kNoIndex;
    const auto key = [&](int member) {
      return std::tuple(Time::zero() - time_of(reason(member)),
                        graph_.instances[at(instance_[at(member)])].device, task_of(member).stream);
    };
    const int activity = graph_.bound_activities[at(instance.first_activity + task.activity)];
    for (const int member : members_[at(activity)]) {
      if (latest == kNoIndex || key(member) < key(latest)) latest = member;
    }
    return reason(latest);
  }

  // The host was launching the task before, or waited for it.
  std::optional<Cause> before_launch(int number) const {
    const int before = issued_before_[at(number)];
    if (before == kNoIndex) return std::nullopt;
    const bool waited = task_of(before).host_waits && end_[at(before)] > launched_[at(before)];
    return Cause{before, !waited};
  }

  const TaskGraph& graph_;
  std::vector<int> first_task_;            // of each instance
  std::vector<int> instance_;              // of each task
  std::vector<int> issued_before_;         // the task before it in its device's issue order
  std::vector<int> last_issued_;           // by device
  std::vector<int> before_instance_;       // by instance and stream: the last task there before it
  std::vector<int> releaser_;              // by port
  std::vector<std::vector<int>> members_;  // by activity
  std::vector<Time> start_, end_, launched_;
};

}  // namespace

std::vector<CriticalLink> critical_path(const TaskGraph& graph, const Timeline& timeline) {
  assert(timeline.deadlock.empty());
  return PathFinder(graph, timeline).find();
}

}  // namespace headway
