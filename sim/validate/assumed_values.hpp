// What a published run's source does not state, its compiler assumed, and says so. An assumption
// that can be decided without looking at the measured time is decided here.
#pragma once

#include <vector>

#include "sim/cost/profile.hpp"
#include "sim/plan/job.hpp"
#include "sim/validate/measured_runs.hpp"

namespace headway {

// The values to put in place of assumed ones.
//
// Full recomputation is a choice made per model, to make it fit: where it is assumed, and one
// device alone holds the whole model and a micro-batch without it, it is taken as not used. In the
// 704 small runs of arXiv 2312.12391 the time that hidden size 2048 takes longer than 1024 would,
// with recomputation, need multiplications at 309 of the device's 312 TFLOP/s; the same authors'
// models that do not fit so take the time that recomputation explains.
std::vector<JobOverride> decide_assumed(const MeasuredRun& run, const Job& job,
                                        const Device& device);

}  // namespace headway
