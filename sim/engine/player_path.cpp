// The critical path of a run that has just been played, from what the player still knows: when each
// port was released, each slot noted, each activity begun. Going back from the end, a step of fixed
// work began its duration earlier, at the moment of one of the marks it waited for or else, where
// none of them fits, when the step before it on its stream ended. So nothing is recorded while
// playing but where work that moves with the clock began.
#include <algorithm>
#include <array>
#include <cassert>

#include "sim/engine/player.hpp"

namespace headway::engine {
namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

}  // namespace

class Player::PathFinder {
 public:
  explicit PathFinder(const Player& player)
      : player_(player),
        compiled_(player.compiled_),
        graph_(player.graph_),
        causes_(at(player.options_.causes)) {
    index_places();
    index_segments();
  }

  std::vector<Time> find(Time makespan) {
    time_ = makespan.picoseconds;
    if (time_ > 0) go_to_end();
    while (time_ > 0) play_back();
    return causes_;
  }

 private:
  // A step of a cursor in an instance.
  struct Position {
    int cursor = 0;
    const PlacedInstance* instance = nullptr;
    const Step* step = nullptr;
  };

  int stream_of(int cursor) const { return player_.cursors_[at(cursor)].stream; }
  int first_cursor(int cursor) const {
    return player_.cursors_[at(cursor)].device * player_.streams_;
  }
  const StreamSteps& steps_of(int cursor, const PlacedInstance& instance) const {
    return player_.cursors_[at(cursor)].by_variant[instance.variant];
  }
  const Moment& moment(int mark) const { return player_.marks_[at(mark)].moment(); }

  // When a slot of the position's instance was noted. Those of an instance that was played as a
  // whole were not kept, but the columns that they follow from.
  std::int64_t slot_time(int slot) {
    const int place = player_.place_of(*position_.instance);
    const int kept = player_.kept_[at(place)];
    if (kept >= 0) return moment(kept + slot).time;
    if (replayed_ != place) replay(*position_.instance, player_.columns_.get() - 1 - kept);
    replayed_ = place;
    return replayed_slots_[at(slot)];
  }

  void replay(const PlacedInstance& instance, const std::int64_t* columns) {
    const WholeInstance& whole = player_.wholes_[at(instance.variant)];
    replayed_slots_.resize(std::max(replayed_slots_.size(), at(whole.slots)));
    std::array<std::int64_t, kMostStreams> last;
    for (const WholeInstance::Last& stream : whole.last) last[at(stream.stream)] = *columns++;
    for (const auto& [step, stream] : whole.order) {
      if (step->kind == StepKind::kActivity) continue;  // nothing here waits for it
      std::int64_t time = last[at(stream)];
      for (int w = step->waits_begin; w < step->waits_end; ++w) {
        time = std::max(time, replayed_slots_[at(compiled_.waits[at(w)])]);
      }
      for (int p = step->awaits_begin; p < step->awaits_end; ++p) {
        const int slot = compiled_.ports[at(p)];
        time = std::max(time, moment(graph_.awaited_ports[at(instance.first_awaited + slot)]).time);
      }
      std::int64_t end = time + step->duration;
      if (step->base_slot != kNoIndex) end = step->end(time, replayed_slots_[at(step->base_slot)]);
      last[at(stream)] = end;
      if (step->store_slot == kNoIndex) continue;
      replayed_slots_[at(step->store_slot)] = step->kind == StepKind::kHost ? time : end;
    }
  }

  // Who releases each port, who binds each activity.
  void index_places() {
    releaser_.assign(at(graph_.ports), kNoIndex);
    first_member_.assign(graph_.activities.size(), kNoIndex);
    count_bindings();
    for (int d = 0; d < graph_.devices; ++d) {
      for (int p = compiled_.device_begin[at(d)]; p < compiled_.device_end[at(d)]; ++p) {
        const PlacedInstance& instance = compiled_.instances[at(p)];
        const auto& [releases, activities] = bindings_[at(instance.variant / 2)];
        for (int r = 0; r < releases; ++r) {
          releaser_[at(graph_.released_ports[at(instance.first_released + r)])] = p;
        }
        for (int a = 0; a < activities; ++a) {
          int& first = first_member_[at(graph_.bound_activities[at(instance.first_activity + a)])];
          members_.push_back({p, d, first});
          first = static_cast<int>(members_.size()) - 1;
        }
      }
    }
  }

  void count_bindings() {
    for (const TaskTemplate& one : graph_.templates) {
      Bindings bindings;
      for (const Task& task : one.tasks) {
        for (const int slot : task.releases)
          bindings.releases = std::max(bindings.releases, slot + 1);
        bindings.activities = std::max(bindings.activities, task.activity + 1);
      }
      bindings_.push_back(bindings);
    }
  }

  // Segments of one cursor stand together, in order of time.
  void index_segments() {
    first_segment_.assign(player_.cursors_.size() + 1, 0);
    for (const SegmentStart& segment : player_.segment_starts_) {
      ++first_segment_[at(segment.cursor + 1)];
    }
    for (std::size_t c = 1; c < first_segment_.size(); ++c) {
      first_segment_[c] += first_segment_[c - 1];
    }
    segments_.resize(player_.segment_starts_.size());
    std::vector<int> next(first_segment_.begin(), first_segment_.end() - 1);
    for (const SegmentStart& segment : player_.segment_starts_) {
      segments_[at(next[at(segment.cursor)]++)] = segment;
    }
  }

  // To what ended last of all; of several, on the lowest device and stream.
  void go_to_end() {
    for (const Cursor& cursor : player_.cursors_) {
      if (cursor.stream == graph_.streams_per_device || cursor.last.time != time_) continue;
      position_.cursor = cursor.device * player_.streams_ + cursor.stream;
      position_.instance = cursor.end;
      position_.step = nullptr;
      go_to_step_before();
      return;
    }
  }

  // The step before this one on its stream; the run's first step began at 0.
  void go_to_step_before() {
    const Cursor& cursor = player_.cursors_[at(position_.cursor)];
    const PlacedInstance* const begin =
        compiled_.instances.get() + compiled_.device_begin[at(cursor.device)];
    if (position_.step != nullptr &&
        position_.step != steps_of(position_.cursor, *position_.instance).begin) {
      --position_.step;
      return;
    }
    while (position_.instance != begin) {
      --position_.instance;
      const StreamSteps& steps = steps_of(position_.cursor, *position_.instance);
      if (steps.begin == steps.end) continue;
      position_.step = steps.end - 1;
      return;
    }
    assert(false && "a stream's first step begins at 0 or when something else ends");
    time_ = 0;
  }

  void book(int cause, std::int64_t duration) {
    if (cause != kNoIndex) causes_[at(cause)] += Time{duration};
  }

  // The step ended now: books it and goes to what ended when it began.
  void play_back() {
    const Step& step = *position_.step;
    switch (step.kind) {
      case StepKind::kEnter:
        return go_to_step_before();
      case StepKind::kHost:
        book(graph_.host_cause, step.duration);
        time_ -= step.duration;
        return go_before(step);
      case StepKind::kActivity:
        return play_back_activity(step);
      case StepKind::kWork:
        return position_.instance->moves_with_clock() ? play_back_segment(step)
                                                      : play_back_work(step);
    }
  }

  void play_back_work(const Step& step) {
    if (step.base_slot != kNoIndex) {
      const std::int64_t base = slot_time(step.base_slot);
      if (base + step.launch_tail == time_) return play_back_launched(step, base);
    }
    for (int b = step.busy_begin; b < step.busy_end; ++b) {
      book(compiled_.busy[at(b)].cause, compiled_.busy[at(b)].duration);
    }
    time_ -= step.duration;
    go_before(step);
  }

  // The launch of one of the step's tasks was late, and from then on it ran without a gap.
  void play_back_launched(const Step& step, std::int64_t base) {
    const auto& tasks = graph_.templates[at(position_.instance->variant / 2)].tasks;
    std::int64_t left = time_ - base;
    for (int t = step.first_task + step.task_count - 1;; --t) {
      const StreamTask& task = compiled_.stream_tasks[at(t)];
      book(tasks[at(task.task)].cause, task.duration);
      left -= task.duration;
      if (task.launch == left || t == step.first_task) break;
    }
    time_ = base + left;
    go_before_launch(step, base);
  }

  // What the host did from where it stood until the launch, which is now.
  void go_before_launch(const Step& step, std::int64_t base) {
    book(graph_.host_cause, time_ - base);
    time_ = base;
    position_.cursor = first_cursor(position_.cursor) + graph_.streams_per_device;
    go_to_owner(step.base_slot);
    go_before(*position_.step);
  }

  void play_back_segment(const Step& step) {
    // The last of the cursor's segments that began before now.
    const auto end = segments_.begin() + first_segment_[at(position_.cursor + 1)];
    const auto after = std::lower_bound(
        segments_.begin() + first_segment_[at(position_.cursor)], end, time_,
        [](const SegmentStart& segment, std::int64_t time) { return segment.start < time; });
    const bool none = after == segments_.begin() + first_segment_[at(position_.cursor)] ||
                      (after - 1)->task < step.first_task ||
                      (after - 1)->task >= step.first_task + step.task_count;
    if (none) return go_before(step);  // the step has no length
    const SegmentStart& segment = *(after - 1);
    book(step.cause, time_ - segment.start);
    time_ = segment.start;
    if (segment.task == step.first_task) return go_before(step);
    const std::int64_t base = slot_time(step.base_slot);
    if (base + compiled_.stream_tasks[at(segment.task)].launch == time_) {
      go_before_launch(step, base);
    }
  }

  void play_back_activity(const Step& step) {
    const int activity =
        graph_.bound_activities[at(position_.instance->first_activity + step.activity)];
    const ActivityState& state = player_.activities_[at(activity)];
    book(step.cause, time_ - state.start.time);
    time_ = state.start.time;
    if (time_ == 0) return;
    go_to_member(activity, state.latest);
    go_before(*position_.step);
  }

  void go_to_member(int activity, int cursor) {
    position_.cursor = cursor;
    for (int m = first_member_[at(activity)]; m != kNoIndex; m = members_[at(m)].next) {
      const Member& member = members_[at(m)];
      if (member.device != player_.cursors_[at(cursor)].device) continue;
      position_.instance = compiled_.instances.get() + member.place;
      const StreamSteps& steps = steps_of(cursor, *position_.instance);
      for (const Step* step = steps.begin; step != steps.end; ++step) {
        if (step->kind != StepKind::kActivity ||
            graph_.bound_activities[at(position_.instance->first_activity + step->activity)] !=
                activity) {
          continue;
        }
        position_.step = step;
        return;
      }
    }
    assert(false && "the member that was last ready binds the activity");
  }

  // The step began now: goes to what ended now.
  void go_before(const Step& step) {
    if (time_ == 0) return;
    for (int w = step.waits_begin; w < step.waits_end; ++w) {
      const int slot = compiled_.waits[at(w)];
      if (slot_time(slot) != time_) continue;
      return go_to_owner(slot);
    }
    if (step.kind == StepKind::kWork || step.kind == StepKind::kActivity) {
      for (int p = step.awaits_begin; p < step.awaits_end; ++p) {
        const int slot = compiled_.ports[at(p)];
        const int port = graph_.awaited_ports[at(position_.instance->first_awaited + slot)];
        if (moment(port).time == time_) return go_to_releaser(port);
      }
      if (step.base_slot != kNoIndex) {
        const std::int64_t base = slot_time(step.base_slot);
        if (base + step.launch_first == time_) return go_before_launch(step, base);
      }
    }
    go_to_step_before();
  }

  // The step of the instance that notes the slot, on whatever stream.
  void go_to_owner(int slot) {
    const int first = first_cursor(position_.cursor);
    for (int cursor = first; cursor < first + player_.streams_; ++cursor) {
      const StreamSteps& steps = steps_of(cursor, *position_.instance);
      for (const Step* step = steps.begin; step != steps.end; ++step) {
        if (step->store_slot != slot) continue;
        position_.cursor = cursor;
        position_.step = step;
        return;
      }
    }
    assert(false && "every slot is noted by a step of its instance");
  }

  void go_to_releaser(int port) {
    const int place = releaser_[at(port)];
    position_.instance = compiled_.instances.get() + place;
    const int device = static_cast<int>(
        std::upper_bound(compiled_.device_begin.begin(), compiled_.device_begin.end(), place) -
        compiled_.device_begin.begin() - 1);
    const int first = device * player_.streams_;
    for (int cursor = first; cursor < first + player_.streams_; ++cursor) {
      const StreamSteps& steps = steps_of(cursor, *position_.instance);
      for (const Step* step = steps.begin; step != steps.end; ++step) {
        for (int p = step->releases_begin; p < step->releases_end; ++p) {
          const int slot = compiled_.ports[at(p)];
          if (graph_.released_ports[at(position_.instance->first_released + slot)] != port)
            continue;
          position_.cursor = cursor;
          position_.step = step;
          return;
        }
      }
    }
    assert(false && "every port is released by a step of its instance");
  }

  struct Bindings {
    int releases = 0, activities = 0;  // slots of a template
  };
  struct Member {
    int place = 0, device = 0;
    int next = kNoIndex;  // of the same activity
  };

  const Player& player_;
  const CompiledGraph& compiled_;
  const TaskGraph& graph_;
  std::vector<Time> causes_;
  Position position_;
  std::int64_t time_ = 0;  // until now everything after it is booked
  std::vector<Bindings> bindings_;
  int replayed_ = kNoIndex;  // the place whose slots stand in replayed_slots_
  std::vector<std::int64_t> replayed_slots_;
  std::vector<int> releaser_;      // by port: place
  std::vector<int> first_member_;  // by activity, into members_
  std::vector<Member> members_;
  std::vector<int> first_segment_;  // by cursor, into segments_
  std::vector<SegmentStart> segments_;
};

std::vector<Time> Player::critical_path(Time makespan) const {
  return PathFinder(*this).find(makespan);
}

}  // namespace headway::engine
