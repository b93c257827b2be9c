// Why plans were rejected: how many for each reason, and the one that came closest, with what would
// make it fit.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/search/plan_judge.hpp"
#include "sim/search/plan_space.hpp"

namespace headway {

// Plans that were rejected for one reason.
struct RejectedPlans {
  std::string reason;
  std::int64_t count = 0;
  std::string nearest_miss;  // the one that came closest, and what would make it fit
};

// Most frequent first. `best` is the answer, which illegal plans are held against; nullptr: none.
std::vector<RejectedPlans> explain_rejections(const PlanSpace& space,
                                              const std::vector<JudgedPlan>& judged, Bytes allowed,
                                              const PlanChoice* best);

// "tp 4, pp 8, schedule interleaved, vpp 5, micro_batch 2".
std::string choice_words(const std::vector<std::string>& keys, const PlanChoice& choice);

}  // namespace headway
