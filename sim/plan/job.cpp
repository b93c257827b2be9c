#include "sim/plan/job.hpp"

#include <algorithm>
#include <utility>

namespace headway {

std::int64_t Job::padded_vocabulary() const {
  const bool spread =
      plan.vocabulary != Vocabulary::kLastStage && plan.vocabulary != Vocabulary::kRedistributed;
  const std::int64_t shards = spread ? plan.tp * plan.pp : plan.tp;
  if (shards == 1 && !software.pad_vocabulary_at_tp1) return model.vocab_size;
  const std::int64_t multiple = software.vocabulary_multiple * shards;
  return (model.vocab_size + multiple - 1) / multiple * multiple;
}

// Experts are spread over the ranks that the other axes number already, so "ep" is no axis of its
// own.
RankGrid Job::grid() const {
  std::vector<Axis> axes;
  std::size_t at = 0;
  while (at < plan.order.size()) {
    const std::size_t dash = std::min(plan.order.find('-', at), plan.order.size());
    const std::string name = plan.order.substr(at, dash - at);
    at = dash + 1;
    if (name == "tp") axes.push_back({name, plan.tp});
    if (name == "cp") axes.push_back({name, plan.cp});
    if (name == "dp") axes.push_back({name, plan.dp});
    if (name == "pp") axes.push_back({name, plan.pp});
  }
  return RankGrid(std::move(axes));
}

}  // namespace headway
