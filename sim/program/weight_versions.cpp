#include "sim/program/weight_versions.hpp"

namespace headway {

bool delays_updates(const ParallelPlan& plan) { return !plan.weight_delays.empty(); }

bool keeps_weight_versions(const ParallelPlan& plan) {
  return delays_updates(plan) || (plan.schedule == "pipedream" && plan.pp > 1);
}

std::int64_t update_delay(int ranks, int rank) { return ranks - 1 - rank; }

}  // namespace headway
