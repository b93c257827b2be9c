// GLaM (Du et al., arXiv 2112.06905, sections 4 and 5): GShard's two experts a token and its fixed
// capacities, in every second layer of a decoder; the same auxiliary loss with coefficient 1e-2.
#include "sim/program/expert/expert_rules.hpp"

namespace headway {

ExpertRules glam::rules(const Job& job) { return gshard::rules(job); }

}  // namespace headway
