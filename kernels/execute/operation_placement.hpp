// Where a rank's part of an operation lies in the whole, read off the buffers it works on.
#pragma once

#include "kernels/cpu/operators.hpp"
#include "kernels/execute/execution_plan.hpp"

namespace headway {

struct ExecuteOptions;

Placement placement_of(const Program& program, int rank, const PlannedOperation& planned, int step,
                       const ExecuteOptions& options);

}  // namespace headway
