// The operands of every memory-bound kernel, for the benchmarks of them.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "kernels/microbenchmarks/operation_benchmark.hpp"

namespace headway {

// A letter for each operand of a kernel over [rows, columns]:
//   x [rows, columns], d [rows, 2 columns], w [1, columns], s fp32 [rows, 1], t fp32 [rows, 2],
//   i int64 [rows, 1], v [vocabulary, columns], m bool [rows, columns], o fp64 [1, 1]
// and a digit for one that shares the memory of an earlier operand, counted through reads and
// writes.
struct KernelOperands {
  KernelKind kind;
  const char* reads;
  const char* writes;
};

// Registers "kernel/KIND/TYPE/ROWS/COLUMNS" for each kernel over each shape of [rows, columns].
using KernelShapes = std::vector<std::pair<std::int64_t, std::int64_t>>;
void add_kernels(std::span<const KernelOperands> kernels, const KernelShapes& shapes);

}  // namespace headway
