#include "kernels/microbenchmarks/kernel_table.hpp"

#include <algorithm>

namespace headway {
namespace {

constexpr std::int64_t kVocabulary = 4096;
constexpr std::int64_t kHeadDim = 64;

OperandShape shape_of(char letter, DataType type, std::int64_t rows, std::int64_t columns,
                      const std::vector<OperandShape>& before) {
  switch (letter) {
    case 'x':
      return {type, rows, columns};
    case 'd':
      return {type, rows, 2 * columns};
    case 'w':
      return {type, 1, columns};
    case 's':
      return {DataType::kFp32, rows, 1};
    case 't':
      return {DataType::kFp32, rows, 2};
    case 'i':
      return {DataType::kInt64, rows, 1};
    case 'v':
      return {type, kVocabulary, columns};
    case 'm':
      return {DataType::kBool, rows, columns};
    case 'o':
      return {DataType::kFp64, 1, 1};
    default: {
      const int index = letter - '0';
      OperandShape same = before[static_cast<std::size_t>(index)];
      same.same_as = index;
      return same;
    }
  }
}

void add_kernel(const KernelOperands& of, std::int64_t rows, std::int64_t columns) {
  const DataType type = DataType::kFp32;
  Kernel kernel;
  kernel.kind = of.kind;
  kernel.rows = rows;
  kernel.columns = columns;
  kernel.type = kernel.output = type;
  kernel.head_dim = kHeadDim;
  OperationBenchmark made;
  made.name = "kernel/" + std::string(name(of.kind)) + "/fp32/" + std::to_string(rows) + "/" +
              std::to_string(columns);
  made.operation = kernel;
  made.placement.map.length = rows;
  // Tokens are targets, too: entries of a loss of `columns` logits.
  made.placement.vocabulary = std::min(kVocabulary, columns);
  made.placement.dropout = 0.1;
  made.placement.learning_rate = 1e-6;
  made.placement.clip_norm = 1;
  made.placement.site = "benchmark";
  std::vector<OperandShape> all;
  for (const char* letter = of.reads; *letter != 0; ++letter) {
    made.reads.push_back(all.emplace_back(shape_of(*letter, type, rows, columns, all)));
  }
  for (const char* letter = of.writes; *letter != 0; ++letter) {
    made.writes.push_back(all.emplace_back(shape_of(*letter, type, rows, columns, all)));
  }
  add(std::move(made));
}

}  // namespace

void add_kernels(std::span<const KernelOperands> kernels, const KernelShapes& shapes) {
  for (const KernelOperands& kernel : kernels) {
    for (const auto& [rows, columns] : shapes) add_kernel(kernel, rows, columns);
  }
}

}  // namespace headway
