#include "kernels/microbenchmarks/operation_operands.hpp"

#include <algorithm>

namespace headway {
namespace {

constexpr KernelOperands kTrainingKernels[] = {
    {KernelKind::kEmbeddingForward, "iv", "x"},
    {KernelKind::kEmbeddingBackward, "ixv", "2"},
    {KernelKind::kPositionForward, "xx", "0"},
    {KernelKind::kPositionBackward, "xx", "1"},
    {KernelKind::kRmsNormForward, "xw", "xs"},
    {KernelKind::kRmsNormBackward, "xxwsw", "x4"},
    {KernelKind::kLayerNormForward, "xww", "xt"},
    {KernelKind::kLayerNormBackward, "xxwtww", "x45"},
    {KernelKind::kRotaryForward, "x", "0"},
    {KernelKind::kRotaryBackward, "x", "0"},
    {KernelKind::kGeluForward, "x", "x"},
    {KernelKind::kGeluBackward, "xx", "x"},
    {KernelKind::kSwigluForward, "d", "x"},
    {KernelKind::kSwigluBackward, "xd", "d"},
    {KernelKind::kReluForward, "x", "x"},
    {KernelKind::kReluBackward, "xx", "x"},
    {KernelKind::kBiasAdd, "xw", "0"},
    {KernelKind::kBiasBackward, "xw", "1"},
    {KernelKind::kDropoutForward, "x", "xm"},
    {KernelKind::kDropoutBackward, "xm", "x"},
    {KernelKind::kResidualAdd, "xx", "x"},
    {KernelKind::kBiasDropoutAddForward, "xx", "xm"},
    {KernelKind::kBiasDropoutAddBackward, "xm", "x"},
    {KernelKind::kGradientAdd, "xx", "0"},
    {KernelKind::kGradientAccumulate, "xx", "0"},
    {KernelKind::kCrossEntropyMaximum, "x", "s"},
    {KernelKind::kCrossEntropySums, "xsi", "ss0"},
    {KernelKind::kCrossEntropyLoss, "sss", "s"},
    {KernelKind::kCrossEntropyBackward, "xsi", "0"},
    {KernelKind::kCrossEntropyShift, "sss", "0"},
    {KernelKind::kCrossEntropyInputGradient, "xxs", "0"},
    {KernelKind::kFusedCrossEntropyForward, "xi", "ss"},
    {KernelKind::kFusedCrossEntropyBackward, "xis", "x"},
    {KernelKind::kCast, "x", "x"},
    {KernelKind::kScale, "x", "0"},
    {KernelKind::kZero, "", "x"},
    {KernelKind::kCopy, "x", "x"},
};

constexpr KernelOperands kOptimizerKernels[] = {
    {KernelKind::kSquaredNorm, "xo", "1"},   {KernelKind::kClip, "ox", "1"},
    {KernelKind::kSgd, "xx", "0"},           {KernelKind::kAdam, "xxxx", "023"},
    {KernelKind::kCastParameters, "x", "x"},
};

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

}  // namespace

std::span<const KernelOperands> training_kernels() { return kTrainingKernels; }
std::span<const KernelOperands> optimizer_kernels() { return kOptimizerKernels; }

OperationBenchmark gemm_benchmark(GemmRole role, DataType type, DataType output, std::int64_t m,
                                  std::int64_t n, std::int64_t k) {
  Gemm gemm;
  gemm.role = role;
  gemm.m = m;
  gemm.n = n;
  gemm.k = k;
  gemm.type = type;
  gemm.output = output;
  gemm.accumulate = role == GemmRole::kWeightGradient;
  OperationBenchmark made;
  made.name = "gemm/" + std::string(name(role)) + "/" + std::string(name(type)) + "/" +
              std::to_string(m) + "/" + std::to_string(n) + "/" + std::to_string(k);
  made.operation = gemm;
  switch (role) {
    case GemmRole::kForward:
      made.reads = {{type, m, k}, {type, n, k}};
      made.writes = {{output, m, n}};
      break;
    case GemmRole::kInputGradient:
      made.reads = {{type, m, n}, {type, n, k}};
      made.writes = {{output, m, k}};
      break;
    case GemmRole::kWeightGradient:
      made.reads = {{type, m, n}, {type, m, k}, {output, n, k}};
      made.writes = {{output, n, k, 2}};
      break;
  }
  return made;
}

OperationBenchmark attention_benchmark(bool backward, DataType type, std::int64_t batch,
                                       std::int64_t heads, std::int64_t kv_heads,
                                       std::int64_t sequence, std::int64_t head_dim) {
  Attention attention;
  attention.backward = backward;
  attention.batch = batch;
  attention.heads = heads;
  attention.kv_heads = kv_heads;
  attention.sequence_q = attention.sequence_kv = sequence;
  attention.head_dim = attention.head_dim_v = head_dim;
  attention.type = type;
  OperationBenchmark made;
  made.name = std::string("attention/") + (backward ? "backward" : "forward") + "/" +
              std::string(name(type));
  for (const std::int64_t size : {batch, heads, kv_heads, sequence, head_dim}) {
    made.name += "/" + std::to_string(size);
  }
  made.operation = attention;
  made.placement.map.length = sequence;
  const std::int64_t tokens = batch * sequence;
  const OperandShape qkv{type, tokens, (heads + 2 * kv_heads) * head_dim};
  const OperandShape context{type, tokens, heads * head_dim};
  const OperandShape statistics{DataType::kFp32, tokens, heads};
  if (backward) {
    made.reads = {context, qkv, context, statistics};
    made.writes = {qkv};
  } else {
    made.reads = {qkv};
    made.writes = {context, statistics};
  }
  return made;
}

OperationBenchmark benchmark_of(const KernelOperands& of, DataType type, std::int64_t rows,
                                std::int64_t columns) {
  Kernel kernel;
  kernel.kind = of.kind;
  kernel.rows = rows;
  kernel.columns = columns;
  kernel.type = kernel.output = type;
  kernel.head_dim = kHeadDim;
  OperationBenchmark made;
  made.name = "kernel/" + std::string(name(of.kind)) + "/" + std::string(name(type)) + "/" +
              std::to_string(rows) + "/" + std::to_string(columns);
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
  return made;
}

}  // namespace headway
