// The part of the player that plays instances as a whole, where all that they wait for is known.
#include <algorithm>
#include <bit>
#include <cassert>

#include "sim/engine/player.hpp"

namespace headway::engine {
namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

}  // namespace

void Player::prepare_fronts() {
  wholes_ = find_whole_instances(compiled_);
  kept_.resize(at(compiled_.places()));
  int slots = 0;
  for (const WholeInstance& whole : wholes_) slots = std::max(slots, whole.slots);
  value_count_ = streams_ + slots;
  values_.resize(at(graph_.devices * value_count_));
  whole_counts_.assign(at(graph_.devices * compiled_.variants), 0);
  std::size_t columns = 0, marks = marks_.size();
  fronts_.resize(at(graph_.devices));
  for (int d = 0; d < graph_.devices; ++d) {
    Front& front = fronts_[at(d)];
    const PlacedInstance* const begin = compiled_.instances.get() + compiled_.device_begin[at(d)];
    front.instance = front.opened_end = begin;
    front.end = compiled_.instances.get() + compiled_.device_end[at(d)];
    front.standing = column_of(streams_) - 1;
    Columns waits_for = kAllStreams;
    for (const PlacedInstance* i = front.end; i != begin;) {
      const WholeInstance& whole = wholes_[at((--i)->variant)];
      if (whole.possible) {
        columns += whole.last.size();
      } else {
        marks += at(whole.slots);
      }
      const Columns with = waits_for & whole.visible_waits_for;
      if (with != waits_for) front.later.push_back({i, with});
      waits_for = with;
    }
  }
  marks_.reserve(marks);
  if (options_.critical_path) columns_ = std::make_unique_for_overwrite<std::int64_t[]>(columns);
}

// Plays instances as a whole as long as all is known.
void Player::play_front(int device) {
  Front& front = fronts_[at(device)];
  front.wanted = 0;
  front.unsure = false;
  while (front.instance != front.end) {
    const WholeInstance& whole = wholes_[at(front.instance->variant)];
    const Columns missing = whole.streams & ~front.standing;
    if (!whole.possible) {
      open(device);
    } else if (missing != 0) {
      front.wanted = column_of(std::countr_zero(missing));
      return wait_at_front(device, front.wanted);
    } else if (const WholeInstance::Awaited* unknown = unknown_port(front, whole)) {
      if (!front.parked) {
        park(device, graph_.awaited_ports[at(front.instance->first_awaited + unknown->slot)]);
        return wait_at_front(device, unknown->column);
      }
      open(device);  // it is still parked on a mark that it waited for before
    } else {
      play_whole(device, whole);
      ++front.instance;
    }
  }
  for (int s = 0; s < streams_; ++s) {
    if ((front.standing & column_of(s)) == 0) continue;
    cursors_[at(device * streams_ + s)].last = values_of(device)[s];
    cursors_[at(device * streams_ + s)].state = CursorState::kFinished;
  }
}

// An awaited port that has not been released; nullptr: there is none.
const WholeInstance::Awaited* Player::unknown_port(const Front& front,
                                                   const WholeInstance& whole) const {
  for (const WholeInstance::Awaited& awaited : whole.awaited) {
    const int port = graph_.awaited_ports[at(front.instance->first_awaited + awaited.slot)];
    if (!marks_[at(port)].known()) return &awaited;
  }
  return nullptr;
}

void Player::park(int device, int port) {
  Front& front = fronts_[at(device)];
  Mark& mark = marks_[at(port)];
  front.parked = true;
  front.next_waiter = mark.waiter();
  mark.set_waiter(front_id(device));
}

// The front waits for a column of its instance. It may do so for good if until then nothing that
// others can see happens on the device, neither in this instance nor in a later one.
void Player::wait_at_front(int device, Columns column) {
  Front& front = fronts_[at(device)];
  const WholeInstance& whole = wholes_[at(front.instance->variant)];
  while (!front.later.empty() && front.later.back().place <= front.instance) {
    front.later.pop_back();
  }
  const Columns all_later = front.later.empty() ? kAllStreams : front.later.back().waits_for;
  if (holds_back_all(whole, column) && (held_back(whole, column) & all_later) != 0) return;
  front.unsure = true;
  unsure_.push_back(device);
}

void Player::play_whole(int device, const WholeInstance& whole) {
  const PlacedInstance& instance = *fronts_[at(device)].instance;
  if (options_.critical_path) keep_columns(device, whole);
  Moment* const values = values_of(device);
  for (const WholeStep& step : whole.steps) {
    Moment& last = values[step.stream];
    const Moment ready = ready_in_whole(whole, step, instance, values);
    switch (step.kind) {
      case StepKind::kEnter:
        values[step.store] = ready;
        break;
      case StepKind::kHost: {
        const HostMoments host =
            HostMoments::of(last, ready.time, step.times.duration, host_cause_);
        if (step.store != kNoIndex) values[step.store] = host.base;
        last = host.last;
        break;
      }
      case StepKind::kActivity:
        arrive_in_whole(device, step, ready);
        break;
      case StepKind::kWork: {
        const Moment* const base = step.base == kNoIndex ? nullptr : values + step.base;
        const Moment end = end_of_work(device, step.stream, step.times, last, ready, base);
        last = end;
        if (step.store != kNoIndex) values[step.store] = end;
        release(instance, *step.step, end);
        break;
      }
    }
  }
  ++whole_counts_[at(device * compiled_.variants + instance.variant)];
}

// What the step waits for, of several the first.
inline Moment Player::ready_in_whole(const WholeInstance& whole, const WholeStep& step,
                                     const PlacedInstance& instance, const Moment* values) const {
  Moment ready = values[step.stream];
  for (int s = step.sources_begin; s < step.sources_end; ++s) {
    ready.wait_for(values[whole.sources[at(s)]]);
  }
  for (int p = step.step->awaits_begin; p < step.step->awaits_end; ++p) {
    const int port = graph_.awaited_ports[at(instance.first_awaited + compiled_.ports[at(p)])];
    ready.wait_for(marks_[at(port)].moment());
  }
  if (step.base != kNoIndex) {
    const Moment& base = values[step.base];
    ready.wait_for_launch(base.time + step.times.launch_first, base);
  }
  return ready;
}

// The last step of a stream in the instance: goes on with the activity, or leaves the front.
void Player::arrive_in_whole(int device, const WholeStep& step, const Moment& ready) {
  Front& front = fronts_[at(device)];
  const int id = device * streams_ + step.stream;
  Moment& last = values_of(device)[step.stream];
  Cursor& cursor = cursors_[at(id)];
  cursor.last = last;
  cursor.instance = front.instance;
  cursor.step = step.step;
  cursor.step_end = step.step + 1;
  if (arrive(id, cursor, *step.step, *front.instance, ready)) {
    last = cursor.last;
  } else {
    front.standing &= ~column_of(step.stream);
  }
}

void Player::keep_columns(int device, const WholeInstance& whole) {
  kept_[at(place_of(*fronts_[at(device)].instance))] = -1 - column_count_;
  const Moment* const values = values_of(device);
  for (const WholeInstance::Last& last : whole.last) {
    columns_[at(column_count_++)] = values[last.stream].time;
  }
}

// What does not depend on when an instance was played is counted once for all.
void Player::book_wholes() {
  if (fronts_.empty()) return;
  for (int d = 0; d < graph_.devices; ++d) {
    for (int v = 0; v < compiled_.variants; ++v) {
      const int count = whole_counts_[at(d * compiled_.variants + v)];
      events_ += std::int64_t{count} * wholes_[at(v)].tasks;
      for (const BusyTime& time : wholes_[at(v)].busy) {
        busy(d, time.cause) += count * time.duration;
      }
    }
  }
}

// Leaves the front's instance to the cursors.
void Player::open(int device) {
  Front& front = fronts_[at(device)];
  const WholeInstance& whole = wholes_[at(front.instance->variant)];
  kept_[at(place_of(*front.instance))] = static_cast<int>(marks_.size());
  marks_.resize(marks_.size() + at(whole.slots));
  for (Columns streams = whole.streams & front.standing; streams != 0; streams &= streams - 1) {
    const int id = device * streams_ + std::countr_zero(streams);
    cursors_[at(id)].last = values_of(device)[std::countr_zero(streams)];
    cursors_[at(id)].instance = front.instance;
    enter(cursors_[at(id)]);
    worklist_[at(work_++)] = id;
  }
  front.standing &= ~whole.streams;
  front.opened_end = ++front.instance;
  front.unsure = false;
}

// Nothing else can go on: what fronts wait for may depend on what their devices could still do.
// Opens their instances; false where there are none.
bool Player::open_unsure() {
  for (const int device : unsure_) {
    if (!fronts_[at(device)].unsure) continue;
    open(device);
    worklist_[at(work_++)] = front_id(device);
  }
  unsure_.clear();
  return work_ > 0;
}

// Whatever still waits will wait for ever: it is put in the words of the cursors, for the report.
void Player::open_all() {
  for (bool all_at_end = false; !all_at_end;) {
    for (int d = 0; d < static_cast<int>(fronts_.size()); ++d) {
      Front& front = fronts_[at(d)];
      if (front.instance == front.end) continue;
      front.unsure = true;
      unsure_.push_back(d);
    }
    all_at_end = unsure_.empty();
    run_ahead();
  }
}

// The cursor has played all before its device's front.
void Player::stand(Cursor& cursor) {
  Front& front = fronts_[at(cursor.device)];
  const Columns column = column_of(cursor.stream);
  cursor.step = cursor.step_end = nullptr;
  values_of(cursor.device)[cursor.stream] = cursor.last;
  front.standing |= column;
  if (front.instance == front.end) {
    cursor.state = CursorState::kFinished;
  } else if (front.wanted == column) {
    front.wanted = 0;
    worklist_[at(work_++)] = front_id(cursor.device);
  }
}

}  // namespace headway::engine
