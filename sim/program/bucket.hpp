// Gradients that travel together: a flat group of a rank's tensors, in the order in which the
// backward pass completes them, so that a bucket's collective may start while earlier layers are
// still at work (Li et al., PyTorch Distributed, arXiv 2006.15704, section 3.2.3).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/program/program_builder.hpp"

namespace headway {

// A parameter of one layer (0 where the family has no layers).
struct Tensor {
  ParameterId parameter = kNoParameter;
  int layer = 0;
  friend bool operator==(const Tensor&, const Tensor&) = default;
};

// A tensor and the step of the backward pass that completes its gradient.
struct FiredTensor {
  Tensor tensor;
  int step = 0;
};

struct Bucket {
  std::string name;             // "rank0.chunk1.bucket2"
  std::vector<Tensor> tensors;  // never empty; the last one completes the bucket
  int step = 0;                 // of its chunk's backward pass that completes it
  std::int64_t elements = 0;
  // Alike for all its tensors where the rule that cut it needs that.
  int copies = 1;                   // as in Parameter
  std::string partial_over;         // as in Parameter
  bool tied = false;                // the word table, held by first and last stage
  DataType type = DataType::kBf16;  // of the parameters
  bool expert = false;  // of experts: reduced over other ranks than all else, never mixed with it
  // Where the bucket is a unit of sharded parameters (data/fsdp): its layer, and which form it has.
  int layer = 0;
  int form = -1;
};

// The tensors whose gradients the steps write, in the order of their last writes.
std::vector<FiredTensor> firing_order(const ProgramBuilder& builder,
                                      const std::vector<Step>& steps);

// Cuts the tensors into buckets, each closed by the tensor that brings it to `limit` elements
// (nothing: one bucket). With `apart`, tensors of different kind (see Bucket) never share one: what
// follows treats a bucket as one array. `tied` is the word table where two stages hold it, else
// kNoParameter. `first`: the limit of the first bucket.
std::vector<Bucket> cut_into_buckets(const ProgramBuilder& builder, const std::string& name,
                                     const std::vector<FiredTensor>& tensors,
                                     std::optional<std::int64_t> limit, bool apart,
                                     ParameterId tied, std::optional<std::int64_t> first = {});

std::vector<BufferRef> parameters_of(const ProgramBuilder& builder,
                                     const std::vector<Tensor>& tensors);
std::vector<BufferRef> gradients_of(const ProgramBuilder& builder,
                                    const std::vector<Tensor>& tensors);

}  // namespace headway
