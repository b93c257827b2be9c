// DeepSpeed-MoE (Rajbhandari et al., arXiv 2201.05596; deepspeed/moe/sharded_moe.py): one or two
// experts a token, fixed capacities, and the loss of GShard with its coefficient of 1e-2 in the
// examples. Limitation: dispatch is a permutation here (as with its Tutel kernels), not its einsum
// with a mask.
#include "sim/program/expert/expert_rules.hpp"

namespace headway {

ExpertRules deepspeed_moe::rules(const Job& job) {
  ExpertRules rules;
  rules.score =
      job.model.experts.per_token == 1 ? RouterScore::kSoftmax : RouterScore::kSoftmaxOfChosen;
  rules.padded = job.plan.moe.capacity_factor.has_value();
  rules.host_learns_counts = !rules.padded;
  rules.auxiliary = 1e-2;
  return rules;
}

}  // namespace headway
