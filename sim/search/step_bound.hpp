// A time that a step cannot undercut, from the Program and the prices that the simulation uses,
// without playing it. What a rank issues on one in-order stream takes at least the sum of it, each
// operation alone; and a pipeline rank begins no earlier than a micro-batch has passed the stages
// before its first one, and ends no earlier than the gradient of its last one has passed those
// before it (the m + p - 1 slots of 1F1B, arXiv 2104.04473, fall out of this).
#pragma once

#include "sim/core/units.hpp"
#include "sim/plan/job.hpp"
#include "sim/program/program.hpp"
#include "sim/simulate/price_book.hpp"

namespace headway {

// At most the makespan of the simulated step, on a sound machine. REQUIRES: `program` is lowered
// from `job`; `prices` are of the job's profile. Throws InvalidInput where the profile lacks what
// an operation needs.
Time least_step_time(const Job& job, const Program& program, const PriceBook& prices);

}  // namespace headway
