// The operands of every operation that is measured, for the benchmarks of them on any backend.
#pragma once

#include <cstdint>
#include <span>

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

// Every memory-bound kernel of forward and backward passes; what follows the last gradient.
std::span<const KernelOperands> training_kernels();
std::span<const KernelOperands> optimizer_kernels();

// "gemm/ROLE/TYPE/TOKENS/OUTPUTS/INPUTS"; a weight gradient is added to what is there, in `output`.
OperationBenchmark gemm_benchmark(GemmRole role, DataType type, DataType output, std::int64_t m,
                                  std::int64_t n, std::int64_t k);
// The fused attention core, causal: "attention/PASS/TYPE/BATCH/HEADS/KV_HEADS/SEQUENCE/HEAD_DIM".
OperationBenchmark attention_benchmark(bool backward, DataType type, std::int64_t batch,
                                       std::int64_t heads, std::int64_t kv_heads,
                                       std::int64_t sequence, std::int64_t head_dim);
// "kernel/KIND/TYPE/ROWS/COLUMNS"
OperationBenchmark benchmark_of(const KernelOperands& of, DataType type, std::int64_t rows,
                                std::int64_t columns);

}  // namespace headway
