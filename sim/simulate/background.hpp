// A step played while other jobs use the same network: their steps follow one another on GPUs of
// their own for as long as the step lasts, and what both load is shared.
#pragma once

#include <vector>

#include "sim/engine/simulator.hpp"
#include "sim/engine/task_graph.hpp"
#include "sim/engine/timeline.hpp"

namespace headway {

// Both graphs side by side: the devices, ports and activities of `b` come after those of `a`; the
// links are the same ones. REQUIRES: equal links and host causes.
TaskGraph joined(const TaskGraph& a, const TaskGraph& b);

// The timeline of `step` alone, as it is while each of `others` is repeated beside it. The critical
// path is left out: it may run through the others. Throws InvalidInput where one of the others
// deadlocks, or is so short that it would have to be repeated too often.
Timeline play_beside(const TaskGraph& step, const std::vector<const TaskGraph*>& others,
                     const SimulateOptions& options);

}  // namespace headway
