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
// device alone holds the whole model and a micro-batch without it, only attention's core is taken
// to be run again (Megatron-LM's --recompute-activations). In the 704 small runs of arXiv
// 2312.12391 the time that hidden size 2048 takes longer than 1024 would, with full recomputation,
// need multiplications at 309 of the device's 312 TFLOP/s; the 140 of them that are set aside for
// constants tell attention's core from nothing: where the device is the bottleneck on one rank,
// 1.5 ms a layer are missing at hidden size 1024 and 1.7 at 2048, with 16 heads and 8 sequences in
// both, and the core alone takes 1.2. The same authors' models that do not fit so take the time
// that full recomputation explains.
std::vector<JobOverride> decide_assumed(const MeasuredRun& run, const Job& job,
                                        const Device& device);

}  // namespace headway
