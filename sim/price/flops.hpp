// Executed floating-point operations: those of every matrix multiplication and attention core that
// a rank really issues in a step, recomputation included (what hfu counts; mfu counts the model's).
// Attention is counted in full, without causal halving.
#pragma once

#include "sim/core/units.hpp"
#include "sim/program/program.hpp"

namespace headway {

struct ExecutedFlops {
  Flops gemm;
  Flops attention;
  Flops total() const { return gemm + attention; }
};

// Of one rank of this kind, per step.
ExecutedFlops executed_flops(const Program& program, const RankKind& kind);

// Of all ranks together, per step.
Flops hardware_flops(const Program& program);

}  // namespace headway
