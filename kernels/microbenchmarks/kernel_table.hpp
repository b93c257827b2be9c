// Registers the benchmarks of memory-bound kernels with Google Benchmark.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "kernels/microbenchmarks/operation_operands.hpp"

namespace headway {

// Registers "kernel/KIND/TYPE/ROWS/COLUMNS" for each kernel over each shape of [rows, columns].
using KernelShapes = std::vector<std::pair<std::int64_t, std::int64_t>>;
void add_kernels(std::span<const KernelOperands> kernels, const KernelShapes& shapes);

}  // namespace headway
