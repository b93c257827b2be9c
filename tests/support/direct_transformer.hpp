// A decoder-only transformer written straight from its formulas, token by token and number by
// number, with gradients from a tape: the judge of the reference run. It uses neither kernels nor
// lowering.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "sim/model/transformer.hpp"

namespace headway {

using NamedTensors = std::map<std::string, std::vector<double>>;  // row-major, by global name

struct DirectResult {
  double loss = 0;  // mean over all tokens of all sequences
  NamedTensors gradients;
};

// `sequences`: each one token longer than the model reads, for the targets, and for each prediction
// further ahead one more.
DirectResult direct_training_step(const Transformer& model, const NamedTensors& weights,
                                  const std::vector<std::vector<std::int64_t>>& sequences);

}  // namespace headway
