// A step of a Program whose steps overlap: each rank begins its next one when its own part is done.
// Its time is what one more repeat adds once the first has filled the pipeline; everything else
// that a Timeline says of a step is the difference of two repeats, too.
#pragma once

#include "sim/engine/simulator.hpp"
#include "sim/engine/task_graph.hpp"
#include "sim/engine/timeline.hpp"

namespace headway {

// The graph's instances `times` times, one behind the other on each device, each with ports and
// activities of its own: instance i of repeat r is r * instances + i.
TaskGraph repeated(const TaskGraph& graph, int times);

// The steady step of the graph played again and again. Spans are those of the last repeat, from its
// first on. A deadlock is reported as in one repeat.
Timeline steady_step(const TaskGraph& graph, const SimulateOptions& options);

// What `longer` has beyond `shorter`: makespan, devices, critical path and events. REQUIRES: both are
// of the same devices; neither deadlocks.
Timeline beyond(Timeline longer, const Timeline& shorter);

}  // namespace headway
