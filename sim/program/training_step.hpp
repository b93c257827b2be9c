// Job -> Program: one training step, lowered. Every choice of the plan becomes operations, buffers
// and an order: a rank kind per pipeline rank, a pass per virtual stage and direction, templates
// shared by all layers and stages. It is executable as it stands: losses are scaled to the mean
// over the global batch, so that gradients are summed over micro-batches and data-parallel ranks;
// every replicated gradient is summed over exactly the ranks that hold different parts of it; the
// norm counts each parameter once.
//
// Where the schedule splits the backward pass, the weight half is the matrices' weight gradients;
// those of norms, biases and the embedding stay with the input half, as in the published runtimes.
// What the weight half reads lives until then. Limitations: the halves of an overlapped
// forward-backward pair run one after the other; two copies of the model (DualPipe) sum their
// gradients in one message at the end of the step, whatever is overlapped otherwise.
#pragma once

#include "sim/plan/job.hpp"
#include "sim/program/program.hpp"

namespace headway {

// REQUIRES: a job that read_job() accepted (degrees divide, the schedule takes the shape).
Program lower(const Job& job);

// The same training step on one rank: all degrees 1, nothing recomputed, the same global batch,
// micro- batches and padded vocabulary. Its Program computes what the job's must compute.
Job reference_job(const Job& job);

}  // namespace headway
