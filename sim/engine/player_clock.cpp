// The part of the player that moves with the clock: activities that share links, and work that they
// slow.
#include <algorithm>
#include <cassert>

#include "sim/engine/player.hpp"

namespace headway::engine {
namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

}  // namespace

// Everything that happens now: finish what ends, go on, start what can, until nothing more happens;
// only then environments and rates are brought up to date.
void Player::play_instant() {
  while (!queue_->empty() && queue_->next_time() == clock_) {
    while (!queue_->empty() && queue_->next_time() == clock_) handle(queue_->pop());
    run_ahead();
  }
  settle_environments();
  settle_rates();
}

void Player::handle(int event) {
  if (event < activity_count()) {
    handle_activity(event);
    return;
  }
  const int id = event - activity_count();
  CursorState& state = cursors_[at(id)].state;
  state = state == CursorState::kToBegin    ? CursorState::kRunning
          : state == CursorState::kToResume ? CursorState::kResumed
                                            : CursorState::kMoved;
  worklist_[at(work_++)] = id;
}

void Player::handle_activity(int index) {
  ActivityState& activity = activities_[at(index)];
  const std::int64_t latency = graph_.activities[at(index)].latency.picoseconds;
  if (activity.end == kStarting) {
    change_environment(index, +1);
    activity.end = kInLatency;
    queue_->schedule(index, clock_ + (activity.fixed == kNoIndex ? latency : activity.fixed));
  } else if (activity.end == kInLatency && activity.fixed == kNoIndex) {
    activity.end = kMovingWork;
    transfers_[at(index)] = {work_of(graph_.activities[at(index)].work), 0, clock_};
    network_->add(index);
  } else {
    if (activity.end == kMovingWork) network_->remove(index);
    activity.end = clock_;
    ++events_;
    change_environment(index, -1);
    wake_members(activity);
  }
}

// An activity begins or ends to be felt on its members' devices.
void Player::change_environment(int activity, int by) {
  const int bit = graph_.activities[at(activity)].environment;
  if (!compiled_.has_moving || bit == kNoIndex) return;
  for (int m = activities_[at(activity)].waiter; m != kNoIndex; m = cursors_[at(m)].next_waiter) {
    const int device = cursors_[at(m)].device;
    environment_counts_[at(device * kEnvironmentBits + bit)] += by;
    changed_devices_.push_back(device);
  }
}

void Player::settle_rates() {
  if (!network_) return;
  for (const int index : network_->solve()) {
    Transfer& transfer = transfers_[at(index)];
    transfer.left -= static_cast<Work>(transfer.rate) * (clock_ - transfer.since);
    transfer.since = clock_;
    transfer.rate = network_->rate(index);
    queue_->schedule(index, clock_ + time_to_move(transfer.left, transfer.rate));
  }
}

// A step whose tasks may be slowed begins when the clock gets there. True: it is done at once.
bool Player::begin_step(int id, Cursor& cursor, const Step& step, const Moment& ready) {
  if (ready.time > clock_) {
    cursor.state = CursorState::kToBegin;
    queue_->schedule(event_id(id), ready.time);
    return false;
  }
  if (options_.detail == Detail::kInstances) {
    InstanceTimes& times = instance_times_[at(id)];
    if (times.start < 0) times.start = ready.time;
  }
  segments_[at(id)].end = step.first_task;
  return begin_segment(id, cursor, step, ready);
}

// The step's next task has been launched, by now.
bool Player::resume_step(int id, Cursor& cursor, const Step& step) {
  const Moment& base = marks_[at(cursor.slot_base + step.base_slot)].moment();
  return begin_segment(id, cursor, step, Moment::ended(clock_, base.since(), base.cause()));
}

// Begins those tasks of the step that are not yet done and already launched, now.
bool Player::begin_segment(int id, Cursor& cursor, const Step& step, const Moment& ready) {
  assert(ready.time == clock_);
  if (cursor.stream == 0) book_gap(cursor.device, cursor.last.time, ready);
  Segment& segment = segments_[at(id)];
  segment.task = segment.end;
  segment.start = segment.since = segment.last_start = clock_;
  segment.environment = kNoIndex;
  const int last = step.first_task + step.task_count;
  std::int64_t base = 0;
  if (step.base_slot != kNoIndex)
    base = marks_[at(cursor.slot_base + step.base_slot)].moment().time;
  std::int64_t duration = 0;
  while (segment.end < last) {
    const StreamTask& task = compiled_.stream_tasks[at(segment.end)];
    if (step.base_slot != kNoIndex && base + task.launch > clock_) break;
    duration += task.duration;
    ++segment.end;
  }
  if (duration == 0) return finish_segment(id, cursor, step);
  if (options_.critical_path) segment_starts_.push_back({id, clock_, segment.task});
  cursor.state = CursorState::kMoving;
  begun_.push_back(id);
  return false;
}

// The clock has come to the end of the cursor's segment. True: the step is done.
bool Player::finish_segment(int id, Cursor& cursor, const Step& step) {
  const Segment& segment = segments_[at(id)];
  cursor.state = CursorState::kRunning;
  if (cursor.stream == 0) busy(cursor.device, step.cause) += clock_ - segment.start;
  const Moment end = Moment::ended(clock_, start_of_last(segment), step.cause);
  if (segment.end == step.first_task + step.task_count) {
    finish_step(cursor, step, segment.start, end);
    return true;
  }
  cursor.last = end;
  cursor.state = CursorState::kToResume;
  // The launch may well have happened while the segment ran.
  const std::int64_t launched = marks_[at(cursor.slot_base + step.base_slot)].moment().time +
                                compiled_.stream_tasks[at(segment.end)].launch;
  queue_->schedule(event_id(id), std::max(launched, clock_));
  return false;
}

// When the last task of a segment that ends now began.
std::int64_t Player::start_of_last(const Segment& segment) const {
  const int last = segment.end - 1;
  if (segment.task == last || segment.environment == kNoIndex) return segment.last_start;
  return clock_ - scaled(compiled_.stream_tasks[at(last)], segment.environment);
}

std::int64_t Player::slowdown(const StreamTask& task, int environment) const {
  if (task.sensitivity == kNoIndex) return kNoSlowdown;
  return graph_.slowdowns[at(task.sensitivity)][at(environment)];
}

// ceil(duration * slowdown)
std::int64_t Player::scaled(const StreamTask& task, int environment) const {
  const Work product = static_cast<Work>(task.duration) * slowdown(task, environment);
  return static_cast<std::int64_t>((product + kNoSlowdown - 1) / kNoSlowdown);
}

// Sums of the durations of a step's tasks in an environment, each task rounded up by itself.
const std::vector<std::int64_t>& Player::prefix_sums(int step_index, int environment) {
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
void Player::settle_environments() {
  if (!compiled_.has_moving) return;
  for (const int device : changed_devices_) {
    int environment = 0;
    for (int bit = 0; bit < kEnvironmentBits; ++bit) {
      if (environment_counts_[at(device * kEnvironmentBits + bit)] > 0) environment |= 1 << bit;
    }
    if (environment == environment_[at(device)]) continue;
    environment_[at(device)] = environment;
    for (int id = device * streams_; id < (device + 1) * streams_; ++id) {
      if (cursors_[at(id)].state == CursorState::kMoving &&
          segments_[at(id)].environment != kNoIndex) {
        carry_over(id, environment);
      }
    }
  }
  changed_devices_.clear();
  for (const int id : begun_) {
    Segment& segment = segments_[at(id)];
    segment.environment = environment_[at(cursors_[at(id)].device)];
    segment.left = scaled(compiled_.stream_tasks[at(segment.task)], segment.environment);
    schedule_end(id);
  }
  begun_.clear();
}

// Books what a segment has done since it was last looked at, and goes on in another environment.
void Player::carry_over(int id, int environment) {
  Segment& segment = segments_[at(id)];
  const int step_index = static_cast<int>(cursors_[at(id)].step - compiled_.steps.data());
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

void Player::schedule_end(int id) {
  const Segment& segment = segments_[at(id)];
  const int step_index = static_cast<int>(cursors_[at(id)].step - compiled_.steps.data());
  const int first = compiled_.steps[at(step_index)].first_task;
  const auto& sums = prefix_sums(step_index, segment.environment);
  queue_->schedule(event_id(id), segment.since + segment.left + sums[at(segment.end - first)] -
                                     sums[at(segment.task + 1 - first)]);
}

}  // namespace headway::engine
