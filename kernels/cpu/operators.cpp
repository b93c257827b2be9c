#include "kernels/cpu/operators.hpp"

#include "kernels/cpu/attention.hpp"
#include "kernels/cpu/gemm.hpp"
#include "kernels/cpu/memory_bound.hpp"
#include "kernels/cpu/routing.hpp"

namespace headway {
namespace {

template <typename T>
void compute_kernel(const Kernel& kernel, const OperandsOf& operands, const Placement& placement) {
  switch (kernel.kind) {
    case KernelKind::kRmsNormForward:
    case KernelKind::kRmsNormBackward:
    case KernelKind::kLayerNormForward:
    case KernelKind::kLayerNormBackward:
      return compute_norm<T>(kernel, operands);
    case KernelKind::kGeluForward:
    case KernelKind::kGeluBackward:
    case KernelKind::kSwigluForward:
    case KernelKind::kSwigluBackward:
    case KernelKind::kReluForward:
    case KernelKind::kReluBackward:
      return compute_activation<T>(kernel, operands);
    case KernelKind::kEmbeddingForward:
    case KernelKind::kEmbeddingBackward:
    case KernelKind::kPositionForward:
    case KernelKind::kPositionBackward:
    case KernelKind::kRotaryForward:
    case KernelKind::kRotaryBackward:
    case KernelKind::kLatentForward:
    case KernelKind::kLatentBackward:
      return compute_embedding<T>(kernel, operands, placement);
    case KernelKind::kDropoutForward:
    case KernelKind::kDropoutBackward:
    case KernelKind::kBiasDropoutAddForward:
    case KernelKind::kBiasDropoutAddBackward:
      return compute_dropout<T>(kernel, operands, placement);
    case KernelKind::kCrossEntropyMaximum:
    case KernelKind::kCrossEntropySums:
    case KernelKind::kCrossEntropyLoss:
    case KernelKind::kCrossEntropyBackward:
    case KernelKind::kCrossEntropyShift:
    case KernelKind::kCrossEntropyInputGradient:
    case KernelKind::kFusedCrossEntropyForward:
    case KernelKind::kFusedCrossEntropyBackward:
    case KernelKind::kLossSum:
      return compute_cross_entropy<T>(kernel, operands, placement);
    case KernelKind::kResidualAdd:
    case KernelKind::kGradientAdd:
    case KernelKind::kGradientAccumulate:
    case KernelKind::kBiasAdd:
    case KernelKind::kBiasBackward:
    case KernelKind::kScale:
    case KernelKind::kZero:
    case KernelKind::kToHost:
    case KernelKind::kToDevice:
    case KernelKind::kSumParts:
    case KernelKind::kSplitSequence:
    case KernelKind::kCast:
    case KernelKind::kCopy:
    case KernelKind::kCastParameters:
    case KernelKind::kTranspose:
      return compute_elementwise<T>(kernel, operands, placement);
    case KernelKind::kAmax:
    case KernelKind::kQuantise:
    case KernelKind::kRollAmax:
      return compute_quantisation<T>(kernel, operands);
    case KernelKind::kSplitColumns:
    case KernelKind::kJoinColumns:
    case KernelKind::kAttentionMerge:
      return compute_columns<T>(kernel, operands);
    case KernelKind::kMixForward:
    case KernelKind::kMixBackward:
      return compute_mix<T>(kernel, operands);
    case KernelKind::kSquaredNorm:
    case KernelKind::kClip:
    case KernelKind::kValidateNorm:
    case KernelKind::kSgd:
    case KernelKind::kAdam:
    case KernelKind::kLion:
    case KernelKind::kDecayedStep:
      return compute_update<T>(kernel, operands, placement);
    case KernelKind::kMomentum:
    case KernelKind::kNormalise:
    case KernelKind::kWeightedSum:
    case KernelKind::kFactoredDirection:
      return compute_direction<T>(kernel, operands, placement);
  }
  operands.refuse("the CPU executor does not know this kernel");
}

template <typename T>
void compute_as(const Operation& operation, const OperandsOf& operands,
                const Placement& placement) {
  if (const auto* gemm = std::get_if<Gemm>(&operation)) {
    compute_gemm<T>(*gemm, operands, placement);
  } else if (const auto* grouped = std::get_if<GroupedGemm>(&operation)) {
    compute_grouped_gemm<T>(*grouped, operands);
  } else if (const auto* routing = std::get_if<Routing>(&operation)) {
    compute_routing<T>(*routing, operands, placement);
  } else if (const auto* attention = std::get_if<Attention>(&operation)) {
    compute_attention<T>(*attention, operands, placement);
  } else if (const auto* kernel = std::get_if<Kernel>(&operation)) {
    compute_kernel<T>(*kernel, operands, placement);
  } else {
    operands.refuse("not an operation of one rank alone");
  }
}

}  // namespace

std::string title(const Operation& operation) {
  if (const auto* gemm = std::get_if<Gemm>(&operation)) {
    return "gemm " + std::string(name(gemm->role));
  }
  if (const auto* gemm = std::get_if<GroupedGemm>(&operation)) {
    return "grouped gemm " + std::string(name(gemm->role));
  }
  if (const auto* kernel = std::get_if<Kernel>(&operation)) return std::string(name(kernel->kind));
  if (const auto* routing = std::get_if<Routing>(&operation)) {
    return "routing " + std::string(name(routing->kind));
  }
  if (const auto* attention = std::get_if<Attention>(&operation)) {
    return attention->backward ? "attention backward" : "attention forward";
  }
  return "collective or host work";
}

void compute(const Operation& operation, std::span<const Operand> reads,
             std::span<const Operand> writes, const Placement& placement) {
  const OperandsOf operands(title(operation), reads, writes);
  bool in_double = false;
  for (const std::span<const Operand> list : {reads, writes}) {
    for (const Operand& operand : list) {
      in_double = in_double || operand.type == DataType::kFp64;
    }
  }
  return in_double ? compute_as<double>(operation, operands, placement)
                   : compute_as<float>(operation, operands, placement);
}

}  // namespace headway
