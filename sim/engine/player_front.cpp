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
  borrowed_slots_ = static_cast<int>(marks_.size());
  marks_.resize(marks_.size() + at(slots));
  fronts_.resize(at(graph_.devices));
  for (int d = 0; d < graph_.devices; ++d) {
    Front& front = fronts_[at(d)];
    const PlacedInstance* const begin = compiled_.instances.get() + compiled_.device_begin[at(d)];
    front.instance = front.opened_end = begin;
    front.end = compiled_.instances.get() + compiled_.device_end[at(d)];
    front.standing = column_of(streams_) - 1;
    Columns waits_for = kAllStreams;
    for (const PlacedInstance* i = front.end; i != begin;) {
      const Columns with = waits_for & wholes_[at((--i)->variant)].visible_waits_for;
      if (with != waits_for) front.later.push_back({i, with});
      waits_for = with;
    }
  }
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
    if ((front.standing & column_of(s)) != 0) stand(cursors_[at(device * streams_ + s)]);
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
  Front& front = fronts_[at(device)];
  keep_columns(device, whole);
  std::fill_n(marks_.begin() + borrowed_slots_, whole.slots, Mark());
  for (const auto& [step, stream] : whole.steps) {
    const int id = device * streams_ + stream;
    Cursor& cursor = cursors_[at(id)];
    cursor.instance = front.instance;
    cursor.slot_base = borrowed_slots_;
    if (play_step(id, cursor, *step)) continue;
    // It has arrived at an activity, the stream's last step here.
    front.standing &= ~column_of(stream);
    cursor.step = step;
    cursor.step_end = step + 1;
  }
}

void Player::keep_columns(int device, const WholeInstance& whole) {
  if (!options_.critical_path) return;
  kept_[at(place_of(*fronts_[at(device)].instance))] = -1 - static_cast<int>(columns_.size());
  for (const WholeInstance::Last& last : whole.last) {
    columns_.push_back(cursors_[at(device * streams_ + last.stream)].last.time);
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

// Whatever still waits will wait for ever: in the words of the cursors, for the report.
void Player::open_all() {
  for (std::size_t d = 0; d < fronts_.size(); ++d) {
    if (fronts_[d].instance == fronts_[d].end) continue;
    fronts_[d].unsure = true;
    unsure_.push_back(static_cast<int>(d));
  }
  if (!unsure_.empty()) run_ahead();
}

// The cursor has played all before its device's front.
void Player::stand(Cursor& cursor) {
  Front& front = fronts_[at(cursor.device)];
  const Columns column = column_of(cursor.stream);
  cursor.step = cursor.step_end = nullptr;
  front.standing |= column;
  if (front.instance == front.end) {
    cursor.state = CursorState::kFinished;
  } else if (front.wanted == column) {
    front.wanted = 0;
    worklist_[at(work_++)] = front_id(cursor.device);
  }
}

}  // namespace headway::engine
