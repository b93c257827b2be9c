// An executed step in the form of a simulated one, so that what reports the one reports the other:
// a device for each rank, an instance for each issue of each rank in turn, a task for each
// operation of its pass; an operation's price is what it took on average.
#pragma once

#include "sim/simulate/simulated_step.hpp"

namespace headway {

// REQUIRES: `timeline` numbers devices, instances and tasks as above.
SimulatedStep measured_step(Program program, Timeline timeline);

}  // namespace headway
