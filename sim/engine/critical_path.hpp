// Why a run took as long as it did: the chain of tasks, messages and launches, each of which began
// when the one before it ended, from time 0 to the makespan. At a rendezvous the chain goes on with
// the member that was ready last; of several that would do, with the one that the engine books
// waiting to (own stream, other streams, ports, host; then the lowest device and stream).
#pragma once

#include <vector>

#include "sim/engine/task_graph.hpp"
#include "sim/engine/timeline.hpp"

namespace headway {

struct CriticalLink {
  Time start, end;
  int cause = 0;  // of the task; TaskGraph::host_cause for a launch
  int label = 0;  // of the task, or of the task launched
  int device = 0;
  int stream = 0;  // streams_per_device: the host thread
  int instance = 0;
  int task = 0;
};

// In order of time, without links of no length: each starts where the one before it ends, the first
// at 0, and their lengths add up to the makespan. REQUIRES: a timeline of the graph in task detail,
// without deadlock.
std::vector<CriticalLink> critical_path(const TaskGraph& graph, const Timeline& timeline);

}  // namespace headway
