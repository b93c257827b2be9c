// Whether measured times keep every order that a Program demands: stream order, dependencies,
// joins, ports, host stops, and that members of a collective or message overlap.
#pragma once

#include <string>
#include <vector>

#include "kernels/execute/execution_plan.hpp"
#include "sim/core/units.hpp"

namespace headway {

struct MeasuredTimes {
  Time start, end;
};

// One line for each demand that does not hold, in (rank, operation) order: "rank 0, 0F1,
// attention.core (layer 2) started 1.2 us before rank 0, ... ended (after)". `times` by rank and
// operation of the plan.
std::vector<std::string> order_violations(const ExecutionPlan& plan,
                                          const std::vector<std::vector<MeasuredTimes>>& times);

// How many demands there are: what a run that shows no violation has been held to.
std::int64_t order_demands(const ExecutionPlan& plan);

}  // namespace headway
