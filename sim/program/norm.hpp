// A norm of the residual stream (layer norm or RMSNorm, as the model has it) with its parameters,
// statistics and output; every rank of a tensor-parallel group holds its parameters whole.
#pragma once

#include <string>
#include <vector>

#include "sim/program/program_builder.hpp"

namespace headway {

struct NormPart {
  std::string name;  // "attention.norm"
  ParameterId weight = kNoParameter;
  ParameterId bias = kNoParameter;  // layer norm
  int output = -1;
  int statistics = -1;
  int wide = -1;  // eager norms of 16-bit tensors keep two fp32 tensors; -1: nothing
  int output_gradient = -1;
  std::int64_t width = 0;  // columns
};

// Parameters and buffers. `copies` of the output and statistics, which the backward reads. `width`:
// columns, those of the residual stream where 0.
NormPart make_norm(ProgramBuilder& builder, const std::string& name, bool per_layer, Copies copies,
                   std::int64_t width = 0);

void norm_forward(ProgramBuilder& builder, OperationList& list, const NormPart& norm,
                  BufferRef input);
// `after`: operations of other streams that complete the output's gradient.
void norm_backward(ProgramBuilder& builder, OperationList& list, const NormPart& norm,
                   BufferRef input, BufferRef input_gradient, const std::vector<int>& after);

}  // namespace headway
