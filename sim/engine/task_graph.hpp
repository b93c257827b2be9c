// What the engine plays: tasks on the in-order streams of devices, at two levels. A template is a
// list of tasks; an instance plays a template on a device, bound to that device's ports and
// activities. The engine knows nothing of transformers, ranks or collectives.
//
// A device has `streams_per_device` streams and one host thread. Its instances stand in issue
// order. The tasks of all its instances, in that order, make up each stream. A task starts when
//   - the task before it on its stream has ended,
//   - its `after` tasks of the same instance have ended,
//   - for each stream in `joins`, everything that the device issued on that stream before it has
//   ended,
//   - the ports it awaits have been released,
//   - the host has launched it: the host spends `host` time on each task in issue order, and stops
//     after a task with `host_waits` until that task has ended,
//   - and, where it is a member of an activity, all members are ready: they start together.
// It ends after its duration, or with its activity.
//
// An *activity* is shared by one or more tasks: a collective, a message. It has a fixed latency,
// and then, where `work` is not zero, moves that work as a fluid at a rate that it shares max-min
// fairly with all other activities on the links it loads (engine/flow_network).
//
// An instance whose `moves_with_clock` is set may be overlapped by activities that slow its tasks:
// a task's duration is then ceil(duration * slowdown), where a device's environment is the set of
// its running activities' `environment` bits. What is left of a task when the environment changes
// is carried over in proportion, in integers: ceil(left * new factor / old factor).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/core/units.hpp"

namespace headway {

inline constexpr int kNoIndex = -1;
inline constexpr int kEnvironmentBits = 8;                          // in Activity::environment
inline constexpr std::int64_t kNoSlowdown = std::int64_t{1} << 20;  // in TaskGraph::slowdowns

struct Task {
  int stream = 0;
  Time duration = {};  // alone on the device; ignored for members of an activity
  Time host = {};      // the host's time to launch it; it may start when that is done
  bool host_waits = false;
  int label = 0;               // opaque: what it is, for the timeline's reader
  int cause = 0;               // 0..254: what its time, and waiting for it, is booked as
  int activity = kNoIndex;     // slot in Instance::activities
  int sensitivity = kNoIndex;  // row of TaskGraph::slowdowns; kNoIndex: nothing slows it
  std::vector<int> after;      // smaller indices of this template
  std::vector<int> joins;      // streams
  std::vector<int> awaits;     // slots in Instance::awaited
  std::vector<int> releases;   // slots in Instance::released
};

struct TaskTemplate {
  std::vector<Task> tasks;
};

struct Instance {
  int device = 0;
  int task_template = 0;
  int label = 0;           // opaque
  int first_awaited = 0;   // into TaskGraph::awaited_ports, by slot
  int first_released = 0;  // into TaskGraph::released_ports
  int first_activity = 0;  // into TaskGraph::bound_activities
  bool moves_with_clock = false;
};

// Loads are integers of at most 2^16 for the heaviest link of an activity: moving `work` units puts
// work * load on the link.
struct LinkLoad {
  int link = 0;
  std::int64_t load = 1;
};

struct Activity {
  int members = 1;
  Time latency = {};                   // before its work begins; the whole time where work is zero
  std::int64_t work = 0;               // bytes moved per unit of load
  std::int64_t weight = 1;             // connections: its share of a contended link
  double rate_limit = 0;               // work per second it can reach alone; 0: only links limit it
  int first_load = 0, load_count = 0;  // into TaskGraph::loads
  int environment = kNoIndex;          // bit (0..7) it sets on its members' devices while it runs
};

struct Link {
  double capacity = 0;  // bytes per second
};

struct TaskGraph {
  int devices = 0;
  int streams_per_device = 1;
  std::vector<TaskTemplate> templates;
  std::vector<Instance> instances;  // per device in issue order; devices may interleave
  std::vector<int> awaited_ports;   // port ids by instance slot
  std::vector<int> released_ports;
  int ports = 0;                      // each released by exactly one task
  std::vector<int> bound_activities;  // activity ids by instance slot
  std::vector<Activity> activities;
  std::vector<LinkLoad> loads;
  std::vector<Link> links;
  // slowdowns[sensitivity][environment bits]: duration factor in 2^-20, at least 2^20.
  std::vector<std::vector<std::int64_t>> slowdowns;
  int host_cause =
      kNoIndex;  // what waiting for the host's launches is booked as; kNoIndex: as idle
};

// What is not well-formed, one sentence each; empty where the graph can be played. For tests and
// for graphs from untrusted places: it costs more than playing.
std::vector<std::string> check(const TaskGraph& graph);

}  // namespace headway
