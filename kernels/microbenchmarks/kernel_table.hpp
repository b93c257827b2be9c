// The operands of every memory-bound kernel, for the benchmarks of them.
#pragma once

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

// "kernel/KIND/TYPE/ROWS/COLUMNS".
void add_kernel(const KernelOperands& of, std::int64_t rows, std::int64_t columns);

}  // namespace headway
