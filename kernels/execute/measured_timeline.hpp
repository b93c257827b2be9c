// The measured times of an execution as the Timeline of a simulation: a device for each rank, an
// instance for each issue of each rank in turn, a task for each operation of the pass.
#pragma once

#include <vector>

#include "kernels/execute/execution_plan.hpp"
#include "kernels/execute/happens_before.hpp"
#include "sim/engine/timeline.hpp"

namespace headway {

Timeline measured_timeline(const ExecutionPlan& plan,
                           const std::vector<std::vector<MeasuredTimes>>& times);

}  // namespace headway
