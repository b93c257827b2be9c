#include "kernels/cuda/device_operators.hpp"

#include "kernels/cuda/device_call.hpp"

namespace headway {
namespace {

template <typename T>
void start_kernel(const Kernel& kernel, const DeviceCall& call) {
  switch (kernel.kind) {
    case KernelKind::kRmsNormForward:
    case KernelKind::kRmsNormBackward:
    case KernelKind::kLayerNormForward:
    case KernelKind::kLayerNormBackward:
      return device_norm<T>(kernel, call);
    case KernelKind::kGeluForward:
    case KernelKind::kGeluBackward:
    case KernelKind::kSwigluForward:
    case KernelKind::kSwigluBackward:
    case KernelKind::kReluForward:
    case KernelKind::kReluBackward:
      return device_activation<T>(kernel, call);
    case KernelKind::kEmbeddingForward:
    case KernelKind::kEmbeddingBackward:
    case KernelKind::kPositionForward:
    case KernelKind::kPositionBackward:
    case KernelKind::kRotaryForward:
    case KernelKind::kRotaryBackward:
    case KernelKind::kLatentForward:
    case KernelKind::kLatentBackward:
      return device_embedding<T>(kernel, call);
    case KernelKind::kDropoutForward:
    case KernelKind::kDropoutBackward:
    case KernelKind::kBiasDropoutAddForward:
    case KernelKind::kBiasDropoutAddBackward:
      return device_dropout<T>(kernel, call);
    case KernelKind::kCrossEntropyMaximum:
    case KernelKind::kCrossEntropySums:
    case KernelKind::kCrossEntropyLoss:
    case KernelKind::kCrossEntropyBackward:
    case KernelKind::kCrossEntropyShift:
    case KernelKind::kCrossEntropyInputGradient:
    case KernelKind::kFusedCrossEntropyForward:
    case KernelKind::kFusedCrossEntropyBackward:
    case KernelKind::kLossSum:
      return device_cross_entropy<T>(kernel, call);
    case KernelKind::kResidualAdd:
    case KernelKind::kGradientAdd:
    case KernelKind::kGradientAccumulate:
    case KernelKind::kBiasAdd:
    case KernelKind::kBiasBackward:
    case KernelKind::kScale:
    case KernelKind::kZero:
    case KernelKind::kSplitSequence:
    case KernelKind::kCast:
    case KernelKind::kCopy:
    case KernelKind::kCastParameters:
    case KernelKind::kAmax:
      return device_elementwise<T>(kernel, call);
    case KernelKind::kSplitColumns:
    case KernelKind::kJoinColumns:
    case KernelKind::kAttentionMerge:
      return device_columns<T>(kernel, call);
    case KernelKind::kSquaredNorm:
    case KernelKind::kClip:
    case KernelKind::kValidateNorm:
    case KernelKind::kSgd:
    case KernelKind::kAdam:
      return device_update<T>(kernel, call);
    default:
      call.operands.refuse("the CUDA executor does not know this kernel");
  }
}

template <typename T>
void start(const Operation& operation, const DeviceCall& call) {
  if (const auto* gemm = std::get_if<Gemm>(&operation)) {
    device_gemm(*gemm, call);
  } else if (const auto* grouped = std::get_if<GroupedGemm>(&operation)) {
    device_grouped_gemm(*grouped, call);
  } else if (const auto* routing = std::get_if<Routing>(&operation)) {
    device_routing<T>(*routing, call);
  } else if (const auto* attention = std::get_if<Attention>(&operation)) {
    device_attention<T>(*attention, call);
  } else if (const auto* kernel = std::get_if<Kernel>(&operation)) {
    start_kernel<T>(*kernel, call);
  } else {
    call.operands.refuse("not an operation of one rank alone");
  }
}

}  // namespace

std::string not_on_device(const Operation& operation) {
  if (const auto* gemm = std::get_if<Gemm>(&operation)) {
    const bool adds = gemm->accumulate && gemm->role != GemmRole::kWeightGradient;
    const bool plain = gemm->batch == 1 && gemm->runs == 1 && gemm->weights == 1 && !adds;
    return plain ? ""
                 : "products in blocks or runs of rows, or added to what is there, are executed on "
                   "CPU only";
  }
  if (const auto* attention = std::get_if<Attention>(&operation)) {
    return attention->document == 0 ? "" : "packed sequences are executed on CPU only";
  }
  const auto* host = std::get_if<HostWork>(&operation);
  if (host != nullptr && host->kind == HostKind::kPause) {
    return "pauses of the host are executed on CPU only";
  }
  const auto* kernel = std::get_if<Kernel>(&operation);
  if (kernel == nullptr) return "";
  switch (kernel->kind) {
    case KernelKind::kQuantise:
    case KernelKind::kTranspose:
    case KernelKind::kRollAmax:
      return "recipes of 8 and 4 bits are executed on CPU only, where numbers are held with their "
             "scale";
    case KernelKind::kToHost:
    case KernelKind::kToDevice:
      return "offload is executed on CPU only";
    case KernelKind::kSumParts:
    case KernelKind::kMixForward:
    case KernelKind::kMixBackward:
    case KernelKind::kLion:
    case KernelKind::kMomentum:
    case KernelKind::kNormalise:
    case KernelKind::kWeightedSum:
    case KernelKind::kFactoredDirection:
    case KernelKind::kDecayedStep:
      return "this kernel is executed on CPU only";
    default:
      return "";
  }
}

void compute_on_device(const Operation& operation, std::span<const Operand> reads,
                       std::span<const Operand> writes, const Placement& placement,
                       DeviceStream& stream) {
  const OperandsOf operands(title(operation), reads, writes);
  bool in_double = false;
  for (const std::span<const Operand> list : {reads, writes}) {
    for (const Operand& operand : list) in_double = in_double || operand.type == DataType::kFp64;
  }
  if (const std::string why = not_on_device(operation); !why.empty()) operands.refuse(why);
  const DeviceCall call{operands, placement, stream};
  return in_double ? start<double>(operation, call) : start<float>(operation, call);
}

}  // namespace headway
