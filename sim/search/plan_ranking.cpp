#include "sim/search/plan_ranking.hpp"

#include <algorithm>

#include "sim/search/plan_judge.hpp"

namespace headway {

bool overlaps(const FoundPlan& a, const FoundPlan& b, Objective objective) {
  const double weight_a = objective == Objective::kCost ? a.report.gpus : 1;
  const double weight_b = objective == Objective::kCost ? b.report.gpus : 1;
  return a.report.interval_low.seconds() * weight_a <=
             b.report.interval_high.seconds() * weight_b &&
         b.report.interval_low.seconds() * weight_b <= a.report.interval_high.seconds() * weight_a;
}

double cost_of(const FoundPlan& plan, Objective objective) {
  switch (objective) {
    case Objective::kTime:
      return plan.report.iteration.seconds();
    case Objective::kCost:
      return plan.report.iteration.seconds() * plan.report.gpus;
    case Objective::kMemory:
      return static_cast<double>(needed_memory(plan.report.memory).count);
  }
  return 0;
}

void rank_plans(std::vector<FoundPlan>& plans, Objective objective) {
  if (plans.empty()) return;
  // Of equal plans the one that is enumerated first: the sort is stable.
  std::stable_sort(plans.begin(), plans.end(), [&](const FoundPlan& a, const FoundPlan& b) {
    return cost_of(a, objective) < cost_of(b, objective);
  });
  const Objective compared = objective == Objective::kCost ? objective : Objective::kTime;
  const auto fastest =
      std::min_element(plans.begin(), plans.end(), [&](const FoundPlan& a, const FoundPlan& b) {
        return cost_of(a, compared) < cost_of(b, compared);
      });
  for (FoundPlan& plan : plans) {
    plan.fastest = &plan == &*fastest;
    plan.tie = overlaps(plan, *fastest, compared);
  }
  if (objective == Objective::kMemory) return;
  std::stable_sort(plans.begin(), plans.end(), [](const FoundPlan& a, const FoundPlan& b) {
    if (a.tie != b.tie) return a.tie;
    if (!a.tie) return false;
    if (a.memory_margin != b.memory_margin) return a.memory_margin > b.memory_margin;
    return moving_parts(a.job.plan) < moving_parts(b.job.plan);
  });
}

int moving_parts(const ParallelPlan& plan) {
  int parts = 0;
  for (const bool part :
       {plan.tp > 1, plan.pp > 1, plan.cp > 1, plan.ep > 1, plan.vpp > 1,
        plan.pp > 1 && plan.schedule != "1f1b", plan.sequence_parallel && plan.tp > 1,
        plan.recompute != Recompute::kNothing, plan.recompute_layers > 0,
        plan.dp * plan.cp > 1 && plan.dp_kind != DataParallelKind::kDdp}) {
    parts += part ? 1 : 0;
  }
  return parts;
}

}  // namespace headway
