// The memory-bound kernels, by what they work on. Each function executes the kinds of its group;
// the operand orders are in sim/model/operation.hpp.
#pragma once

#include "kernels/cpu/operands_of.hpp"
#include "kernels/cpu/operators.hpp"
#include "sim/model/operation.hpp"

namespace headway {

template <typename T>
void compute_norm(const Kernel& kernel, const OperandsOf& operands);  // RMSNorm, LayerNorm
template <typename T>
void compute_activation(const Kernel& kernel, const OperandsOf& operands);  // GeLU, SwiGLU, ReLU
template <typename T>
void compute_embedding(const Kernel& kernel, const OperandsOf& operands,
                       const Placement& placement);  // tables, positions, rotary
template <typename T>
void compute_dropout(const Kernel& kernel, const OperandsOf& operands, const Placement& placement);
template <typename T>
void compute_cross_entropy(const Kernel& kernel, const OperandsOf& operands,
                           const Placement& placement);
template <typename T>
void compute_elementwise(const Kernel& kernel, const OperandsOf& operands,
                         const Placement& placement);  // sums, copies, casts
template <typename T>
void compute_quantisation(const Kernel& kernel, const OperandsOf& operands);  // 8 and 4 bits
template <typename T>
void compute_columns(const Kernel& kernel, const OperandsOf& operands);  // splits, joins, merges
template <typename T>
void compute_mix(const Kernel& kernel, const OperandsOf& operands);  // of two rows by their logits
template <typename T>
void compute_update(const Kernel& kernel, const OperandsOf& operands,
                    const Placement& placement);  // norm, clipping, optimizers
template <typename T>
void compute_direction(const Kernel& kernel, const OperandsOf& operands,
                       const Placement& placement);  // of optimizers that work on whole matrices

}  // namespace headway
