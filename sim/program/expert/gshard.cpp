// GShard (Lepikhin et al., arXiv 2006.16668, section 2.2): two experts a token, gates normalised
// over the two, fixed capacities filled in the order of the tokens, all first choices before any
// second, and a loss on the product of chosen and mean gate. Every second layer has experts (the
// model's moe_layer_freq). Limitation: a second expert is always asked for, not in proportion to
// its gate.
#include "sim/program/expert/expert_rules.hpp"

namespace headway {

ExpertRules gshard::rules(const Job&) {
  ExpertRules rules;
  rules.score = RouterScore::kSoftmaxOfChosen;
  rules.padded = true;
  rules.host_learns_counts = false;
  rules.auxiliary = 1e-2;
  return rules;
}

}  // namespace headway
