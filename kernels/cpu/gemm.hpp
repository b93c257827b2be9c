// The three matrix multiplications of a linear layer, on operands as sim/model/operation.hpp orders
// them.
#pragma once

#include "kernels/cpu/operands_of.hpp"
#include "kernels/cpu/operators.hpp"
#include "sim/model/operation.hpp"

namespace headway {

template <typename T>
void compute_gemm(const Gemm& gemm, const OperandsOf& operands, const Placement& placement);

}  // namespace headway
