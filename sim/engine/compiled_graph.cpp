#include "sim/engine/compiled_graph.hpp"

#include <algorithm>

namespace headway::engine {
namespace {

// StreamSteps before the steps have found their final place.
struct Range {
  int row;
  std::size_t begin, end;
  int slots;
};

// Compiles one template in one variant, appending to the graph.
class TemplateCompiler {
 public:
  TemplateCompiler(const TaskGraph& graph, CompiledGraph& out, const TaskTemplate& source,
                   bool moves_with_clock, bool fuse)
      : graph_(graph), out_(out), tasks_(source.tasks), moving_(moves_with_clock), fuse_(fuse) {}

  void compile_into(int variant, std::vector<Range>& ranges) {
    resolve_waits();
    assign_slots();
    for (int stream = 0; stream <= graph_.streams_per_device; ++stream) {
      const std::size_t begin = out_.steps.size();
      if (stream < graph_.streams_per_device) {
        compile_stream(stream);
      } else if (out_.has_host) {
        compile_host();
      }
      find_simple_steps(begin);
      ranges.push_back({stream * out_.variants + variant, begin, out_.steps.size(), slots_});
    }
  }

 private:
  // The tasks (>= 0) and stream boundaries (-1 - stream) that each task waits for, without those
  // that its stream has already waited for.
  void resolve_waits() {
    const auto streams = static_cast<std::size_t>(graph_.streams_per_device);
    std::vector<int> last(streams, kNoIndex);  // last task so far on each stream
    // reached[a * streams + b]: the latest task of stream b that stream a has waited for;
    // kNothing: not even the boundary.
    constexpr int kNothing = -2;
    std::vector<int> reached(streams * streams, kNothing);
    waits_.resize(tasks_.size());
    for (std::size_t t = 0; t < tasks_.size(); ++t) {
      const Task& task = tasks_[t];
      const auto own = static_cast<std::size_t>(task.stream);
      std::vector<int> wanted(streams, kNothing);  // per stream the latest task waited for
      for (const int before : task.after) {
        auto& latest =
            wanted[static_cast<std::size_t>(tasks_[static_cast<std::size_t>(before)].stream)];
        latest = std::max(latest, before);
      }
      for (const int stream : task.joins) {
        auto& latest = wanted[static_cast<std::size_t>(stream)];
        latest = std::max(latest, last[static_cast<std::size_t>(stream)]);
      }
      for (std::size_t s = 0; s < streams; ++s) {
        if (s == own || wanted[s] <= reached[own * streams + s]) continue;
        reached[own * streams + s] = wanted[s];
        waits_[t].push_back(wanted[s] >= 0 ? wanted[s] : -1 - static_cast<int>(s));
      }
      last[own] = static_cast<int>(t);
    }
  }

  // Slots in this order: the host's bases, stream boundaries, tasks that others wait for.
  void assign_slots() {
    base_of_task_.assign(tasks_.size(), kNoIndex);
    task_slot_.assign(tasks_.size(), kNoIndex);
    boundary_slot_.assign(static_cast<std::size_t>(graph_.streams_per_device), kNoIndex);
    if (out_.has_host && !tasks_.empty()) {
      int base = slots_++;
      for (std::size_t t = 0; t < tasks_.size(); ++t) {
        base_of_task_[t] = base;
        if (tasks_[t].host_waits) base = slots_++;
      }
    }
    const auto slot_for = [&](int& slot) {
      if (slot == kNoIndex) slot = slots_++;
    };
    for (std::size_t t = 0; t < tasks_.size(); ++t) {
      for (const int wait : waits_[t]) {
        slot_for(wait >= 0 ? task_slot_[static_cast<std::size_t>(wait)]
                           : boundary_slot_[static_cast<std::size_t>(-1 - wait)]);
      }
      if (tasks_[t].host_waits) slot_for(task_slot_[t]);
    }
  }

  int slot_of(int wait) const {
    return wait >= 0 ? task_slot_[static_cast<std::size_t>(wait)]
                     : boundary_slot_[static_cast<std::size_t>(-1 - wait)];
  }

  // Marks the steps that the player's short way can take.
  void find_simple_steps(std::size_t first) {
    for (std::size_t s = first; s < out_.steps.size(); ++s) {
      Step& step = out_.steps[s];
      step.simple = !moving_ && step.kind == StepKind::kWork && step.base_slot == kNoIndex &&
                    step.store_slot == kNoIndex && step.waits_begin == step.waits_end &&
                    step.awaits_end - step.awaits_begin <= 1 &&
                    step.releases_end - step.releases_begin <= 1 &&
                    step.busy_end - step.busy_begin == 1;
      if (!step.simple) continue;
      if (step.awaits_begin < step.awaits_end) {
        step.only_await = out_.ports[static_cast<std::size_t>(step.awaits_begin)];
      }
      if (step.releases_begin < step.releases_end) {
        step.only_release = out_.ports[static_cast<std::size_t>(step.releases_begin)];
      }
    }
  }

  void compile_stream(int stream) {
    if (boundary_slot_[static_cast<std::size_t>(stream)] != kNoIndex) {
      Step enter;
      enter.kind = StepKind::kEnter;
      enter.store_slot = boundary_slot_[static_cast<std::size_t>(stream)];
      out_.steps.push_back(enter);
    }
    int previous = kNoIndex;
    std::int64_t launch = 0;  // from the current base
    for (std::size_t t = 0; t < tasks_.size(); ++t) {
      const Task& task = tasks_[t];
      launch += task.host.picoseconds;
      if (task.stream == stream) {
        const int index = static_cast<int>(t);
        if (previous == kNoIndex || !may_follow(previous, index)) begin_step(index);
        extend_step(index, launch);
        previous = index;
      }
      if (task.host_waits) launch = 0;
    }
  }

  // Whether `task` may stand in one step with `previous`, the task before it on its stream.
  bool may_follow(int previous, int task) const {
    const Task& a = tasks_[static_cast<std::size_t>(previous)];
    const Task& b = tasks_[static_cast<std::size_t>(task)];
    if (!fuse_ || a.activity != kNoIndex || b.activity != kNoIndex) return false;
    if (!a.releases.empty() || task_slot_[static_cast<std::size_t>(previous)] != kNoIndex)
      return false;
    if (!b.awaits.empty() || !waits_[static_cast<std::size_t>(task)].empty()) return false;
    // Moving work books its time as one cause.
    if (moving_ && a.cause != b.cause) return false;
    return base_of_task_[static_cast<std::size_t>(previous)] ==
           base_of_task_[static_cast<std::size_t>(task)];
  }

  void begin_step(int index) {
    const Task& task = tasks_[static_cast<std::size_t>(index)];
    Step step;
    step.kind = task.activity == kNoIndex ? StepKind::kWork : StepKind::kActivity;
    step.activity = task.activity;
    step.base_slot = base_of_task_[static_cast<std::size_t>(index)];
    step.waits_begin = static_cast<int>(out_.waits.size());
    for (const int wait : waits_[static_cast<std::size_t>(index)])
      out_.waits.push_back(slot_of(wait));
    step.waits_end = static_cast<int>(out_.waits.size());
    step.awaits_begin = static_cast<int>(out_.ports.size());
    out_.ports.insert(out_.ports.end(), task.awaits.begin(), task.awaits.end());
    step.awaits_end = static_cast<int>(out_.ports.size());
    step.busy_begin = step.busy_end = static_cast<int>(out_.busy.size());
    step.first_task = static_cast<int>(out_.stream_tasks.size());
    out_.steps.push_back(step);
  }

  void extend_step(int index, std::int64_t launch) {
    const Task& task = tasks_[static_cast<std::size_t>(index)];
    Step& step = out_.steps.back();
    const std::int64_t duration = task.activity == kNoIndex ? task.duration.picoseconds : 0;
    if (step.task_count == 0) step.launch_first = launch;
    // Each earlier task's way to the end grows by this task's duration.
    step.launch_tail = std::max(step.launch_tail, launch) + duration;
    step.duration += duration;
    step.origin = (duration << kCauseBits) | task.cause;
    step.cause = task.cause;
    step.store_slot = task_slot_[static_cast<std::size_t>(index)];
    step.releases_begin = static_cast<int>(out_.ports.size());
    out_.ports.insert(out_.ports.end(), task.releases.begin(), task.releases.end());
    step.releases_end = static_cast<int>(out_.ports.size());
    add_busy(step, task.cause, duration);
    out_.stream_tasks.push_back({index, task.sensitivity, duration, task.host.picoseconds, launch});
    ++step.task_count;
  }

  void add_busy(Step& step, int cause, std::int64_t duration) {
    for (int b = step.busy_begin; b < step.busy_end; ++b) {
      BusyTime& busy = out_.busy[static_cast<std::size_t>(b)];
      if (busy.cause == cause) {
        busy.duration += duration;
        return;
      }
    }
    out_.busy.push_back({cause, duration});
    step.busy_end = static_cast<int>(out_.busy.size());
  }

  // The host's steps: one from the instance's start, one after each task that it waits for.
  void compile_host() {
    if (tasks_.empty()) return;
    Step step;
    step.kind = StepKind::kHost;
    step.store_slot = base_of_task_[0];
    step.waits_begin = step.waits_end = static_cast<int>(out_.waits.size());
    for (std::size_t t = 0; t < tasks_.size(); ++t) {
      step.duration += tasks_[t].host.picoseconds;
      ++step.task_count;
      if (!tasks_[t].host_waits) continue;
      out_.steps.push_back(step);
      step = Step();
      step.kind = StepKind::kHost;
      step.store_slot = base_of_task_[t] + 1;
      step.waits_begin = static_cast<int>(out_.waits.size());
      out_.waits.push_back(task_slot_[t]);
      step.waits_end = static_cast<int>(out_.waits.size());
    }
    out_.steps.push_back(step);
  }

  const TaskGraph& graph_;
  CompiledGraph& out_;
  const std::vector<Task>& tasks_;
  bool moving_;
  bool fuse_;
  int slots_ = 0;
  std::vector<std::vector<int>> waits_;
  std::vector<int> base_of_task_;
  std::vector<int> task_slot_;
  std::vector<int> boundary_slot_;
};

constexpr int kGap = 5;  // instances: an odd number of half cache lines

PlacedInstance placed(const Instance& instance) {
  return {2 * instance.task_template + (instance.moves_with_clock ? 1 : 0), instance.first_awaited,
          instance.first_released, instance.first_activity};
}

// One pass over the instances, which may be many, where each device's stand together and in order;
// false where they do not.
bool place_grouped(const TaskGraph& graph, CompiledGraph& out, std::vector<char>& used) {
  int device = -1;
  PlacedInstance* const first = out.instances.get();
  PlacedInstance* next = first;
  char* const is_used = used.data();
  for (const Instance& instance : graph.instances) {
    if (instance.device != device) {
      if (instance.device < device) return false;
      while (device < instance.device) {
        if (device >= 0)
          out.device_end[static_cast<std::size_t>(device)] = static_cast<int>(next - first);
        next += kGap;
        out.device_begin[static_cast<std::size_t>(++device)] = static_cast<int>(next - first);
      }
    }
    *next = placed(instance);
    is_used[next->variant] = 1;
    ++next;
  }
  const int end = static_cast<int>(next - first);
  for (; device < graph.devices; ++device) {
    if (device >= 0) out.device_end[static_cast<std::size_t>(device)] = end;
    if (device + 1 < graph.devices) out.device_begin[static_cast<std::size_t>(device) + 1] = end;
  }
  return true;
}

void place_scattered(const TaskGraph& graph, CompiledGraph& out, std::vector<char>& used) {
  std::vector<int> count(static_cast<std::size_t>(graph.devices));
  for (const Instance& instance : graph.instances) {
    ++count[static_cast<std::size_t>(instance.device)];
  }
  int next = 0;
  for (std::size_t d = 0; d < count.size(); ++d) {
    next += kGap;
    out.device_begin[d] = out.device_end[d] = next;
    next += count[d];
  }
  out.original.resize(static_cast<std::size_t>(next));
  for (std::size_t i = 0; i < graph.instances.size(); ++i) {
    const PlacedInstance place = placed(graph.instances[i]);
    used[static_cast<std::size_t>(place.variant)] = 1;
    const int at = out.device_end[static_cast<std::size_t>(graph.instances[i].device)]++;
    out.instances[static_cast<std::size_t>(at)] = place;
    out.original[static_cast<std::size_t>(at)] = static_cast<int>(i);
  }
}

// Groups the instances by device; which variants occur.
std::vector<char> place_instances(const TaskGraph& graph, CompiledGraph& out) {
  const auto devices = static_cast<std::size_t>(graph.devices);
  out.device_begin.assign(devices, 0);
  out.device_end.assign(devices, 0);
  // Not initialised: most of it is written at once.
  out.instances = std::make_unique_for_overwrite<PlacedInstance[]>(graph.instances.size() +
                                                                   devices * kGap + kGap);
  std::vector<char> used(2 * graph.templates.size());
  if (!place_grouped(graph, out, used)) place_scattered(graph, out, used);
  for (std::size_t v = 1; v < used.size(); v += 2) out.has_moving |= used[v] != 0;
  return used;
}

}  // namespace

CompiledGraph compile(const TaskGraph& graph, bool fuse) {
  CompiledGraph out;
  for (const TaskTemplate& source : graph.templates) {
    for (const Task& task : source.tasks) {
      out.has_host |= task.host_waits || task.host.picoseconds > 0;
    }
  }
  out.streams = graph.streams_per_device + (out.has_host ? 1 : 0);
  out.variants = static_cast<int>(2 * graph.templates.size());
  const std::vector<char> used = place_instances(graph, out);
  std::vector<Range> ranges;
  for (int variant = 0; variant < out.variants; ++variant) {
    if (used[static_cast<std::size_t>(variant)] == 0) continue;
    TemplateCompiler(graph, out, graph.templates[static_cast<std::size_t>(variant) / 2],
                     variant % 2 == 1, fuse)
        .compile_into(variant, ranges);
  }
  out.stream_steps.resize(static_cast<std::size_t>(out.variants) *
                          (static_cast<std::size_t>(graph.streams_per_device) + 1));
  for (const Range& range : ranges) {
    out.stream_steps[static_cast<std::size_t>(range.row)] = {
        out.steps.data() + range.begin, out.steps.data() + range.end, range.slots};
    out.has_slots |= range.slots > 0;
  }
  return out;
}

int index_of(const CompiledGraph& compiled, int device, const PlacedInstance& instance) {
  const auto place = static_cast<std::size_t>(&instance - compiled.instances.get());
  if (!compiled.original.empty()) return compiled.original[place];
  return static_cast<int>(place) - kGap * (device + 1);
}

}  // namespace headway::engine
