// Which passes of a rank are issued together where expert-parallel communication is to be hidden
// (ExpertPlan::overlap): the backward pass of one micro-batch and the forward pass of another, each
// in parts, so that the tokens of one travel beside the products of the other. DualPipe brings its
// own pairs (arXiv 2412.19437, section 3.2.1). In 1F1B, interleaved or not, and without a pipeline,
// a backward pass is paired with the forward pass behind it, as Megatron-LM does
// (pipeline_parallel/combined_1f1b.py): one micro-batch more is in flight.
#pragma once

#include <vector>

#include "sim/program/schedule.hpp"

namespace headway {

// The same actions, with pairs marked (Action::overlaps_next).
std::vector<Action> with_overlapped_pairs(const std::vector<Action>& actions);

// Two lists of parts in the order in which they are issued: in turns, the first list's first.
template <typename Part>
std::vector<Part> in_turns(const std::vector<Part>& first, const std::vector<Part>& second) {
  std::vector<Part> result;
  for (std::size_t i = 0; i < first.size() || i < second.size(); ++i) {
    if (i < first.size()) result.push_back(first[i]);
    if (i < second.size()) result.push_back(second[i]);
  }
  return result;
}

}  // namespace headway
