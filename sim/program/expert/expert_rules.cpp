#include "sim/program/expert/expert_rules.hpp"

namespace headway {

ExpertRules expert_rules(const Job& job) {
  switch (job.plan.moe.kind) {
    case ExpertKind::kMegatron:
      return megatron_moe::rules(job);
    case ExpertKind::kGshard:
      return gshard::rules(job);
    case ExpertKind::kSwitch:
      return switch_transformer::rules(job);
    case ExpertKind::kGlam:
      return glam::rules(job);
    case ExpertKind::kDeepspeed:
      return deepspeed_moe::rules(job);
    case ExpertKind::kDeepseek:
      return deepseek_moe::rules(job);
  }
  return {};
}

// Megatron-LM, transformer/moe/router.py: dropless, or dropping what weighs least
// (--moe-token-drop-policy probs).
ExpertRules megatron_moe::rules(const Job& job) {
  const ExpertLayers& model = job.model.experts;
  ExpertRules rules;
  // The softmax of one chosen logit alone would be 1 whatever the router says.
  rules.score = model.router_bias      ? RouterScore::kSigmoid
                : model.per_token == 1 ? RouterScore::kSoftmax
                                       : RouterScore::kSoftmaxOfChosen;
  rules.by_score = true;
  // HybridEP's buffers have room for all that may come.
  rules.host_learns_counts =
      !job.plan.moe.capacity_factor && job.plan.moe.dispatch != Dispatch::kHybridEp;
  rules.auxiliary = 1e-2;  // --moe-aux-loss-coeff, as its examples set it
  return rules;
}

}  // namespace headway
