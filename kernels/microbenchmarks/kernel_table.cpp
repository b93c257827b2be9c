#include "kernels/microbenchmarks/kernel_table.hpp"

namespace headway {

void add_kernels(std::span<const KernelOperands> kernels, const KernelShapes& shapes) {
  for (const KernelOperands& kernel : kernels) {
    for (const auto& [rows, columns] : shapes)
      add(benchmark_of(kernel, DataType::kFp32, rows, columns));
  }
}

}  // namespace headway
