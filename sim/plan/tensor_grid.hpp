// The ranks of a tensor-parallel group, numbered once more where that is needed: by the key-value
// heads they hold, where there are fewer heads than ranks, or as a square, a stack of squares or a
// cube of ranks that share a matrix.
#pragma once

#include <vector>

#include "sim/plan/job.hpp"

namespace headway {

// The tokens of a micro-batch that a rank of a square, or of a stack of squares, shares with the
// others of its row: one of side x depth runs, by the row in its square and then by the square.
inline constexpr const char* kTensorTokensAxis = "tp_tokens";

// Ranks that share heads, and columns of activations: all of a group, or one row of a square.
int column_ranks(const ParallelPlan& plan);

// Ranks that hold the same key-value heads (latent attention has as many of these as heads, and no
// copies). REQUIRES: tp and the key-value heads divide one by the other.
int key_value_copies(const Transformer& model, int tp);

// The axes of those numberings; `stride`: between neighbours of the group. Empty where there is no
// other numbering.
std::vector<FoldedAxis> tensor_axes(const Transformer& model, const ParallelPlan& plan, int stride);

}  // namespace headway
