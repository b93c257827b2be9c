// The engine: one pure function from a TaskGraph to a Timeline. Equal graphs give equal timelines
// to the picosecond, on any number of threads, debug or release.
#pragma once

#include "sim/engine/task_graph.hpp"
#include "sim/engine/timeline.hpp"

namespace headway {

enum class Detail : std::uint8_t { kTotals, kInstances, kTasks };

struct SimulateOptions {
  Detail detail = Detail::kTotals;
  int causes = 16;             // causes are 0 .. causes - 1
  bool critical_path = false;  // whether to say what it is made of
};

// REQUIRES: a well-formed graph (indices in range; `after` points backwards; every port released by
// one task; an activity bound by exactly `members` tasks). A deadlock is a result, not an error.
Timeline simulate(const TaskGraph& graph, const SimulateOptions& options = {});

}  // namespace headway
