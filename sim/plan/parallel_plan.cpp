#include "sim/plan/parallel_plan.hpp"

#include "sim/program/schedule.hpp"

namespace headway {

std::string_view name(DataParallelKind kind) {
  switch (kind) {
    case DataParallelKind::kDdp:
      return "ddp";
    case DataParallelKind::kHorovod:
      return "horovod";
    case DataParallelKind::kZero1:
      return "zero1";
    case DataParallelKind::kDistributedOptimizer:
      return "distributed_optimizer";
    case DataParallelKind::kZero2:
      return "zero2";
    case DataParallelKind::kZero3:
      return "zero3";
    case DataParallelKind::kZeroPlusPlus:
      return "zero++";
    case DataParallelKind::kFsdp:
      return "fsdp";
    case DataParallelKind::kHsdp:
      return "hsdp";
  }
  return "";
}

std::vector<std::string> names(const LayerParts& parts) {
  std::vector<std::string> words;
  if (parts.core_attention) words.emplace_back("core_attn");
  if (parts.norms) words.emplace_back("layernorm");
  if (parts.mlp) words.emplace_back("mlp");
  if (parts.up_projections) words.emplace_back("mla_up_proj");
  if (parts.expert_activation) words.emplace_back("moe_act");
  if (parts.shared_experts) words.emplace_back("shared_experts");
  if (parts.experts) words.emplace_back("moe");
  return words;
}

std::string_view name(ContextParallelKind kind) {
  switch (kind) {
    case ContextParallelKind::kRing:
      return "ring";
    case ContextParallelKind::kAllGather:
      return "allgather";
    case ContextParallelKind::kUlysses:
      return "ulysses";
    case ContextParallelKind::kUlyssesRing:
      return "ulysses+ring";
  }
  return "";
}

std::string_view name(TensorKind kind) {
  switch (kind) {
    case TensorKind::k1d:
      return "1d";
    case TensorKind::k2d:
      return "2d";
    case TensorKind::k2_5d:
      return "2.5d";
    case TensorKind::k3d:
      return "3d";
  }
  return "";
}

std::string_view name(TensorOverlap overlap) {
  switch (overlap) {
    case TensorOverlap::kNothing:
      return "none";
    case TensorOverlap::kBulk:
      return "bulk";
    case TensorOverlap::kRing:
      return "ring";
  }
  return "";
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

std::string_view name(Vocabulary vocabulary) {
  switch (vocabulary) {
    case Vocabulary::kLastStage:
      return "last-stage";
    case Vocabulary::kRedistributed:
      return "redistributed";
    case Vocabulary::kParallelTwoBarriers:
      return "parallel-1";
    case Vocabulary::kParallelOneBarrier:
      return "parallel-2";
    case Vocabulary::kInterlaced:
      return "interlaced";
  }
  return "";
}

std::string_view name(ExpertKind kind) {
  switch (kind) {
    case ExpertKind::kMegatron:
      return "megatron";
    case ExpertKind::kGshard:
      return "gshard";
    case ExpertKind::kSwitch:
      return "switch";
    case ExpertKind::kGlam:
      return "glam";
    case ExpertKind::kDeepspeed:
      return "deepspeed";
    case ExpertKind::kDeepseek:
      return "deepseek";
  }
  return "";
}

std::string_view name(Dispatch dispatch) {
  switch (dispatch) {
    case Dispatch::kAllToAll:
      return "alltoall";
    case Dispatch::kAllGather:
      return "allgather";
    case Dispatch::kDeepEp:
      return "deepep";
    case Dispatch::kHybridEp:
      return "hybridep";
  }
  return "";
}

const Schedule* schedule_of(const ParallelPlan& plan) {
  return plan.custom_schedule ? plan.custom_schedule.get() : find_schedule(plan.schedule);
}

}  // namespace headway
