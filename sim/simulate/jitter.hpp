// The step time where no two GPUs are equally fast: each draw gives every GPU a speed of its own
// for the whole step and plays the real schedule, so that a slow GPU costs what its place in the
// pipeline and its groups make of it. Factors on compute time are log-normal with median 1:
// exp(sigma z), z standard normal, drawn from a counter keyed by seed, draw and rank, so that a
// draw is the same on any number of threads and whatever else is drawn.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/simulate/simulated_step.hpp"

namespace headway {

struct JitterOptions {
  double sigma = 0;  // of the logarithm of a GPU's compute time
  int draws = 100;
  std::uint64_t seed = 1;
  int threads = 1;
};

struct JitterReport {
  std::vector<Time> steps;  // by draw
  double slowest = 1;       // factor of a draw's slowest GPU, on average over the draws
  Time mean() const;
  // The nearest-rank percentile: the smallest step that `percent` of the draws do not exceed.
  Time percentile(int percent) const;
};

double jitter_factor(const JitterOptions& options, int draw, int rank);

// Plays every rank of every draw. `step` as for play(); its slow ranks are slower still. Throws
// InvalidInput as play() does, and where the schedule deadlocks.
JitterReport jitter(const Program& program, const Job& job, const Profile& profile,
                    const StepOptions& step, const JitterOptions& options);

}  // namespace headway
