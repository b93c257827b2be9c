// Versions of the weights where every micro-batch is a mini-batch with an update of its own
// (PipeDream; pipeline/pipedream.cpp): a stage's forward pass of mini-batch m reads what the updates
// so far have left, and the backward pass of m reads the same, whatever has been updated since. So
// the parameters of a rank are a buffer for each mini-batch in flight, converted from the master
// copy before its forward pass.
#pragma once

#include <cstdint>

#include "sim/plan/parallel_plan.hpp"

namespace headway {

// Whether the plan, or the reference run of such a plan, keeps versions.
bool keeps_weight_versions(const ParallelPlan& plan);
// Whether it is that reference run: one rank, whose updates reach a layer as late as the plan's do.
bool delays_updates(const ParallelPlan& plan);

// How many mini-batches late an update reaches a pipeline rank: of the updates of the mini-batches
// before m its forward pass of m has seen all but so many (arXiv 1806.03377, section 3.3: stage r of
// p computes mini-batch m with the weights of m - (p - 1 - r)).
std::int64_t update_delay(int ranks, int rank);

}  // namespace headway
