// How each rank class spent a step, as a pipeline sees it: forward, backward, everything else that
// its compute stream did, and idle. Read from any timeline, simulated or measured alike.
#pragma once

#include <string>
#include <vector>

#include "sim/simulate/simulated_step.hpp"

namespace headway {

struct StageTime {
  int rank = 0;  // that stands for its class
  Time forward, backward, other, idle;
};

// REQUIRES: a timeline with a span for each task (Detail::kTasks). By device; the parts add up to
// the makespan.
std::vector<StageTime> stage_times(const SimulatedStep& step);

}  // namespace headway
