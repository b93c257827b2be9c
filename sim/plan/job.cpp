#include "sim/plan/job.hpp"

#include <algorithm>
#include <utility>

#include "sim/plan/tensor_grid.hpp"

namespace headway {

std::int64_t Job::padded_vocabulary() const {
  const bool spread =
      plan.vocabulary != Vocabulary::kLastStage && plan.vocabulary != Vocabulary::kRedistributed;
  const std::int64_t shards = spread ? plan.tp * plan.pp : plan.tp;
  if (shards == 1 && !software.pad_vocabulary_at_tp1) return model.vocab_size;
  const std::int64_t multiple = software.vocabulary_multiple * shards;
  return (model.vocab_size + multiple - 1) / multiple * multiple;
}

namespace {

// The axes of an order, innermost first.
std::vector<std::string> axis_names(const std::string& order) {
  std::vector<std::string> names;
  for (std::size_t at = 0; at < order.size();) {
    const std::size_t dash = std::min(order.find('-', at), order.size());
    names.push_back(order.substr(at, dash - at));
    at = dash + 1;
  }
  return names;
}

// Megatron-LM numbers the ranks of a stage for its experts by the same order, with etp for tp and
// no context parallelism (core/parallel_state.py, expert_decoder_rank_generator).
std::vector<FoldedAxis> expert_axes(const std::vector<std::string>& order,
                                    const ParallelPlan& plan) {
  std::vector<FoldedAxis> axes;
  int stride = order.front() == "pp" ? plan.pp : 1;
  const auto add = [&](const char* name, int size) {
    axes.push_back({name, size, stride});
    stride *= size;
  };
  for (const std::string& name : order) {
    if (name == "tp") add("etp", plan.etp);
    if (name == "ep") add("ep", plan.ep);
    if (name == "dp") add("edp", plan.edp);
  }
  return axes;
}

}  // namespace

RankGrid Job::grid() const {
  std::vector<Axis> axes;
  std::vector<FoldedAxis> folded;
  int stride = 1;
  const std::vector<std::string> order = axis_names(plan.order);
  const int holders = plan.dp * plan.cp;  // of the same parameters
  bool shared_out = plan.shard == 0 || plan.shard == holders;
  for (const std::string& name : order) {
    if ((name == "dp" || name == "cp") && !shared_out) {
      folded.push_back({kShardAxis, plan.shard, stride});
      folded.push_back({kReplicaAxis, holders / plan.shard, stride * plan.shard});
      shared_out = true;
    }
    if (name == "cp" && plan.ulysses_degree > 1 && plan.ulysses_degree < plan.cp) {
      folded.push_back({kUlyssesAxis, plan.ulysses_degree, stride});
      folded.push_back({kRingAxis, plan.cp / plan.ulysses_degree, stride * plan.ulysses_degree});
    }
    if (name == "tp") {
      const std::vector<FoldedAxis> again = tensor_axes(model, plan, stride);
      folded.insert(folded.end(), again.begin(), again.end());
      axes.push_back({name, plan.tp});
    }
    if (name == "cp") axes.push_back({name, plan.cp});
    if (name == "dp") axes.push_back({name, plan.dp});
    if (name == "pp") axes.push_back({name, plan.pp});
    if (name != "ep") stride *= axes.back().size;
  }
  if (model.num_experts > 0) {
    const std::vector<FoldedAxis> experts = expert_axes(order, plan);
    folded.insert(folded.end(), experts.begin(), experts.end());
  }
  return RankGrid(std::move(axes), std::move(folded));
}

}  // namespace headway
