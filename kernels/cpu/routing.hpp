// The kernels of a mixture of experts on a CPU: which experts a token chooses (and the gradient of
// its weights), where each choice stands among what is sent, the permutations there and back, and one
// matrix product per expert. How many rows there are is read from the counts, never from a shape; what
// lies past them in a buffer is zero.
#pragma once

#include <vector>

#include "kernels/cpu/operands_of.hpp"
#include "kernels/cpu/operators.hpp"
#include "sim/model/operation.hpp"

namespace headway {

template <typename T>
void compute_routing(const Routing& routing, const OperandsOf& operands, const Placement& placement);
template <typename T>
void compute_grouped_gemm(const GroupedGemm& gemm, const OperandsOf& operands);

// kChoose and kChooseBackward.
template <typename T>
void choose(const Routing& routing, const OperandsOf& operands, const Placement& placement);
template <typename T>
void choose_backward(const Routing& routing, const OperandsOf& operands);

// The integers of an operand.
std::vector<std::int64_t> integers(const Operand& operand);

}  // namespace headway
