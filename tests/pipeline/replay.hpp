// Plays a schedule's orders with fixed durations: each rank runs its actions strictly in order, an
// action starts when its rank is free and its inputs are there, a message takes `latency`. An
// overlapped pair is one atomic action. What facts 3.3 calls the modelling choices behind every
// number.
#pragma once

#include <string>
#include <vector>

#include "sim/program/schedule.hpp"

namespace headway {

struct Durations {
  double forward = 1, backward = 2;  // of one virtual stage
  double backward_input = 1, backward_weight = 1;
  double pair = 3;     // an overlapped forward and backward
  double latency = 0;  // of a message between two ranks
};

struct Replay {
  bool finished = false;
  std::string stuck;  // the first action of each rank that never starts
  double makespan = 0;
  double longest_stage = 0;    // over the ranks: own last end - own first start
  std::vector<int> in_flight;  // per rank, the most (stage, micro-batch) saved at once
};

Replay replay(const Schedule& schedule, const ScheduleShape& shape, const Durations& durations);

// Every (stage, micro-batch) has its forward and its backward exactly once, on its own rank, in an
// order that a rank may run: "" or what is wrong.
std::string completeness_fault(const Schedule& schedule, const ScheduleShape& shape);

}  // namespace headway
