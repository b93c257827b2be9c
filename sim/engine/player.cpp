#include "sim/engine/player.hpp"

#include <cassert>
#include <utility>

#include "sim/engine/link_pruning.hpp"

namespace headway::engine {
namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

constexpr int kInstancesAhead = 6;  // prefetched: some three cache lines

}  // namespace

Player::Player(const TaskGraph& graph, const SimulateOptions& options)
    : graph_(graph),
      options_(options),
      host_cause_(graph.host_cause == kNoIndex ? kIdleCause : graph.host_cause),
      compiled_(compile(graph, options.detail != Detail::kTasks)),
      streams_(compiled_.streams) {
  prepare_cursors();
  if (options.detail == Detail::kTotals && compiled_.has_slots && streams_ <= kMostStreams) {
    prepare_fronts();
  } else {
    prepare_slots();
  }
  prepare_activities();
  prepare_clock();
}

Timeline Player::play() {
  // The lowest on top.
  if (fronts_.empty()) {
    for (int id = cursor_count() - 1; id >= 0; --id) worklist_[at(work_++)] = id;
  }
  for (int d = static_cast<int>(fronts_.size()) - 1; d >= 0; --d) {
    worklist_[at(work_++)] = front_id(d);
  }
  run_ahead();
  if (queue_) {
    play_instant();
    while (!queue_->empty()) {
      clock_ = queue_->next_time();
      play_instant();
    }
  }
  open_all();
  book_wholes();
  return result();
}

// --- set-up ---

void Player::prepare_cursors() {
  cursors_.resize(at(graph_.devices * streams_));
  // A front stands there at most twice: woken by a mark, and by a stream.
  worklist_.resize(cursors_.size() + 2 * at(graph_.devices));
  busy_.assign(at(graph_.devices) * at(options_.causes), 0);
  waiting_.assign(busy_.size(), 0);
  idle_.assign(at(graph_.devices), 0);
  for (int d = 0; d < graph_.devices; ++d) {
    for (int s = 0; s < streams_; ++s) {
      Cursor& cursor = cursors_[at(d * streams_ + s)];
      cursor.device = d;
      cursor.stream = s;
      cursor.instance = compiled_.instances.get() + compiled_.device_begin[at(d)];
      cursor.end = compiled_.instances.get() + compiled_.device_end[at(d)];
      cursor.by_variant = compiled_.stream_steps.data() + at(s) * at(compiled_.variants);
      cursor.busy = busy_.data() + at(d) * at(options_.causes);
    }
  }
  if (options_.detail == Detail::kInstances) instance_times_.resize(cursors_.size());
  marks_.resize(at(graph_.ports));
}

// Every instance is played by the cursors: each has its slots.
void Player::prepare_slots() {
  if (!compiled_.has_slots) return;
  kept_.resize(at(compiled_.places()));
  std::size_t marks = marks_.size();
  for (int d = 0; d < graph_.devices; ++d) {
    for (int p = compiled_.device_begin[at(d)]; p < compiled_.device_end[at(d)]; ++p) {
      kept_[at(p)] = static_cast<int>(marks);
      marks += at(compiled_.stream_steps[at(compiled_.instances[at(p)].variant)].slots);
    }
  }
  marks_.resize(marks);
}

void Player::prepare_activities() {
  const std::vector<std::int64_t> fixed = fixed_durations(graph_);
  activities_.resize(fixed.size());
  for (std::size_t a = 0; a < fixed.size(); ++a) {
    activities_[a].missing = graph_.activities[a].members;
    activities_[a].end = fixed[a];
  }
}

void Player::prepare_clock() {
  const bool fluid = std::any_of(activities_.begin(), activities_.end(),
                                 [](const ActivityState& a) { return a.end == kNoIndex; });
  if (!compiled_.has_moving && !fluid) return;
  queue_.emplace(activity_count() + cursor_count());
  if (fluid) {
    network_.emplace(graph_);
    transfers_.resize(activities_.size());
  }
  if (!compiled_.has_moving) return;
  segments_.resize(cursors_.size());
  environment_.assign(at(graph_.devices), 0);
  environment_counts_.assign(at(graph_.devices) * kEnvironmentBits, 0);
  for (const auto& row : graph_.slowdowns) {
    environments_ = std::max(environments_, static_cast<int>(row.size()));
  }
  prefix_sums_.resize(compiled_.steps.size() * at(environments_));
}

// --- fixed work ---

[[gnu::always_inline]] inline bool Player::known(int id, Cursor& cursor, int mark_index) {
  Mark& mark = marks_[at(mark_index)];
  if (mark.known()) return true;
  cursor.state = CursorState::kOnMark;
  cursor.waits_for = mark_index;
  cursor.next_waiter = mark.waiter();
  mark.set_waiter(id);
  return false;
}

inline bool Player::await(int id, Cursor& cursor, int mark_index, Moment& ready) {
  if (!known(id, cursor, mark_index)) return false;
  ready.wait_for(marks_[at(mark_index)].moment());
  return true;
}

inline void Player::wake_waiters(int waiter) {
  do {
    worklist_[at(work_++)] = waiter;
    if (waiter < cursor_count()) {
      Cursor& cursor = cursors_[at(waiter)];
      cursor.state = CursorState::kRunning;
      waiter = cursor.next_waiter;
    } else {
      Front& front = fronts_[at(waiter - cursor_count())];
      front.parked = false;
      waiter = front.next_waiter;
    }
  } while (waiter != kNoIndex);
}

[[gnu::always_inline]] inline void Player::note(int mark_index, const Moment& moment) {
  Mark& mark = marks_[at(mark_index)];
  assert(!mark.known());
  const int waiter = mark.waiter();
  mark.set(moment);
  if (waiter != kNoIndex) wake_waiters(waiter);
}

// How far the cursor may go by itself.
inline const PlacedInstance* Player::limit_of(const Cursor& cursor) const {
  return fronts_.empty() ? cursor.end : fronts_[at(cursor.device)].instance;
}

// Goes on to the next instance, of those that it may play, with steps on this stream. False: there
// is none.
bool Player::enter_next_instance(Cursor& cursor) {
  if (options_.detail == Detail::kInstances) close_instance(cursor);
  if (cursor.step != nullptr) ++cursor.instance;
  const PlacedInstance* const limit = limit_of(cursor);
  // What was played as a whole without this stream has no steps for it.
  if (!fronts_.empty() && cursor.instance >= fronts_[at(cursor.device)].opened_end) {
    cursor.instance = limit;
  }
  for (; cursor.instance != limit; ++cursor.instance) {
    const StreamSteps& steps = cursor.by_variant[cursor.instance->variant];
    if (steps.begin == steps.end) continue;
    enter(cursor);
    return true;
  }
  reach_limit(cursor);
  return false;
}

void Player::enter(Cursor& cursor) {
  const StreamSteps& steps = cursor.by_variant[cursor.instance->variant];
  cursor.step = steps.begin;
  cursor.step_end = steps.end;
  if (!kept_.empty()) cursor.slot_base = kept_[at(place_of(*cursor.instance))];
}

inline void Player::reach_limit(Cursor& cursor) {
  if (fronts_.empty()) {
    cursor.state = CursorState::kFinished;
  } else {
    stand(cursor);
  }
}

// Plays steps as long as they are simple, also of the next instances. The same as play_step, but
// with the cursor in registers: most of a pipeline's instances are one such step.
[[gnu::always_inline]] inline bool Player::play_simple_steps(int id, Cursor& cursor) {
  const StreamSteps* const by_variant = cursor.by_variant;
  const PlacedInstance* const limit = limit_of(cursor);
  const PlacedInstance* instance = cursor.instance;
  const StreamSteps* steps = by_variant + instance->variant;
  const Step* step = cursor.step;
  Moment last = cursor.last;
  bool goes_on = true;
  while (step->simple) {
    if (step->only_await != kNoIndex) {
      const int port = graph_.awaited_ports[at(instance->first_awaited + step->only_await)];
      if (!known(id, cursor, port)) {
        goes_on = false;
        break;
      }
      const Moment& awaited = marks_[at(port)].moment();
      if (awaited.time > last.time) {
        if (cursor.stream == 0) book_gap(cursor.device, last.time, awaited);
        last.time = awaited.time;
      }
    }
    last.time += step->duration;
    last.origin = step->origin;
    if (cursor.stream == 0) cursor.busy[step->cause] += step->duration;
    if (step->only_release != kNoIndex) {
      note(graph_.released_ports[at(instance->first_released + step->only_release)], last);
    }
    events_ += step->task_count;
    if (++step != steps->end) continue;
    do {
      if (++instance == limit) break;
      steps = by_variant + instance->variant;
      step = steps->begin;
    } while (step == steps->end);
    // Many devices take turns, in too many places for the processor to see that each goes on in
    // order.
    __builtin_prefetch(instance + kInstancesAhead);
    if (instance == limit) {
      cursor.last = last;
      cursor.instance = instance;
      reach_limit(cursor);
      return false;
    }
    if (!kept_.empty()) cursor.slot_base = kept_[at(place_of(*instance))];
  }
  cursor.last = last;
  cursor.instance = instance;
  cursor.step = step;
  cursor.step_end = steps->end;
  return goes_on;
}

void Player::run_ahead() {
  const bool only_totals = options_.detail == Detail::kTotals;
  do {
    while (work_ > 0) {
      const int id = worklist_[at(--work_)];
      if (id >= cursor_count()) {
        play_front(id - cursor_count());
        continue;
      }
      Cursor& cursor = cursors_[at(id)];
      // A cursor that waited for a port most often waited before a simple step.
      const bool simple = only_totals && cursor.step != cursor.step_end && cursor.step->simple;
      if (!simple || play_simple_steps(id, cursor)) run(id);
    }
  } while (open_unsure());
}

void Player::run(int id) {
  Cursor& cursor = cursors_[at(id)];
  for (;;) {
    while (cursor.step == cursor.step_end) {
      if (!enter_next_instance(cursor)) return;
    }
    const Step& step = *cursor.step;
    if (step.simple && options_.detail == Detail::kTotals) {
      if (!play_simple_steps(id, cursor)) return;
    } else {
      if (!play_step(id, cursor, step)) return;
      ++cursor.step;
    }
  }
}

bool Player::play_step(int id, Cursor& cursor, const Step& step) {
  if (cursor.state != CursorState::kRunning) {
    if (cursor.state == CursorState::kArrived) return finish_activity(cursor, step);
    if (cursor.state == CursorState::kMoved) return finish_segment(id, cursor, step);
    if (cursor.state == CursorState::kResumed) return resume_step(id, cursor, step);
  }
  Moment ready = cursor.last;
  for (int w = step.waits_begin; w < step.waits_end; ++w) {
    if (!await(id, cursor, cursor.slot_base + compiled_.waits[at(w)], ready)) return false;
  }
  if (step.kind == StepKind::kHost) return play_host(cursor, step, ready);
  if (step.kind == StepKind::kEnter) {
    note(cursor.slot_base + step.store_slot, ready);
    return true;
  }
  const PlacedInstance& instance = *cursor.instance;
  for (int p = step.awaits_begin; p < step.awaits_end; ++p) {
    const int port = graph_.awaited_ports[at(instance.first_awaited + compiled_.ports[at(p)])];
    if (!await(id, cursor, port, ready)) return false;
  }
  const Moment* base = nullptr;
  if (step.base_slot != kNoIndex) {
    const int slot = cursor.slot_base + step.base_slot;
    if (!known(id, cursor, slot)) return false;
    base = &marks_[at(slot)].moment();
    ready.wait_for_launch(base->time + step.launch_first, *base);
  }
  if (step.kind == StepKind::kActivity) return arrive(id, cursor, step, instance, ready);
  if (instance.moves_with_clock()) return begin_step(id, cursor, step, ready);
  return play_work(cursor, step, ready, base);
}

bool Player::play_host(Cursor& cursor, const Step& step, const Moment& ready) {
  const HostMoments host = HostMoments::of(cursor.last, ready.time, step.duration, host_cause_);
  note(cursor.slot_base + step.store_slot, host.base);
  cursor.last = host.last;
  if (options_.detail == Detail::kInstances && step.duration > 0) {
    record_host(cursor, ready.time, cursor.last.time);
  }
  return true;
}

bool Player::play_work(Cursor& cursor, const Step& step, const Moment& ready, const Moment* base) {
  for (int b = step.busy_begin; cursor.stream == 0 && b < step.busy_end; ++b) {
    cursor.busy[compiled_.busy[at(b)].cause] += compiled_.busy[at(b)].duration;
  }
  finish_step(cursor, step, ready.time,
              end_of_work(cursor.device, cursor.stream, step, cursor.last, ready, base));
  return true;
}

void Player::finish_step(Cursor& cursor, const Step& step, std::int64_t start, const Moment& end) {
  cursor.last = end;
  events_ += step.task_count;
  if (options_.detail != Detail::kTotals) record(cursor, step, start, end.time);
  if (step.store_slot != kNoIndex) note(cursor.slot_base + step.store_slot, end);
  release(*cursor.instance, step, end);
}

void Player::release(const PlacedInstance& instance, const Step& step, const Moment& end) {
  for (int p = step.releases_begin; p < step.releases_end; ++p) {
    note(graph_.released_ports[at(instance.first_released + compiled_.ports[at(p)])], end);
  }
}

// --- spans ---

void Player::record(const Cursor& cursor, const Step& step, std::int64_t start, std::int64_t end) {
  if (options_.detail == Detail::kInstances) {
    InstanceTimes& times = instance_times_[at(cursor.device * streams_ + cursor.stream)];
    if (times.start < 0) times.start = start;
    times.end = end;
    return;
  }
  const StreamTask& task = compiled_.stream_tasks[at(step.first_task)];
  const int instance = index_of(compiled_, cursor.device, *cursor.instance);
  spans_.push_back({{start}, {end}, cursor.device, cursor.stream, instance, task.task});
  if (step.base_slot != kNoIndex && task.host > 0) {
    const std::int64_t launched =
        marks_[at(cursor.slot_base + step.base_slot)].moment().time + task.launch;
    spans_.push_back({{launched - task.host},
                      {launched},
                      cursor.device,
                      graph_.streams_per_device,
                      instance,
                      task.task});
  }
}

void Player::record_host(const Cursor& cursor, std::int64_t start, std::int64_t end) {
  InstanceTimes& times = instance_times_[at(cursor.device * streams_ + cursor.stream)];
  if (times.start < 0) times.start = start;
  times.end = end;
}

void Player::close_instance(const Cursor& cursor) {
  InstanceTimes& times = instance_times_[at(cursor.device * streams_ + cursor.stream)];
  if (times.start < 0) return;
  spans_.push_back({{times.start},
                    {times.end},
                    cursor.device,
                    cursor.stream,
                    index_of(compiled_, cursor.device, *cursor.instance),
                    -1});
  times = {};
}

// --- activities ---

bool Player::arrive(int id, Cursor& cursor, const Step& step, const PlacedInstance& instance,
                    const Moment& ready) {
  const int index = graph_.bound_activities[at(instance.first_activity + step.activity)];
  ActivityState& activity = activities_[at(index)];
  assert(activity.missing > 0);
  if (ready.time > activity.start.time ||
      (ready.time == activity.start.time && id < activity.latest)) {
    activity.start = ready;
    activity.latest = id;
  }
  cursor.waits_for = index;
  if (--activity.missing == 0 && start_activity(index)) {
    // It has ended, ahead of the clock: this cursor goes on now, the others later.
    wake_members(activity);
    return finish_activity(cursor, step);
  }
  cursor.state = CursorState::kInActivity;
  cursor.next_waiter = std::exchange(activity.waiter, id);
  return false;
}

// All members are ready. True: its end is known.
bool Player::start_activity(int index) {
  ActivityState& activity = activities_[at(index)];
  if (compiled_.has_moving && graph_.activities[at(index)].environment != kNoIndex) {
    activity.fixed = std::exchange(activity.end, kStarting);
    queue_->schedule(index, activity.start.time);
    return false;
  }
  if (activity.end == kNoIndex) {
    activity.end = kInLatency;
    queue_->schedule(index, activity.start.time + graph_.activities[at(index)].latency.picoseconds);
    return false;
  }
  activity.end += activity.start.time;
  ++events_;
  return true;
}

void Player::wake_members(ActivityState& activity) {
  for (int member = std::exchange(activity.waiter, kNoIndex); member != kNoIndex;) {
    Cursor& cursor = cursors_[at(member)];
    cursor.state = CursorState::kArrived;
    worklist_[at(work_++)] = member;
    member = std::exchange(cursor.next_waiter, kNoIndex);
  }
}

bool Player::finish_activity(Cursor& cursor, const Step& step) {
  const ActivityState& activity = activities_[at(cursor.waits_for)];
  cursor.state = CursorState::kRunning;
  const std::int64_t start = activity.start.time;
  if (cursor.stream == 0) {
    book_gap(cursor.device, cursor.last.time, activity.start);
    busy(cursor.device, step.cause) += activity.end - start;
  }
  finish_step(cursor, step, start, Moment::ended(activity.end, start, step.cause));
  return true;
}

// --- result ---

Timeline Player::result() {
  Timeline timeline;
  timeline.events = events_;
  timeline.devices.resize(at(graph_.devices));
  bool all_finished = true;
  for (const Cursor& cursor : cursors_) {
    all_finished &= cursor.state == CursorState::kFinished;
    if (cursor.stream == graph_.streams_per_device) continue;  // the host's time is not work
    Time& end = timeline.devices[at(cursor.device)].end;
    end = std::max(end, Time{cursor.last.time});
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
    totals.idle = Time{idle_[d]} + (timeline.makespan - Time{main.last.time});
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
  if (all_finished && options_.critical_path) {
    timeline.critical_path = critical_path(timeline.makespan);
  }
  return timeline;
}

}  // namespace headway::engine
