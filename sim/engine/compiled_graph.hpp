// A TaskGraph made ready to be played: each template is compiled once, per stream, into rows of a
// max-plus map, and instances are never expanded.
//
// A *step* is a run of consecutive tasks of one stream in which only the first waits for something
// outside the run and only the last is waited for from outside. Its start is the max of what it
// waits for; its end is the max of (start + duration) and (host + launch_tail): two columns,
// whatever the number of its tasks. A template's steps are thus its max-plus summary in factored
// form: a row for each stream, host thread and released port, with an entry only where the row
// depends on the column, so never more entries than three per task and a constant where nothing
// happens inside. The player evaluates each row as soon as its own columns are known, or the rows
// of an instance one behind the other where all columns are known; to wait for all of them would
// deadlock where two devices feed each other within one instance.
//
// Points inside an instance that another stream waits for are *slots*.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "sim/engine/task_graph.hpp"

namespace headway::engine {

inline constexpr int kCauseBits = 8;  // of Step::origin

enum class StepKind : std::uint8_t {
  kWork,      // a run of tasks with their own durations
  kActivity,  // one task, a member of an activity
  kEnter,     // no task: notes where the stream stands as the instance begins
  kHost,      // the host thread: waits, notes where it stands, then launches
};

struct StepTimes {
  std::int64_t duration = 0;      // of all its tasks, undisturbed; kHost: of its launches
  std::int64_t origin = 0;        // of its last task, as Moment::origin: duration << 8 | cause
  std::int64_t launch_first = 0;  // of the first task, from the base slot's time
  std::int64_t launch_tail = 0;   // max over tasks of launch + durations from it to the end

  // Of undisturbed work that begins at `ready`, launched from `base`.
  std::int64_t end(std::int64_t ready, std::int64_t base) const {
    return std::max(ready + duration, base + launch_tail);
  }
};

struct Step : StepTimes {
  // A step of fixed tasks of one cause that waits for at most one port besides its stream and at
  // whose end at most one port is released: all it needs stands in these lines.
  bool simple = false;
  StepKind kind = StepKind::kWork;
  int cause = 0;                       // of its last task
  int only_await = kNoIndex;           // simple: slot in Instance::awaited
  int only_release = kNoIndex;         // simple: slot in Instance::released
  int first_task = 0, task_count = 0;  // into CompiledGraph::stream_tasks
  int base_slot = kNoIndex;            // where the host stands; kNoIndex: it never delays the step
  int store_slot = kNoIndex;           // noted at its end (kEnter, kHost: at its start)
  int activity = kNoIndex;             // slot in Instance::activities
  int waits_begin = 0, waits_end = 0;  // into CompiledGraph::waits
  int awaits_begin = 0, awaits_end = 0;      // into CompiledGraph::ports: slots of awaited ports
  int releases_begin = 0, releases_end = 0;  // into CompiledGraph::ports: slots of released ports
  int busy_begin = 0, busy_end = 0;          // into CompiledGraph::busy
};

// What a step's tasks add to the time spent in a cause.
struct BusyTime {
  int cause = 0;
  std::int64_t duration = 0;
};

// A task of a step, for spans and for work that moves with the clock.
struct StreamTask {
  int task = 0;  // of the template
  int sensitivity = kNoIndex;
  std::int64_t duration = 0;
  std::int64_t host = 0;
  std::int64_t launch = 0;  // from the base slot's time
};

// What a stream plays of a template.
struct StreamSteps {
  const Step* begin = nullptr;  // into CompiledGraph::steps
  const Step* end = nullptr;
  int slots = 0;  // of the template, whatever the stream
};

// What the player reads of an instance. In a long pipeline each device's place moves on at the same
// pace; a gap after each device's instances keeps these places from falling into the same cache set
// where the number of instances is a power of two.
struct PlacedInstance {
  int variant = 0;
  int first_awaited = 0;
  int first_released = 0;
  int first_activity = 0;

  bool moves_with_clock() const { return variant % 2 != 0; }
};

struct CompiledGraph {
  int streams = 1;  // cursors per device: its streams and, where it matters, the host
  bool has_host = false;
  bool has_moving = false;
  bool has_slots = false;
  // Instances by device, in issue order; device d has [device_begin[d], device_end[d]).
  std::unique_ptr<PlacedInstance[]> instances;
  std::vector<int> device_begin, device_end;
  int places() const { return device_end.empty() ? 0 : device_end.back(); }
  std::vector<int> original;  // by device and issue order; empty: grouped so in the graph
  // Variant 2 t is template t played ahead of the clock, 2 t + 1 moving with it.
  int variants = 0;
  std::vector<StreamSteps> stream_steps;  // [stream * variants + variant]; the host's stream last
  std::vector<Step> steps;
  std::vector<int> waits;  // slots of the instance
  std::vector<int> ports;  // slots of Instance::awaited / released
  std::vector<BusyTime> busy;
  std::vector<StreamTask> stream_tasks;
};

// The index in the graph of an instance of a device.
int index_of(const CompiledGraph& compiled, int device, const PlacedInstance& instance);

// `fuse`: whether runs of tasks become one step; false where each task's span is wanted.
CompiledGraph compile(const TaskGraph& graph, bool fuse);

}  // namespace headway::engine
