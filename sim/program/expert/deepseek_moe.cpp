// DeepSeekMoE as DeepSeek-V3 trains it (arXiv 2412.19437, section 2.1.2): sigmoid scores,
// normalised over the chosen, of a limited number of groups; no choice is dropped, and experts are
// kept even by biases that no gradient moves, so there is no loss for it.
#include "sim/program/expert/expert_rules.hpp"

namespace headway {

ExpertRules deepseek_moe::rules(const Job& job) {
  ExpertRules rules;
  rules.score = RouterScore::kSigmoid;
  rules.by_score = true;
  rules.host_learns_counts = !job.plan.moe.capacity_factor;
  return rules;
}

}  // namespace headway
