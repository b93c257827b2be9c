// What happened when: the result of a simulation and of an execution alike. Spans are ordered by
// (start, device, stream, index in issue order), never by the order in which they were computed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/core/units.hpp"

namespace headway {

struct Span {
  Time start, end;
  int device = 0;
  int stream = 0;    // streams_per_device: the host thread
  int instance = 0;  // of the TaskGraph
  int task = 0;      // of the instance's template; -1: the whole instance on this stream
};

// How a device's stream 0 spent the makespan, by cause: `busy` in tasks of that cause, `waiting`
// for them; busy, waiting and idle add up to the makespan. Waiting is split at the moment the
// awaited thing starts: before it, the time is booked as `idle` (data not yet computed: bubble),
// from then on as waiting for its cause. The awaited thing is what ended last of all that the task
// waited for (of several, the first of: own stream, other streams by number, ports as listed,
// host); for a member of an activity, what the latest member waited for, own stream included: a
// collective's skew is booked to what its latest member was doing. The host counts from when it
// last stopped waiting itself.
struct DeviceTotals {
  std::vector<Time> busy;     // by cause
  std::vector<Time> waiting;  // by cause
  Time idle;
  Time end;  // of its last task
};

// A cycle of waits, in order: each waits for the next, the last for the first.
struct Wait {
  int device = 0;
  int instance = 0;
  int task = 0;
  std::string what;  // "activity 12", "port 3", "stream 1", "host"
};

struct Timeline {
  Time makespan;
  std::vector<Span> spans;  // as detailed as was asked for
  std::vector<DeviceTotals> devices;
  std::vector<Wait> deadlock;  // empty where everything ended
  // What the critical path is made of, by cause; the sum is the makespan (but for launches whose
  // cause is none). Empty where it was not asked for, or nothing ended. It is the path that
  // engine/critical_path.hpp walks link by link; where several ways are equally long, any of them.
  std::vector<Time> critical_path;
  std::int64_t events = 0;  // tasks and activities played
};

}  // namespace headway
