// A matrix that every rank holds whole and applies to its own tokens alone: routers, and the narrow
// projections of latent attention (Megatron-LM's "duplicated" linear layers). With sequence
// parallelism its gradient covers this rank's tokens, and is summed once per step.
#pragma once

#include <optional>
#include <string>

#include "sim/program/program_builder.hpp"
#include "sim/program/quantised_linear.hpp"

namespace headway::own_tokens {

struct Linear {
  std::string name;  // "moe.router"
  ParameterId weight = kNoParameter;
  DataType result = DataType::kBf16;  // of the output; gradients have the parameters' type
  int input = -1, output = -1, output_gradient = -1, input_gradient = -1;
  std::optional<QuantisedLinear> quantised = {};  // where its products read 8 or 4 bits
};
void forward(ProgramBuilder& builder, OperationList& list, const Linear& linear);
void backward_input(ProgramBuilder& builder, OperationList& list, const Linear& linear);
void backward_weight(ProgramBuilder& builder, OperationList& list, const Linear& linear);

}  // namespace headway::own_tokens
