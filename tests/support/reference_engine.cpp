#include "tests/support/reference_engine.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

namespace headway {
namespace {

__extension__ using Wide = __int128;
constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
constexpr int kIdle = -1;

std::size_t at(int index) { return static_cast<std::size_t>(index); }

std::int64_t ceil_divide(Wide a, Wide b) { return static_cast<std::int64_t>((a + b - 1) / b); }

std::int64_t to_rate(double per_second) {
  return std::llround(std::min(std::ldexp(per_second * 1e-12, 50), 0x1p62));
}

enum class State { kWaiting, kArrived, kRunning, kDone };

struct Operation {
  const Task* task = nullptr;
  int device = 0, instance = 0, index = 0;
  bool moving = false;
  int previous = kNoIndex;          // on its stream
  std::vector<int> streams_before;  // last operations of other streams it waits for, by stream
  std::vector<int> ports;           // operations that release what it awaits, as listed
  int activity = kNoIndex;
  State state = State::kWaiting;
  bool launched = false;
  std::int64_t launch = 0, host_since = 0;
  std::int64_t start = kNever, end = kNever;
  std::int64_t left = 0, since = 0;  // moving: in `environment`
  int environment = kNoIndex;
};

struct Group {
  std::vector<int> members;
  int arrived = 0;
  State state = State::kWaiting;
  bool flowing = false;
  std::int64_t start = kNever, end = kNever;
  Wide left = 0;
  std::int64_t rate = 0, since = 0;
};

struct Host {
  std::vector<int> operations;
  std::size_t next = 0;
  std::int64_t launch_end = kNever;
  std::int64_t busy_since = 0, stopped = 0;
  int waits_for = kNoIndex;
};

// What determined when something could start.
struct Reason {
  std::int64_t time = 0, since = 0;
  int cause = kIdle;
};

class PlainEngine {
 public:
  PlainEngine(const TaskGraph& graph, int causes) : graph_(graph), causes_(causes) { expand(); }

  ReferenceRun run() {
    while (clock_ != kNever) {
      while (advance()) {
      }
      settle();
      clock_ = next_time();
    }
    ReferenceRun result;
    result.finished = std::all_of(operations_.begin(), operations_.end(),
                                  [](const Operation& o) { return o.state == State::kDone; });
    fill(result.timeline);
    return result;
  }

 private:
  void expand() {
    groups_.resize(graph_.activities.size());
    hosts_.resize(at(graph_.devices));
    std::vector<int> releaser(at(graph_.ports), kNoIndex);
    std::vector<std::vector<int>> last(at(graph_.devices),
                                       std::vector<int>(at(graph_.streams_per_device), kNoIndex));
    std::vector<int> first_of_instance;
    for (std::size_t i = 0; i < graph_.instances.size(); ++i) {
      const Instance& instance = graph_.instances[i];
      const int first = static_cast<int>(operations_.size());
      first_of_instance.push_back(first);
      const auto& tasks = graph_.templates[at(instance.task_template)].tasks;
      for (std::size_t t = 0; t < tasks.size(); ++t) {
        const Task& task = tasks[t];
        const int id = static_cast<int>(operations_.size());
        auto& on_stream = last[at(instance.device)];
        Operation operation;
        operation.task = &task;
        operation.device = instance.device;
        operation.instance = static_cast<int>(i);
        operation.index = static_cast<int>(t);
        operation.moving = instance.moves_with_clock;
        operation.previous = on_stream[at(task.stream)];
        std::vector<int> wanted(on_stream.size(), kNoIndex);
        for (const int a : task.after) {
          int& latest = wanted[at(tasks[at(a)].stream)];
          latest = std::max(latest, first + a);
        }
        for (const int s : task.joins) wanted[at(s)] = std::max(wanted[at(s)], on_stream[at(s)]);
        for (const int w : wanted) {
          if (w != kNoIndex) operation.streams_before.push_back(w);
        }
        if (task.activity != kNoIndex) {
          operation.activity = graph_.bound_activities[at(instance.first_activity + task.activity)];
          groups_[at(operation.activity)].members.push_back(id);
        }
        for (const int slot : task.releases) {
          releaser[at(graph_.released_ports[at(instance.first_released + slot)])] = id;
        }
        on_stream[at(task.stream)] = id;
        hosts_[at(instance.device)].operations.push_back(id);
        operations_.push_back(std::move(operation));
      }
    }
    for (Operation& operation : operations_) {
      for (const int slot : operation.task->awaits) {
        const Instance& instance = graph_.instances[at(operation.instance)];
        operation.ports.push_back(
            releaser[at(graph_.awaited_ports[at(instance.first_awaited + slot)])]);
      }
    }
  }

  bool done(int id) const { return operations_[at(id)].state == State::kDone; }

  // Whatever happens at this instant and has not happened yet. False: nothing more.
  bool advance() {
    bool changed = false;
    for (Operation& operation : operations_) {
      if (operation.state == State::kRunning && operation.activity == kNoIndex &&
          operation.end == clock_) {
        operation.state = State::kDone;
        changed = true;
      }
    }
    for (std::size_t g = 0; g < groups_.size(); ++g) changed |= advance_group(static_cast<int>(g));
    for (Host& host : hosts_) changed |= advance_host(host);
    for (Operation& operation : operations_) changed |= try_start(operation);
    return changed;
  }

  bool advance_group(int index) {
    Group& group = groups_[at(index)];
    const Activity& activity = graph_.activities[at(index)];
    if (group.state == State::kWaiting && group.arrived == activity.members) {
      group.state = State::kRunning;
      group.start = clock_;
      group.end = clock_ + activity.latency.picoseconds;
      return true;
    }
    if (group.state != State::kRunning || group.end != clock_) return false;
    if (!group.flowing && activity.work > 0) {
      group.flowing = true;
      group.left = static_cast<Wide>(activity.work) << 50;
      group.since = clock_;
      group.end = kNever;  // until settled
      return true;
    }
    group.state = State::kDone;
    for (const int m : group.members) {
      operations_[at(m)].state = State::kDone;
      operations_[at(m)].start = group.start;
      operations_[at(m)].end = clock_;
    }
    return true;
  }

  bool advance_host(Host& host) {
    if (host.waits_for != kNoIndex) {
      if (!done(host.waits_for)) return false;
      host.waits_for = kNoIndex;
      if (clock_ > host.stopped) host.busy_since = clock_;
    }
    if (host.next == host.operations.size()) return false;
    Operation& operation = operations_[at(host.operations[host.next])];
    if (host.launch_end == kNever) {
      host.launch_end = clock_ + operation.task->host.picoseconds;
      return true;
    }
    if (host.launch_end != clock_) return false;
    host.launch_end = kNever;
    operation.launched = true;
    operation.launch = clock_;
    operation.host_since = host.busy_since;
    if (operation.task->host_waits) {
      host.waits_for = host.operations[host.next];
      host.stopped = clock_;
    }
    ++host.next;
    return true;
  }

  bool try_start(Operation& operation) {
    if (operation.state != State::kWaiting || !operation.launched) return false;
    if (operation.previous != kNoIndex && !done(operation.previous)) return false;
    for (const int before : operation.streams_before) {
      if (!done(before)) return false;
    }
    for (const int before : operation.ports) {
      if (!done(before)) return false;
    }
    if (operation.activity != kNoIndex) {
      operation.state = State::kArrived;
      ++groups_[at(operation.activity)].arrived;
      return true;
    }
    operation.state = State::kRunning;
    operation.start = clock_;
    operation.end = clock_ + operation.task->duration.picoseconds;
    if (operation.moving && operation.task->duration > Time::zero()) operation.end = kNever;
    return true;
  }

  int environment(int device) const {
    int bits = 0;
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      const int bit = graph_.activities[g].environment;
      if (bit == kNoIndex || groups_[g].state != State::kRunning) continue;
      for (const int m : groups_[g].members) {
        if (operations_[at(m)].device == device) bits |= 1 << bit;
      }
    }
    return bits;
  }

  Wide factor(const Operation& operation, int environment) const {
    const int row = operation.task->sensitivity;
    return row == kNoIndex ? Wide{1 << 20} : graph_.slowdowns[at(row)][at(environment)];
  }

  // Environments and rates as they are after this instant; everything under way is timed again.
  void settle() {
    std::vector<int> now;
    for (int d = 0; d < graph_.devices; ++d) now.push_back(environment(d));
    for (Operation& operation : operations_) {
      if (operation.state != State::kRunning || operation.activity != kNoIndex ||
          !operation.moving) {
        continue;
      }
      const int next = now[at(operation.device)];
      if (operation.start == clock_) {
        operation.left = ceil_divide(operation.task->duration.picoseconds * factor(operation, next),
                                     Wide{1 << 20});
      } else {
        operation.left -= clock_ - operation.since;
        operation.left = ceil_divide(operation.left * factor(operation, next),
                                     factor(operation, operation.environment));
      }
      operation.since = clock_;
      operation.environment = next;
      operation.end = clock_ + operation.left;
    }
    std::vector<int> flowing;
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      if (groups_[g].flowing && groups_[g].state == State::kRunning) {
        flowing.push_back(static_cast<int>(g));
      }
    }
    const std::vector<std::int64_t> rates = fair_rates(graph_, flowing);
    for (std::size_t i = 0; i < flowing.size(); ++i) {
      Group& group = groups_[at(flowing[i])];
      group.left -= static_cast<Wide>(group.rate) * (clock_ - group.since);
      group.since = clock_;
      group.rate = rates[i];
      group.end = clock_ + ceil_divide(group.left, group.rate);
    }
  }

  std::int64_t next_time() const {
    std::int64_t next = kNever;
    for (const Operation& operation : operations_) {
      if (operation.state == State::kRunning && operation.activity == kNoIndex) {
        next = std::min(next, operation.end);
      }
    }
    for (const Group& group : groups_) {
      if (group.state == State::kRunning) next = std::min(next, group.end);
    }
    for (const Host& host : hosts_) next = std::min(next, host.launch_end);
    return next;
  }

  // When an operation could have started alone, and why not earlier.
  Reason reason(const Operation& operation) const {
    Reason reason;
    const auto consider = [&](int id) {
      const Operation& other = operations_[at(id)];
      if (other.end > reason.time) reason = {other.end, other.start, other.task->cause};
    };
    if (operation.previous != kNoIndex) {
      const Operation& previous = operations_[at(operation.previous)];
      reason = {previous.end, previous.start, previous.task->cause};
    }
    for (const int id : operation.streams_before) consider(id);
    for (const int id : operation.ports) consider(id);
    if (operation.launch > reason.time) {
      reason = {operation.launch, operation.host_since, graph_.host_cause};
    }
    return reason;
  }

  Reason group_reason(const Group& group) const {
    Reason latest;
    int member = kNoIndex;
    for (const int m : group.members) {
      const Reason own = reason(operations_[at(m)]);
      const bool before =
          member == kNoIndex ||
          std::pair(operations_[at(m)].device, operations_[at(m)].task->stream) <
              std::pair(operations_[at(member)].device, operations_[at(member)].task->stream);
      if (member == kNoIndex || own.time > latest.time || (own.time == latest.time && before)) {
        latest = own;
        member = m;
      }
    }
    return latest;
  }

  void fill(Timeline& timeline) const {
    timeline.devices.resize(at(graph_.devices));
    for (DeviceTotals& totals : timeline.devices) {
      totals.busy.resize(at(causes_));
      totals.waiting.resize(at(causes_));
    }
    std::vector<std::int64_t> main_end(at(graph_.devices), 0);
    for (const Operation& operation : operations_) {
      if (operation.state != State::kDone) continue;
      const Task& task = *operation.task;
      timeline.spans.push_back({{operation.start},
                                {operation.end},
                                operation.device,
                                task.stream,
                                operation.instance,
                                operation.index});
      if (task.host > Time::zero()) {
        timeline.spans.push_back({Time{operation.launch} - task.host,
                                  {operation.launch},
                                  operation.device,
                                  graph_.streams_per_device,
                                  operation.instance,
                                  operation.index});
      }
      DeviceTotals& totals = timeline.devices[at(operation.device)];
      totals.end = std::max(totals.end, Time{operation.end});
      timeline.makespan = std::max(timeline.makespan, Time{operation.end});
      if (task.stream != 0) continue;
      totals.busy[at(task.cause)] += Time{operation.end - operation.start};
      const std::int64_t from = main_end[at(operation.device)];
      main_end[at(operation.device)] = operation.end;
      if (operation.start == from) continue;
      const Reason why = operation.activity == kNoIndex
                             ? reason(operation)
                             : group_reason(groups_[at(operation.activity)]);
      const std::int64_t split = std::clamp(why.since, from, operation.start);
      totals.idle += Time{split - from};
      (why.cause == kIdle ? totals.idle : totals.waiting[at(why.cause)]) +=
          Time{operation.start - split};
    }
    for (std::size_t d = 0; d < main_end.size(); ++d) {
      timeline.devices[d].idle += timeline.makespan - Time{main_end[d]};
    }
    std::sort(timeline.spans.begin(), timeline.spans.end(), [](const Span& a, const Span& b) {
      return std::tuple(a.start, a.device, a.stream, a.instance, a.task) <
             std::tuple(b.start, b.device, b.stream, b.instance, b.task);
    });
  }

  const TaskGraph& graph_;
  int causes_;
  std::vector<Operation> operations_;
  std::vector<Group> groups_;
  std::vector<Host> hosts_;
  std::int64_t clock_ = 0;
};

}  // namespace

std::vector<std::int64_t> fair_rates(const TaskGraph& graph, const std::vector<int>& activities) {
  std::vector<std::int64_t> rates(activities.size(), 0);
  std::vector<bool> frozen(activities.size(), false);
  const auto loads = [&](std::size_t flow) {
    const Activity& activity = graph.activities[at(activities[flow])];
    return std::vector<LinkLoad>(graph.loads.begin() + activity.first_load,
                                 graph.loads.begin() + activity.first_load + activity.load_count);
  };
  while (std::find(frozen.begin(), frozen.end(), false) != frozen.end()) {
    std::map<int, std::pair<std::int64_t, std::int64_t>> links;  // left, count
    for (std::size_t f = 0; f < rates.size(); ++f) {
      for (const LinkLoad& load : loads(f)) {
        auto& link = links.try_emplace(load.link, to_rate(graph.links[at(load.link)].capacity), 0)
                         .first->second;
        link.first -= load.load * rates[f];
        if (!frozen[f]) link.second += load.load * graph.activities[at(activities[f])].weight;
      }
    }
    const auto own_level = [&](std::size_t f) {
      const Activity& activity = graph.activities[at(activities[f])];
      const double limit = activity.rate_limit > 0 ? activity.rate_limit : 1e300;
      return to_rate(limit) / activity.weight;
    };
    std::int64_t level = kNever;
    for (const auto& [link, state] : links) {
      if (state.second > 0) level = std::min(level, state.first / state.second);
    }
    for (std::size_t f = 0; f < rates.size(); ++f) {
      if (!frozen[f]) level = std::min(level, own_level(f));
    }
    for (std::size_t f = 0; f < rates.size(); ++f) {
      if (frozen[f]) continue;
      bool full = own_level(f) == level;
      for (const LinkLoad& load : loads(f)) {
        const auto& [left, count] = links.at(load.link);
        full |= left / count == level;
      }
      if (!full) continue;
      frozen[f] = true;
      rates[f] = level * graph.activities[at(activities[f])].weight;
    }
  }
  return rates;
}

ReferenceRun simulate_plainly(const TaskGraph& graph, int causes) {
  return PlainEngine(graph, causes).run();
}

}  // namespace headway
