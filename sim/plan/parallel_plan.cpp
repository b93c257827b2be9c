#include "sim/plan/parallel_plan.hpp"

namespace headway {

std::string_view name(DataParallelKind kind) {
  switch (kind) {
    case DataParallelKind::kDdp:
      return "ddp";
    case DataParallelKind::kZero1:
      return "zero1";
    case DataParallelKind::kDistributedOptimizer:
      return "distributed_optimizer";
    case DataParallelKind::kZero2:
      return "zero2";
    case DataParallelKind::kZero3:
      return "zero3";
    case DataParallelKind::kFsdp:
      return "fsdp";
  }
  return "";
}

std::vector<std::string> names(const LayerParts& parts) {
  std::vector<std::string> words;
  if (parts.core_attention) words.emplace_back("core_attn");
  if (parts.norms) words.emplace_back("layernorm");
  if (parts.mlp) words.emplace_back("mlp");
  return words;
}

std::string_view name(Recompute recompute) {
  switch (recompute) {
    case Recompute::kNothing:
      return "none";
    case Recompute::kSelective:
      return "selective";
    case Recompute::kFull:
      return "full";
  }
  return "";
}

}  // namespace headway
