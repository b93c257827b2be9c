// Switch Transformer (Fedus et al., arXiv 2101.03961, sections 2.1 and 2.2): one expert a token,
// its output times its gate, fixed capacities filled in the order of the tokens; the loss of
// equations 4 to 6 with its coefficient of 1e-2.
#include "sim/program/expert/expert_rules.hpp"

namespace headway {

ExpertRules switch_transformer::rules(const Job&) {
  ExpertRules rules;
  rules.score = RouterScore::kSoftmax;
  rules.padded = true;
  rules.host_learns_counts = false;
  rules.auxiliary = 1e-2;
  return rules;
}

}  // namespace headway
