// PipeDream (Narayanan et al., SOSP 2019; arXiv 1806.03377): 1F1B without a flush. Every
// micro-batch is a mini-batch, whose update a stage makes right behind its backward pass; p - r
// mini-batches are in flight on rank r, each with the version of the weights that its forward pass
// has read (weight stashing). The order is that of 1F1B with flush (one_f_one_b.cpp) for a sequence
// of mini-batches that does not end with the step.
#include "sim/program/pipeline/leaves.hpp"

namespace headway::pipeline {

Schedule pipedream() {
  Schedule schedule = one_f_one_b();
  schedule.name = "pipedream";
  schedule.source = "PipeDream, arXiv 1806.03377: 1F1B with a version of the weights for each "
                    "mini-batch in flight";
  schedule.validates_afterwards = false;
  return schedule;
}

}  // namespace headway::pipeline
