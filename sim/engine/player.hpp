// Plays a compiled TaskGraph once: the state of a simulation, behind `simulate`. Fixed work is
// played by cursors in dependency order, ahead of the clock: each stream runs until a step waits
// for something that is not yet known, then parks on that one thing. Activities that share a link,
// and instances that they slow, move with the clock, from event to event.
//
// Where all that an instance waits for is known, its device plays it as a whole, the same steps one
// behind the other, without parking: a device has a *front*, which goes from instance to instance;
// streams that have played all before it stand there. Where something is missing the front waits
// for it, and the instance is *opened* to the streams' cursors if one of them could do what others
// see (engine/whole_instance).
//
// Invariants. A cursor is on the worklist at most once, and parked on at most one thing. Whatever
// becomes known while the clock stands at t lies at or after t, so nothing can begin in the past.
// What is known never depends on the order in which cursors ran, nor on what was played as a whole.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "sim/engine/compiled_graph.hpp"
#include "sim/engine/event_queue.hpp"
#include "sim/engine/flow_network.hpp"
#include "sim/engine/simulator.hpp"
#include "sim/engine/whole_instance.hpp"

namespace headway::engine {

inline constexpr int kIdleCause = 255;  // waiting for it is booked as idle

// A point in time, with what ended then: when that began and what its time is booked as. The second
// is what determines how waiting until this moment is booked.
struct Moment {
  std::int64_t time = 0;
  std::int64_t origin = kIdleCause;  // length << kCauseBits | cause

  static Moment ended(std::int64_t time, std::int64_t since, int cause) {
    // 10 hours: of something longer only the last 10 hours would be booked as waiting.
    constexpr std::int64_t kLongest = std::numeric_limits<std::int64_t>::max() >> kCauseBits;
    return {time, (std::min(time - since, kLongest) << kCauseBits) | cause};
  }
  std::int64_t since() const { return time - (origin >> kCauseBits); }
  void wait_for(const Moment& other) {
    if (other.time > time) *this = other;
  }
  // For a launch by a host that has been busy since `base` was.
  void wait_for_launch(std::int64_t launched, const Moment& base) {
    if (launched > time) *this = ended(launched, base.since(), base.cause());
  }
  int cause() const { return static_cast<int>(origin & ((1 << kCauseBits) - 1)); }
};

// A step of the host: where it stands when it is `ready`, then when it has launched all.
struct HostMoments {
  Moment base, last;

  // Waiting for the host counts from when it last stopped waiting itself.
  static HostMoments of(const Moment& before, std::int64_t ready, std::int64_t duration,
                        int cause) {
    const std::int64_t busy_since = ready > before.time ? ready : before.since();
    return {Moment::ended(ready, busy_since, cause),
            Moment::ended(ready + duration, busy_since, cause)};
  }
};

// Something that is waited for: a released port, or a slot of an instance. Sixteen bytes, as there
// may be one for each task. Until it is known it heads the list of the cursors parked on it.
class Mark {
 public:
  bool known() const { return moment_.time >= 0; }
  const Moment& moment() const { return moment_; }  // REQUIRES: known
  void set(Moment moment) { moment_ = moment; }

  // REQUIRES: not known. The cursor that parked last, or kNoIndex.
  int waiter() const { return static_cast<int>(-2 - moment_.time); }
  void set_waiter(int cursor) { moment_.time = -2 - static_cast<std::int64_t>(cursor); }

 private:
  Moment moment_{-1, 0};  // time -1: unknown, no waiter; -2 - cursor: unknown, that cursor waits
};

enum class CursorState : std::uint8_t {
  kRunning,     // on the worklist, about to be, or standing at its device's front
  kOnMark,      // parked on a mark
  kInActivity,  // has arrived at an activity
  kArrived,     // its activity has ended
  kToBegin,     // its step begins when the clock gets there
  kMoving,      // its segment moves with the clock
  kMoved,       // its segment has ended
  kToResume,    // its next segment begins when the clock gets there
  kResumed,
  kFinished,
};

// One stream of one device, or its host thread: where it stands in the device's issue order.
struct alignas(64) Cursor {
  Moment last;                               // end of its last step
  const PlacedInstance* instance = nullptr;  // where it is; `end` after the device's last
  const PlacedInstance* end = nullptr;
  const Step* step = nullptr;  // the next of the instance; nullptr: has not entered one
  const Step* step_end = nullptr;
  const StreamSteps* by_variant = nullptr;  // what the stream plays of each variant
  int slot_base = 0;                        // into marks_: the instance's slots
  int next_waiter = kNoIndex;               // parked on the same mark or activity
  int waits_for = kNoIndex;                 // that mark or activity
  int device = 0;
  int stream = 0;
  std::int64_t* busy = nullptr;  // of the device, by cause
  CursorState state = CursorState::kRunning;
};

// Where the streams of a device that are not behind stand together.
struct Front {
  const PlacedInstance* instance = nullptr;  // all before it have been played or opened
  const PlacedInstance* end = nullptr;
  const PlacedInstance* opened_end = nullptr;  // behind the last instance that was opened
  Columns standing = 0;                        // the streams that stand here
  Columns wanted = 0;                          // the stream that it waits for, if any
  bool parked = false;                         // on a mark
  bool unsure = false;  // waits, although some stream might do what others see
  int next_waiter = kNoIndex;
  // What all that is visible of the instances before `place`, from the front on, waits for: where
  // that changes, the last change first.
  struct Later {
    const PlacedInstance* place = nullptr;
    Columns waits_for = 0;
  };
  std::vector<Later> later;
};

struct ActivityState {
  Moment start{-1, 0};  // until all members have arrived: the latest of them so far
  std::int64_t end =
      0;  // before the start: the fixed duration or kNoIndex; then the end or a phase
  std::int64_t fixed = kNoIndex;  // its fixed duration, where it is on the clock all the same
  int latest = kNoIndex;          // the member that was last ready; of several, the lowest cursor
  int missing = 0;
  int waiter = kNoIndex;  // the member that arrived last
};

// Phases of an activity that has started, in place of its end.
inline constexpr std::int64_t kStarting = -2;  // starts when the clock gets there
inline constexpr std::int64_t kInLatency = -3;
inline constexpr std::int64_t kMovingWork = -4;  // is a flow

// Work that moves with the clock: a range of a step's tasks, and how far it has got.
struct Segment {
  int task = 0, end = 0;       // into CompiledGraph::stream_tasks: in progress, past the last
  int environment = kNoIndex;  // kNoIndex: began at this instant
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

// Where a segment began.
struct SegmentStart {
  int cursor = 0;
  std::int64_t start = 0;
  int task = 0;  // into CompiledGraph::stream_tasks
};

struct InstanceTimes {
  std::int64_t start = -1, end = 0;  // -1: nothing of the instance has started on this stream
};

class Player {
 public:
  // The graph must outlive the player.
  Player(const TaskGraph& graph, const SimulateOptions& options);

  // To be called once.
  Timeline play();

 private:
  int cursor_count() const { return static_cast<int>(cursors_.size()); }
  int place_of(const PlacedInstance& instance) const {
    return static_cast<int>(&instance - compiled_.instances.get());
  }
  int activity_count() const { return static_cast<int>(activities_.size()); }
  void prepare_cursors();
  void prepare_fronts();
  void prepare_slots();
  void prepare_activities();
  void prepare_clock();
  Timeline result();

  // Fixed work, in dependency order. What returns a bool returns whether the cursor goes on.
  void run_ahead();
  void run(int id);
  const PlacedInstance* limit_of(const Cursor& cursor) const;
  bool enter_next_instance(Cursor& cursor);
  void enter(Cursor& cursor);
  void reach_limit(Cursor& cursor);
  bool play_simple_steps(int id, Cursor& cursor);
  bool play_step(int id, Cursor& cursor, const Step& step);
  bool known(int id, Cursor& cursor, int mark);
  bool await(int id, Cursor& cursor, int mark, Moment& ready);
  void note(int mark, const Moment& moment);
  void wake_waiters(int waiter);
  bool play_host(Cursor& cursor, const Step& step, const Moment& ready);
  bool play_work(Cursor& cursor, const Step& step, const Moment& ready, const Moment* base);
  Moment end_of_work(int device, int stream, const StepTimes& step, const Moment& last,
                     const Moment& ready, const Moment* base);
  void release(const PlacedInstance& instance, const Step& step, const Moment& end);
  void finish_step(Cursor& cursor, const Step& step, std::int64_t start, const Moment& end);
  void book_gap(int device, std::int64_t from, const Moment& ready);
  void book_waiting(int device, std::int64_t duration, int cause);
  std::int64_t& busy(int device, int cause);
  void record(const Cursor& cursor, const Step& step, std::int64_t start, std::int64_t end);
  void record_host(const Cursor& cursor, std::int64_t start, std::int64_t end);
  void close_instance(const Cursor& cursor);

  // Whole instances (player_front.cpp).
  int front_id(int device) const { return cursor_count() + device; }
  void play_front(int device);
  const WholeInstance::Awaited* unknown_port(const Front& front, const WholeInstance& whole) const;
  void park(int device, int port);
  void wait_at_front(int device, Columns column);
  void play_whole(int device, const WholeInstance& whole);
  Moment* values_of(int device) { return values_.data() + device * value_count_; }
  Moment ready_in_whole(const WholeInstance& whole, const WholeStep& step,
                        const PlacedInstance& instance, const Moment* values) const;
  void arrive_in_whole(int device, const WholeStep& step, const Moment& ready);
  void keep_columns(int device, const WholeInstance& whole);
  void book_wholes();
  void open(int device);
  bool open_unsure();
  void open_all();
  void stand(Cursor& cursor);

  // Activities.
  bool arrive(int id, Cursor& cursor, const Step& step, const PlacedInstance& instance,
              const Moment& ready);
  bool start_activity(int index);
  void wake_members(ActivityState& activity);
  bool finish_activity(Cursor& cursor, const Step& step);

  // The clock (player_clock.cpp).
  void play_instant();
  void handle(int event);
  void handle_activity(int index);
  void change_environment(int activity, int by);
  void settle_environments();
  void settle_rates();
  int event_id(int cursor) const { return activity_count() + cursor; }
  bool begin_step(int id, Cursor& cursor, const Step& step, const Moment& ready);
  bool resume_step(int id, Cursor& cursor, const Step& step);
  bool begin_segment(int id, Cursor& cursor, const Step& step, const Moment& ready);
  bool finish_segment(int id, Cursor& cursor, const Step& step);
  std::int64_t start_of_last(const Segment& segment) const;
  std::int64_t slowdown(const StreamTask& task, int environment) const;
  std::int64_t scaled(const StreamTask& task, int environment) const;
  const std::vector<std::int64_t>& prefix_sums(int step, int environment);
  void carry_over(int id, int environment);
  void schedule_end(int id);

  // The critical path of the run played (player_path.cpp).
  class PathFinder;
  std::vector<Time> critical_path(Time makespan) const;

  // Deadlock (player_deadlock.cpp).
  std::vector<Wait> find_deadlock() const;
  int describe_wait(int id, Wait& wait) const;
  int describe_slot(const Cursor& cursor, Wait& wait) const;
  int missing_member(int activity) const;
  int releaser(int port) const;

  const TaskGraph& graph_;
  const SimulateOptions options_;
  const int host_cause_;
  CompiledGraph compiled_;
  int streams_;                  // cursors per device
  std::vector<Cursor> cursors_;  // [device * streams_ + stream]
  std::vector<Mark> marks_;      // ports, then slots
  // By place, where there are slots: the first slot, in marks_, of an instance that the cursors
  // play; of one played as a whole, -1 - the first of its columns, in columns_.
  std::vector<int> kept_;
  std::vector<WholeInstance> wholes_;  // by variant
  std::vector<Front> fronts_;          // by device; none where each cursor plays by itself
  std::vector<int> unsure_;            // devices whose front may be unsure
  // By device and value (WholeStep): where its standing streams stand, and borrowed slots.
  std::vector<Moment> values_;
  int value_count_ = 0;            // of a device
  std::vector<int> whole_counts_;  // by device and variant: how often it was played as a whole
  // Where each stream with steps stood before an instance played as a whole, for the critical path.
  std::unique_ptr<std::int64_t[]> columns_;
  int column_count_ = 0;
  std::vector<ActivityState> activities_;
  std::vector<int> worklist_;  // a stack of cursors and fronts
  int work_ = 0;               // its size
  std::vector<std::int64_t> busy_, waiting_, idle_;
  std::vector<Span> spans_;
  std::vector<InstanceTimes> instance_times_;  // by cursor
  std::int64_t events_ = 0;

  std::optional<EventQueue> queue_;  // ids: activities, then cursors
  std::optional<FlowNetwork> network_;
  std::vector<Transfer> transfers_;  // by activity
  std::int64_t clock_ = 0;
  std::vector<Segment> segments_;             // by cursor
  std::vector<SegmentStart> segment_starts_;  // in order of time, where a critical path is wanted
  std::vector<int> begun_;                    // cursors whose segment began at this instant
  std::vector<int> changed_devices_;
  std::vector<int> environment_;  // by device, as of the last settled instant
  std::vector<int> environment_counts_;
  int environments_ = 1;
  std::vector<std::vector<std::int64_t>> prefix_sums_;
};

inline std::int64_t& Player::busy(int device, int cause) {
  return busy_[static_cast<std::size_t>(device) * static_cast<std::size_t>(options_.causes) +
               static_cast<std::size_t>(cause)];
}

inline void Player::book_waiting(int device, std::int64_t duration, int cause) {
  if (cause == kIdleCause) {
    idle_[static_cast<std::size_t>(device)] += duration;
  } else {
    waiting_[static_cast<std::size_t>(device) * static_cast<std::size_t>(options_.causes) +
             static_cast<std::size_t>(cause)] += duration;
  }
}

// Stream 0 stood still from `from` until `ready`.
inline void Player::book_gap(int device, std::int64_t from, const Moment& ready) {
  if (ready.time == from) return;
  const std::int64_t split = std::max(ready.since(), from);
  idle_[static_cast<std::size_t>(device)] += split - from;
  book_waiting(device, ready.time - split, ready.cause());
}

// The end of a step of fixed work that was `ready` on a stream that stood at `last`; `base`: where
// the host stood, if it can delay the step. Books what stream 0 waited.
inline Moment Player::end_of_work(int device, int stream, const StepTimes& step, const Moment& last,
                                  const Moment& ready, const Moment* base) {
  const std::int64_t undelayed = ready.time + step.duration;
  const std::int64_t end = base == nullptr ? undelayed : step.end(ready.time, base->time);
  if (stream == 0) {
    book_gap(device, last.time, ready);
    // Gaps inside a step can only come from the host.
    if (end > undelayed) book_waiting(device, end - undelayed, base->cause());
  }
  return {end, step.origin};
}

}  // namespace headway::engine
