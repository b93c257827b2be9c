#include "sim/engine/simulator.hpp"

#include <algorithm>
#include <cassert>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "sim/engine/compiled_graph.hpp"
#include "sim/engine/event_queue.hpp"
#include "sim/engine/flow_network.hpp"
#include "sim/engine/link_pruning.hpp"

namespace headway {
namespace {

constexpr int kIdleCause = 255;  // in a Mark: waiting for it is booked as idle
constexpr int kEnvironmentBits = 8;
constexpr std::int64_t kSlowdownOne = std::int64_t{1} << 20;

std::size_t at(int index) { return static_cast<std::size_t>(index); }

// Something that is waited for: a released port, or a slot of an instance. Sixteen bytes, as there
// may be a mark for each task.
class Mark {
 public:
  bool known() const { return end_ >= 0; }
  std::int64_t end() const { return end_; }
  // When the task that made it known began, and what its time is booked as.
  std::int64_t since() const { return end_ - (length_and_cause_ >> kCauseBits); }
  int cause() const { return static_cast<int>(length_and_cause_ & kIdleCause); }

  void set(std::int64_t end, std::int64_t since, int cause) {
    end_ = end;
    length_and_cause_ = (std::min(end - since, kLongest) << kCauseBits) | cause;
  }

  // Until it is known: the last cursor that waits for it, or kNone.
  int waiter() const { return static_cast<int>(-2 - end_); }
  void set_waiter(int cursor) { end_ = -2 - static_cast<std::int64_t>(cursor); }

 private:
  static constexpr int kCauseBits = 8;
  // 10 hours: a task longer than that would be waited for as idle time before its last 10 hours.
  static constexpr std::int64_t kLongest = std::numeric_limits<std::int64_t>::max() >> kCauseBits;

  std::int64_t end_ = -1;  // -1: unknown, no waiter; -2 - cursor: unknown, cursor waits
  std::int64_t length_and_cause_ = 0;
};

// When something can start, and what determined it: the thing that ended then, when that began, and
// what waiting for it is booked as.
struct Ready {
  std::int64_t time = 0;
  std::int64_t since = 0;
  int cause = kIdleCause;
};

enum class CursorState : std::uint8_t {
  kRunning,     // on the worklist, or about to be
  kOnMark,      // waits for marks_[waits_for]
  kInActivity,  // has arrived at activity `waits_for`
  kArrived,     // its activity has ended
  kToBegin,     // its step begins when the clock gets there
  kMoving,      // its segment moves with the clock
  kMoved,       // its segment has ended
  kToResume,    // its next segment begins when the clock gets there
  kResumed,
  kFinished,
};

// One stream of one device, or its host thread: where it stands in the device's issue order.
struct Cursor {
  std::int64_t time = 0;        // end of its last step
  std::int64_t last_since = 0;  // start of its last task
  int last_cause = kIdleCause;
  int position = -1;  // of the instance among the device's
  int step = 0, step_end = 0;
  int slot_base = 0;        // marks_ of the instance
  int next_waiter = kNone;  // waits for the same mark or activity
  int waits_for = kNone;
  CursorState state = CursorState::kRunning;
  std::int64_t instance_start = -1;  // of its first task in the instance
  std::int64_t instance_end = 0;     // of its last task so far
};

struct ActivityState {
  std::int64_t start = -1;  // until all members have arrived: the latest so far
  std::int64_t end = -1;
  std::int64_t since = 0;  // what the latest member waited for
  int cause = kIdleCause;
  int latest = kNone;  // the member that was last ready; of several, the lowest cursor
  int missing = 0;
  int waiter = kNone;  // the last member that has arrived
};

// Work that moves with the clock: a position in a range of a step's tasks.
struct Segment {
  int task = 0, end = 0;    // into CompiledGraph::stream_tasks: in progress, past the last
  int environment = kNone;  // kNone: began at this instant
  std::int64_t start = 0;
  std::int64_t since = 0;       // when `left` was true
  std::int64_t left = 0;        // of `task`, in this environment
  std::int64_t last_start = 0;  // of `task`
};

// A flow between two solves.
struct Transfer {
  Work left = 0;
  std::int64_t rate = 0;
  std::int64_t since = 0;
};

class Player {
 public:
  Player(const TaskGraph& graph, const SimulateOptions& options)
      : graph_(graph),
        options_(options),
        compiled_(compile(graph, options.detail != Detail::kTasks)),
        streams_(compiled_.streams) {
    order_instances();
    prepare_marks();
    prepare_activities();
    prepare_clock();
  }

  Timeline play() {
    for (int c = cursor_count() - 1; c >= 0; --c) worklist_.push_back(c);
    run_ahead();
    if (queue_) {
      play_instant();
      while (!queue_->empty()) {
        clock_ = queue_->next_time();
        play_instant();
      }
    }
    return result();
  }

 private:
  // --- set-up
  // -------------------------------------------------------------------------------------

  int cursor_count() const { return graph_.devices * streams_; }
  int device_of(int cursor) const { return cursor / streams_; }
  int stream_of(int cursor) const { return cursor % streams_; }

  // Instances grouped by device, each group in issue order.
  void order_instances() {
    device_begin_.assign(at(graph_.devices) + 1, 0);
    bool grouped = true;
    int previous = 0;
    for (const Instance& instance : graph_.instances) {
      grouped &= instance.device >= previous;
      previous = instance.device;
      ++device_begin_[at(instance.device) + 1];
    }
    for (std::size_t d = 0; d < at(graph_.devices); ++d) device_begin_[d + 1] += device_begin_[d];
    if (grouped) {
      instances_ = graph_.instances.data();
      return;
    }
    original_index_.resize(graph_.instances.size());
    sorted_.resize(graph_.instances.size());
    std::vector<int> next(device_begin_.begin(), device_begin_.end() - 1);
    for (std::size_t i = 0; i < graph_.instances.size(); ++i) {
      const int place = next[at(graph_.instances[i].device)]++;
      sorted_[at(place)] = graph_.instances[i];
      original_index_[at(place)] = static_cast<int>(i);
    }
    instances_ = sorted_.data();
  }

  int original_index(int place) const {
    return original_index_.empty() ? place : original_index_[at(place)];
  }

  static int variant_of(const Instance& instance) {
    return 2 * instance.task_template + (instance.moves_with_clock ? 1 : 0);
  }

  StepRange ranges_of(const Instance& instance, int stream) const {
    return compiled_.ranges[at(variant_of(instance) * (graph_.streams_per_device + 1) + stream)];
  }

  // Ports first, then the slots of all instances.
  void prepare_marks() {
    cursors_.resize(at(cursor_count()));
    std::size_t marks = at(graph_.ports);
    for (int d = 0; d < graph_.devices; ++d) {
      for (int s = 0; s < streams_; ++s) {
        Cursor& cursor = cursors_[at(d * streams_ + s)];
        cursor.slot_base = static_cast<int>(marks);
        cursor.position = device_begin_[at(d)] - 1;
      }
      for (int i = device_begin_[at(d)]; i < device_begin_[at(d) + 1]; ++i) {
        marks += at(compiled_.slots[at(variant_of(instances_[i]))]);
      }
    }
    marks_.resize(marks);
    busy_.assign(at(graph_.devices) * at(options_.causes), 0);
    waiting_.assign(busy_.size(), 0);
    idle_.assign(at(graph_.devices), 0);
  }

  void prepare_activities() {
    activities_.resize(graph_.activities.size());
    for (std::size_t a = 0; a < activities_.size(); ++a) {
      activities_[a].missing = graph_.activities[a].members;
    }
    fixed_ = fixed_durations(graph_);
  }

  void prepare_clock() {
    for (const Instance& instance : graph_.instances) moving_ |= instance.moves_with_clock;
    bool fluid = false;
    for (const std::int64_t duration : fixed_) fluid |= duration == kNone;
    if (!moving_ && !fluid) return;
    queue_.emplace(static_cast<int>(activities_.size()) + cursor_count());
    if (fluid) {
      network_.emplace(graph_);
      transfers_.resize(activities_.size());
    }
    if (moving_) {
      segments_.resize(cursors_.size());
      environment_.assign(at(graph_.devices), 0);
      environment_counts_.assign(at(graph_.devices) * kEnvironmentBits, 0);
      for (const auto& row : graph_.slowdowns) {
        environments_ = std::max(environments_, static_cast<int>(row.size()));
      }
      prefix_sums_.resize(compiled_.steps.size() * at(environments_));
    }
  }

  // --- fixed work, in dependency order
  // --------------------------------------------------------------

  void run_ahead() {
    while (!worklist_.empty()) {
      const int cursor = worklist_.back();
      worklist_.pop_back();
      run(cursor);
    }
  }

  void run(int id) {
    Cursor& cursor = cursors_[at(id)];
    const int device = device_of(id), stream = stream_of(id);
    for (;;) {
      while (cursor.step == cursor.step_end) {
        if (!enter_next_instance(cursor, device, stream)) return;
      }
      if (!play_step(id, cursor, device, stream, compiled_.steps[at(cursor.step)])) return;
      ++cursor.step;
    }
  }

  // Goes on to the next instance of the device with steps on this stream. False: there is none.
  bool enter_next_instance(Cursor& cursor, int device, int stream) {
    const int end = device_begin_[at(device) + 1];
    if (options_.detail == Detail::kInstances) close_instance_span(cursor, device, stream);
    while (cursor.position < end) {
      if (cursor.position >= device_begin_[at(device)]) {
        cursor.slot_base += compiled_.slots[at(variant_of(instances_[cursor.position]))];
      }
      if (++cursor.position == end) break;
      const StepRange range = ranges_of(instances_[cursor.position], stream);
      cursor.step = range.begin;
      cursor.step_end = range.end;
      if (range.begin != range.end) return true;
    }
    cursor.state = CursorState::kFinished;
    return false;
  }

  // False: the cursor is parked.
  bool play_step(int id, Cursor& cursor, int device, int stream, const Step& step) {
    if (cursor.state == CursorState::kArrived) return finish_activity(cursor, device, stream, step);
    if (cursor.state == CursorState::kMoved) {
      return finish_segment(id, cursor, device, stream, step);
    }
    if (cursor.state == CursorState::kResumed) return resume_step(id, cursor, device, stream, step);
    Ready ready{cursor.time, cursor.last_since, cursor.last_cause};
    for (int w = step.waits_begin; w < step.waits_end; ++w) {
      if (!await(id, cursor, cursor.slot_base + compiled_.waits[at(w)], ready)) return false;
    }
    if (step.kind == StepKind::kHost) return play_host(cursor, step, ready);
    if (step.kind == StepKind::kEnter) {
      note(cursor.slot_base + step.store_slot, ready);
      return true;
    }
    const Instance& instance = instances_[cursor.position];
    for (int p = step.awaits_begin; p < step.awaits_end; ++p) {
      const int port = graph_.awaited_ports[at(instance.first_awaited + compiled_.ports[at(p)])];
      if (!await(id, cursor, port, ready)) return false;
    }
    const Mark* base = nullptr;
    if (step.base_slot != kNone) {
      const int slot = cursor.slot_base + step.base_slot;
      if (!known(id, cursor, slot)) return false;
      base = &marks_[at(slot)];
      const std::int64_t launched = base->end() + step.launch_first;
      if (launched > ready.time) ready = {launched, base->since(), base->cause()};
    }
    if (step.kind == StepKind::kActivity) {
      return arrive(id, cursor, device, stream, step, instance, ready);
    }
    if (instance.moves_with_clock) return begin_step(id, cursor, device, stream, step, ready);
    play_work(cursor, device, stream, step, ready, base);
    return true;
  }

  bool known(int id, Cursor& cursor, int mark_index) {
    Mark& mark = marks_[at(mark_index)];
    if (mark.known()) return true;
    cursor.state = CursorState::kOnMark;
    cursor.waits_for = mark_index;
    cursor.next_waiter = mark.waiter() >= 0 ? mark.waiter() : kNone;
    mark.set_waiter(id);
    return false;
  }

  bool await(int id, Cursor& cursor, int mark_index, Ready& ready) {
    if (!known(id, cursor, mark_index)) return false;
    const Mark& mark = marks_[at(mark_index)];
    if (mark.end() > ready.time) ready = {mark.end(), mark.since(), mark.cause()};
    return true;
  }

  void note(int mark_index, const Ready& value) {
    Mark& mark = marks_[at(mark_index)];
    assert(!mark.known());
    int waiter = mark.waiter();
    mark.set(value.time, value.since, value.cause);
    while (waiter >= 0) {
      Cursor& cursor = cursors_[at(waiter)];
      cursor.state = CursorState::kRunning;
      worklist_.push_back(waiter);
      waiter = std::exchange(cursor.next_waiter, kNone);
    }
  }

  bool play_host(Cursor& cursor, const Step& step, const Ready& ready) {
    // Waiting for the host counts from when it last stopped waiting itself.
    if (ready.time > cursor.time) cursor.last_since = ready.time;
    note(cursor.slot_base + step.store_slot,
         {ready.time, cursor.last_since,
          graph_.host_cause == kNone ? kIdleCause : graph_.host_cause});
    cursor.time = ready.time + step.duration;
    if (step.duration > 0) {
      if (cursor.instance_start < 0) cursor.instance_start = ready.time;
      cursor.instance_end = cursor.time;
    }
    return true;
  }

  void play_work(Cursor& cursor, int device, int stream, const Step& step, const Ready& ready,
                 const Mark* base) {
    std::int64_t end = ready.time + step.duration;
    if (base != nullptr) end = std::max(end, base->end() + step.launch_tail);
    if (stream == 0) {
      book_gap(device, cursor.time, ready);
      for (int b = step.busy_begin; b < step.busy_end; ++b) {
        const BusyTime& busy = compiled_.busy[at(b)];
        busy_[at(device * options_.causes + busy.cause)] += busy.duration;
      }
      // Gaps inside a step can only come from the host.
      const std::int64_t gaps = end - ready.time - step.duration;
      if (gaps > 0) book_waiting(device, gaps, base->cause());
    }
    finish_step(cursor, device, stream, step, ready.time, end, end - step.last_duration, base);
  }

  void book_waiting(int device, std::int64_t duration, int cause) {
    if (cause == kIdleCause) {
      idle_[at(device)] += duration;
    } else {
      waiting_[at(device * options_.causes + cause)] += duration;
    }
  }

  // Stream 0 stood still from `from` until `ready`.
  void book_gap(int device, std::int64_t from, const Ready& ready) {
    if (ready.time == from) return;
    const std::int64_t split = std::clamp(ready.since, from, ready.time);
    idle_[at(device)] += split - from;
    book_waiting(device, ready.time - split, ready.cause);
  }

  void finish_step(Cursor& cursor, int device, int stream, const Step& step, std::int64_t start,
                   std::int64_t end, std::int64_t last_since, const Mark* base) {
    cursor.time = end;
    cursor.last_since = last_since;
    cursor.last_cause = step.cause;
    events_ += step.task_count;
    if (options_.detail == Detail::kInstances) {
      if (cursor.instance_start < 0) cursor.instance_start = start;
      cursor.instance_end = end;
    } else if (options_.detail == Detail::kTasks) {
      add_task_spans(cursor, device, stream, step, start, end, base);
    }
    const Ready value{end, last_since, step.cause};
    if (step.store_slot != kNone) note(cursor.slot_base + step.store_slot, value);
    const Instance& instance = instances_[cursor.position];
    for (int p = step.releases_begin; p < step.releases_end; ++p) {
      note(graph_.released_ports[at(instance.first_released + compiled_.ports[at(p)])], value);
    }
  }

  void add_task_spans(const Cursor& cursor, int device, int stream, const Step& step,
                      std::int64_t start, std::int64_t end, const Mark* base) {
    const StreamTask& task = compiled_.stream_tasks[at(step.first_task)];
    const int instance = original_index(cursor.position);
    spans_.push_back({{start}, {end}, device, stream, instance, task.task});
    if (base == nullptr && step.base_slot != kNone) {
      base = &marks_[at(cursor.slot_base + step.base_slot)];
    }
    if (base != nullptr && task.host > 0) {
      const std::int64_t launched = base->end() + task.launch;
      spans_.push_back({{launched - task.host},
                        {launched},
                        device,
                        graph_.streams_per_device,
                        instance,
                        task.task});
    }
  }

  void close_instance_span(Cursor& cursor, int device, int stream) {
    if (cursor.instance_start < 0) return;
    spans_.push_back({{cursor.instance_start},
                      {cursor.instance_end},
                      device,
                      stream,
                      original_index(cursor.position),
                      -1});
    cursor.instance_start = -1;
  }

  // --- activities
  // -----------------------------------------------------------------------------------

  bool arrive(int id, Cursor& cursor, int device, int stream, const Step& step,
              const Instance& instance, const Ready& ready) {
    const int index = graph_.bound_activities[at(instance.first_activity + step.activity)];
    ActivityState& activity = activities_[at(index)];
    assert(activity.missing > 0);
    if (ready.time > activity.start || (ready.time == activity.start && id < activity.latest)) {
      activity.start = ready.time;
      activity.since = ready.since;
      activity.cause = ready.cause;
      activity.latest = id;
    }
    cursor.waits_for = index;
    cursor.state = CursorState::kInActivity;
    cursor.next_waiter = std::exchange(activity.waiter, id);
    if (--activity.missing > 0) return false;
    if (!start_activity(index)) return false;
    // It ended at once, ahead of the clock: the others go on later, this one now.
    activity.waiter = cursor.next_waiter;
    cursor.next_waiter = kNone;
    wake_members(activity);
    return finish_activity(cursor, device, stream, step);
  }

  // All members are ready. True: its end is known.
  bool start_activity(int index) {
    ActivityState& activity = activities_[at(index)];
    const bool on_clock = moving_ && graph_.activities[at(index)].environment != kNone;
    if (on_clock) {
      activity.end = kStarting;
      queue_->schedule(index, activity.start);
      return false;
    }
    if (fixed_[at(index)] == kNone) {
      activity.end = kInLatency;
      queue_->schedule(index, activity.start + graph_.activities[at(index)].latency.picoseconds);
      return false;
    }
    activity.end = activity.start + fixed_[at(index)];
    ++events_;
    return true;
  }

  void wake_members(ActivityState& activity) {
    int member = std::exchange(activity.waiter, kNone);
    while (member != kNone) {
      Cursor& cursor = cursors_[at(member)];
      cursor.state = CursorState::kArrived;
      worklist_.push_back(member);
      member = std::exchange(cursor.next_waiter, kNone);
    }
  }

  bool finish_activity(Cursor& cursor, int device, int stream, const Step& step) {
    const ActivityState& activity = activities_[at(cursor.waits_for)];
    cursor.state = CursorState::kRunning;
    if (stream == 0) {
      book_gap(device, cursor.time, {activity.start, activity.since, activity.cause});
      busy_[at(device * options_.causes + step.cause)] += activity.end - activity.start;
    }
    finish_step(cursor, device, stream, step, activity.start, activity.end, activity.start,
                nullptr);
    return true;
  }

  // --- the clock
  // ------------------------------------------------------------------------------------

  // Everything that happens now: finish what ends, go on, start what can, until nothing more
  // happens; only then rates and environments are brought up to date.
  void play_instant() {
    while (!queue_->empty() && queue_->next_time() == clock_) {
      while (!queue_->empty() && queue_->next_time() == clock_) handle(queue_->pop());
      run_ahead();
    }
    settle_environments();
    settle_rates();
  }

  void handle(int id) {
    const int activities = static_cast<int>(activities_.size());
    if (id >= activities) {
      Cursor& cursor = cursors_[at(id - activities)];
      cursor.state = cursor.state == CursorState::kToBegin    ? CursorState::kRunning
                     : cursor.state == CursorState::kToResume ? CursorState::kResumed
                                                              : CursorState::kMoved;
      worklist_.push_back(id - activities);
      return;
    }
    ActivityState& activity = activities_[at(id)];
    if (activity.end == kStarting) {
      change_environment(id, +1);
      activity.end = kInLatency;
      const std::int64_t ahead =
          fixed_[at(id)] == kNone ? graph_.activities[at(id)].latency.picoseconds : fixed_[at(id)];
      queue_->schedule(id, clock_ + ahead);
    } else if (activity.end == kInLatency && fixed_[at(id)] == kNone) {
      activity.end = kMovingWork;
      transfers_[at(id)] = {work_of(graph_.activities[at(id)].work), 0, clock_};
      network_->add(id);
    } else {
      if (activity.end == kMovingWork) network_->remove(id);
      activity.end = clock_;
      ++events_;
      change_environment(id, -1);
      wake_members(activity);
    }
  }

  // An activity begins or ends to be felt on its members' devices.
  void change_environment(int index, int by) {
    const int bit = graph_.activities[at(index)].environment;
    if (!moving_ || bit == kNone) return;
    for (int m = activities_[at(index)].waiter; m != kNone; m = cursors_[at(m)].next_waiter) {
      environment_counts_[at(device_of(m) * kEnvironmentBits + bit)] += by;
      changed_devices_.push_back(device_of(m));
    }
  }

  void settle_rates() {
    if (!network_) return;
    for (const int id : network_->solve()) {
      Transfer& transfer = transfers_[at(id)];
      transfer.left -= static_cast<Work>(transfer.rate) * (clock_ - transfer.since);
      transfer.since = clock_;
      transfer.rate = network_->rate(id);
      queue_->schedule(id, clock_ + time_to_move(transfer.left, transfer.rate));
    }
  }

  // --- work that moves with the clock
  // -----------------------------------------------------------------

  int event_id(int cursor) const { return static_cast<int>(activities_.size()) + cursor; }

  // A step whose tasks may be slowed begins when the clock gets there. True: it is done at once.
  bool begin_step(int id, Cursor& cursor, int device, int stream, const Step& step,
                  const Ready& ready) {
    if (ready.time > clock_) {
      cursor.state = CursorState::kToBegin;
      queue_->schedule(event_id(id), ready.time);
      return false;
    }
    if (cursor.instance_start < 0) cursor.instance_start = ready.time;
    segments_[at(id)].end = step.first_task;
    return begin_segment(id, cursor, device, stream, step, ready);
  }

  // The step's next task has been launched, by now.
  bool resume_step(int id, Cursor& cursor, int device, int stream, const Step& step) {
    const Mark& base = marks_[at(cursor.slot_base + step.base_slot)];
    return begin_segment(id, cursor, device, stream, step, {clock_, base.since(), base.cause()});
  }

  // Begins those tasks of the step that are not yet done and already launched, now.
  bool begin_segment(int id, Cursor& cursor, int device, int stream, const Step& step,
                     const Ready& ready) {
    assert(ready.time == clock_);
    if (stream == 0) book_gap(device, cursor.time, ready);
    Segment& segment = segments_[at(id)];
    segment.task = segment.end;
    segment.start = segment.since = segment.last_start = clock_;
    segment.environment = kNone;
    const int last = step.first_task + step.task_count;
    std::int64_t base = 0;
    if (step.base_slot != kNone) base = marks_[at(cursor.slot_base + step.base_slot)].end();
    std::int64_t duration = 0;
    while (segment.end < last) {
      const StreamTask& task = compiled_.stream_tasks[at(segment.end)];
      if (step.base_slot != kNone && base + task.launch > clock_) break;
      duration += task.duration;
      ++segment.end;
    }
    if (duration == 0) {
      return finish_segment(id, cursor, device, stream, step);
    }
    cursor.state = CursorState::kMoving;
    begun_.push_back(id);
    return false;
  }

  // The clock has come to the end of the cursor's segment. True: the step is done.
  bool finish_segment(int id, Cursor& cursor, int device, int stream, const Step& step) {
    const Segment& segment = segments_[at(id)];
    cursor.state = CursorState::kRunning;
    if (stream == 0) busy_[at(device * options_.causes + step.cause)] += clock_ - segment.start;
    if (segment.end == step.first_task + step.task_count) {
      finish_step(cursor, device, stream, step, segment.start, clock_, start_of_last(segment),
                  nullptr);
      return true;
    }
    cursor.time = clock_;
    const Mark& base = marks_[at(cursor.slot_base + step.base_slot)];
    cursor.state = CursorState::kToResume;
    // The launch may well have happened while the segment ran.
    const std::int64_t launched = base.end() + compiled_.stream_tasks[at(segment.end)].launch;
    queue_->schedule(event_id(id), std::max(launched, clock_));
    return false;
  }

  // When the last task of a segment that ends now began.
  std::int64_t start_of_last(const Segment& segment) const {
    const int last = segment.end - 1;
    if (segment.task == last || segment.environment == kNone) return segment.last_start;
    return clock_ - scaled(compiled_.stream_tasks[at(last)], segment.environment);
  }

  std::int64_t slowdown(const StreamTask& task, int environment) const {
    if (task.sensitivity == kNone) return kSlowdownOne;
    return graph_.slowdowns[at(task.sensitivity)][at(environment)];
  }

  // ceil(duration * slowdown)
  std::int64_t scaled(const StreamTask& task, int environment) const {
    const Work product = static_cast<Work>(task.duration) * slowdown(task, environment);
    return static_cast<std::int64_t>((product + kSlowdownOne - 1) / kSlowdownOne);
  }

  // Sums of the durations of a step's tasks in an environment, each task rounded up by itself.
  const std::vector<std::int64_t>& prefix_sums(int step_index, int environment) {
    auto& sums = prefix_sums_[at(step_index) * at(environments_) + at(environment)];
    if (sums.empty()) {
      const Step& step = compiled_.steps[at(step_index)];
      sums.push_back(0);
      for (int t = 0; t < step.task_count; ++t) {
        sums.push_back(sums.back() +
                       scaled(compiled_.stream_tasks[at(step.first_task + t)], environment));
      }
    }
    return sums;
  }

  // After an instant: devices whose environment is now another one carry their segments over, and
  // what began at this instant learns its environment.
  void settle_environments() {
    if (!moving_) return;
    for (const int device : changed_devices_) {
      int environment = 0;
      for (int bit = 0; bit < kEnvironmentBits; ++bit) {
        if (environment_counts_[at(device * kEnvironmentBits + bit)] > 0) environment |= 1 << bit;
      }
      if (environment == environment_[at(device)]) continue;
      environment_[at(device)] = environment;
      for (int id = device * streams_; id < (device + 1) * streams_; ++id) {
        if (cursors_[at(id)].state == CursorState::kMoving &&
            segments_[at(id)].environment != kNone) {
          carry_over(id, environment);
        }
      }
    }
    changed_devices_.clear();
    for (const int id : begun_) {
      Segment& segment = segments_[at(id)];
      segment.environment = environment_[at(device_of(id))];
      segment.left = scaled(compiled_.stream_tasks[at(segment.task)], segment.environment);
      schedule_end(id);
    }
    begun_.clear();
  }

  // Books what a segment has done since it was last looked at, and goes on in another environment.
  void carry_over(int id, int environment) {
    Segment& segment = segments_[at(id)];
    const int step_index = cursors_[at(id)].step;
    const int first = compiled_.steps[at(step_index)].first_task;
    std::int64_t elapsed = clock_ - segment.since;
    bool whole = false;  // nothing of the task in progress is done
    if (elapsed < segment.left) {
      segment.left -= elapsed;
    } else {
      elapsed -= segment.left;
      const auto& sums = prefix_sums(step_index, segment.environment);
      const std::int64_t target = sums[at(segment.task + 1 - first)] + elapsed;
      const auto next = std::upper_bound(sums.begin() + segment.task + 1 - first,
                                         sums.begin() + segment.end - first + 1, target);
      segment.task = first + static_cast<int>(next - sums.begin()) - 1;
      const std::int64_t done = target - *(next - 1);
      whole = done == 0;
      segment.left = *next - target;
      segment.last_start = clock_ - done;
    }
    const StreamTask& task = compiled_.stream_tasks[at(segment.task)];
    if (whole) {
      segment.left = scaled(task, environment);
    } else {
      const std::int64_t old_factor = slowdown(task, segment.environment);
      const Work product = static_cast<Work>(segment.left) * slowdown(task, environment);
      segment.left = static_cast<std::int64_t>((product + old_factor - 1) / old_factor);
    }
    segment.environment = environment;
    segment.since = clock_;
    schedule_end(id);
  }

  void schedule_end(int id) {
    const Segment& segment = segments_[at(id)];
    const int step_index = cursors_[at(id)].step;
    const int first = compiled_.steps[at(step_index)].first_task;
    const auto& sums = prefix_sums(step_index, segment.environment);
    queue_->schedule(event_id(id), segment.since + segment.left + sums[at(segment.end - first)] -
                                       sums[at(segment.task + 1 - first)]);
  }

  // --- result
  // ---------------------------------------------------------------------------------------

  Timeline result() {
    Timeline timeline;
    timeline.events = events_;
    timeline.devices.resize(at(graph_.devices));
    bool all_finished = true;
    for (int c = 0; c < cursor_count(); ++c) {
      const Cursor& cursor = cursors_[at(c)];
      all_finished &= cursor.state == CursorState::kFinished;
      if (stream_of(c) == graph_.streams_per_device) continue;  // the host's time is not work
      Time& end = timeline.devices[at(device_of(c))].end;
      end = std::max(end, Time{cursor.time});
      timeline.makespan = std::max(timeline.makespan, end);
    }
    const std::size_t causes = at(options_.causes);
    for (std::size_t d = 0; d < timeline.devices.size(); ++d) {
      DeviceTotals& totals = timeline.devices[d];
      for (std::size_t c = 0; c < causes; ++c) {
        totals.busy.push_back({busy_[d * causes + c]});
        totals.waiting.push_back({waiting_[d * causes + c]});
      }
      const Cursor& main = cursors_[d * at(streams_)];
      totals.idle = Time{idle_[d]} + (timeline.makespan - Time{main.time});
    }
    std::sort(spans_.begin(), spans_.end(), [](const Span& a, const Span& b) {
      if (a.start != b.start) return a.start < b.start;
      if (a.device != b.device) return a.device < b.device;
      if (a.stream != b.stream) return a.stream < b.stream;
      if (a.instance != b.instance) return a.instance < b.instance;
      return a.task < b.task;
    });
    timeline.spans = std::move(spans_);
    if (!all_finished) timeline.deadlock = find_deadlock();
    return timeline;
  }

  // --- deadlock
  // -------------------------------------------------------------------------------------

  // Follows the waits from the first cursor that has not finished until they close.
  std::vector<Wait> find_deadlock() const {
    std::vector<Wait> chain;
    std::vector<int> place(cursors_.size(), kNone);  // in the chain
    int id = 0;
    while (cursors_[at(id)].state == CursorState::kFinished) ++id;
    while (id != kNone && cursors_[at(id)].state != CursorState::kFinished) {
      if (place[at(id)] != kNone) {
        chain.erase(chain.begin(), chain.begin() + place[at(id)]);
        return chain;
      }
      place[at(id)] = static_cast<int>(chain.size());
      chain.push_back({device_of(id), original_index(cursors_[at(id)].position), 0, ""});
      id = describe_wait(id, chain.back());
    }
    return chain;
  }

  // Says what a parked cursor waits for; the cursor that would have to do it, or kNone.
  int describe_wait(int id, Wait& wait) const {
    const Cursor& cursor = cursors_[at(id)];
    const Step& step = compiled_.steps[at(cursor.step)];
    if (step.kind != StepKind::kHost) {
      wait.task = compiled_.stream_tasks[at(step.first_task)].task;
    }
    if (cursor.state == CursorState::kInActivity) {
      wait.what = "activity " + std::to_string(cursor.waits_for);
      return missing_member(cursor.waits_for);
    }
    if (cursor.waits_for < graph_.ports) {
      wait.what = "port " + std::to_string(cursor.waits_for);
      return releaser(cursor.waits_for);
    }
    const int slot = cursor.waits_for - cursor.slot_base;
    const int device = device_of(id);
    for (int stream = 0; stream < streams_; ++stream) {
      const StepRange range = ranges_of(instances_[cursor.position], stream);
      for (int s = range.begin; s < range.end; ++s) {
        const Step& owner = compiled_.steps[at(s)];
        if (owner.store_slot != slot) continue;
        if (step.kind == StepKind::kHost) {
          wait.task = compiled_.stream_tasks[at(owner.first_task + owner.task_count - 1)].task;
        }
        wait.what =
            stream == graph_.streams_per_device ? "host" : "stream " + std::to_string(stream);
        return device * streams_ + stream;
      }
    }
    return kNone;
  }

  // A stream on which a member of the activity has not arrived.
  int missing_member(int activity) const {
    for (std::size_t i = 0; i < graph_.instances.size(); ++i) {
      const Instance& instance = instances_[i];
      for (const Task& task : graph_.templates[at(instance.task_template)].tasks) {
        if (task.activity == kNone ||
            graph_.bound_activities[at(instance.first_activity + task.activity)] != activity) {
          continue;
        }
        const int id = instance.device * streams_ + task.stream;
        const Cursor& cursor = cursors_[at(id)];
        if (cursor.state != CursorState::kInActivity || cursor.waits_for != activity) return id;
      }
    }
    return kNone;
  }

  int releaser(int port) const {
    for (std::size_t i = 0; i < graph_.instances.size(); ++i) {
      const Instance& instance = instances_[i];
      for (const Task& task : graph_.templates[at(instance.task_template)].tasks) {
        for (const int slot : task.releases) {
          if (graph_.released_ports[at(instance.first_released + slot)] == port) {
            return instance.device * streams_ + task.stream;
          }
        }
      }
    }
    return kNone;
  }

  // ActivityState::end before it is known.
  static constexpr std::int64_t kStarting = -2;    // starts when the clock gets there
  static constexpr std::int64_t kInLatency = -3;   // has started
  static constexpr std::int64_t kMovingWork = -4;  // is a flow

  const TaskGraph& graph_;
  const SimulateOptions options_;
  CompiledGraph compiled_;
  int streams_;  // cursors per device
  std::vector<int> device_begin_;
  const Instance* instances_ = nullptr;
  std::vector<Instance> sorted_;
  std::vector<int> original_index_;  // empty: as in the graph
  std::vector<Cursor> cursors_;
  std::vector<Mark> marks_;
  std::vector<ActivityState> activities_;
  std::vector<std::int64_t> fixed_;
  std::vector<int> worklist_;
  std::vector<std::int64_t> busy_, waiting_, idle_;
  std::vector<Span> spans_;
  std::int64_t events_ = 0;

  std::optional<EventQueue> queue_;  // ids: activities, then cursors
  std::optional<FlowNetwork> network_;
  std::vector<Transfer> transfers_;
  std::int64_t clock_ = 0;
  bool moving_ = false;
  std::vector<Segment> segments_;  // by cursor
  std::vector<int> begun_;         // cursors whose segment began at this instant
  std::vector<int> changed_devices_;
  std::vector<int> environment_;  // by device, as of the last settled instant
  std::vector<int> environment_counts_;
  int environments_ = 1;
  std::vector<std::vector<std::int64_t>> prefix_sums_;
};

}  // namespace

Timeline simulate(const TaskGraph& graph, const SimulateOptions& options) {
  return Player(graph, options).play();
}

}  // namespace headway
