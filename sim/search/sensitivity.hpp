// How a choice of plans holds where the machine or the data turn out worse than assumed: each plan
// timed again with slower NICs, slower matrix multiplications, one slow GPU, and, for a mixture of
// experts, some experts chosen more often than others. These are questions, not predictions.
#pragma once

#include <string>
#include <vector>

#include "sim/cost/profile.hpp"
#include "sim/search/plan_search.hpp"

namespace headway {

struct Sensitivity {
  std::string name;   // "nic", "gemm", "slow_gpu", "hot_experts": the key of a result
  std::string words;  // "NIC bandwidth -20 %"
  double factor = 1;  // bandwidth, rate, speed, or the hottest expert's load, over the assumed
  std::vector<Time> times;  // by plan
  std::size_t best = 0;     // of them: the fastest, or with kCost the cheapest
};

// A trial that concerns none of the plans (NICs on one node) is left out. REQUIRES: `profile` is
// the plans'; there is at least one.
std::vector<Sensitivity> hold_against_trials(const std::vector<FoundPlan>& plans,
                                             const Profile& profile, Objective objective,
                                             int threads);

}  // namespace headway
