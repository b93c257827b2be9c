// Interleaved 1F1B (Narayanan et al., arXiv 2104.04473, section 2.2): rank r holds the chunks c p +
// r and passes groups of N micro-batches through a chunk before it turns to the next one. N is
// Megatron's `microbatch_group_size_per_vp_stage`, p by default; the last group may be smaller. The
// bubble shrinks to (p-1)(F+B)/v.
#include <algorithm>

#include "sim/program/pipeline/leaves.hpp"

namespace headway::pipeline {
namespace {

int group_of(const ScheduleShape& shape) { return shape.group > 0 ? shape.group : shape.ranks; }

std::string refusal(const ScheduleShape& shape) {
  std::string counts = refusal_of_counts(shape);
  if (!counts.empty()) return counts;
  if (shape.stages_per_rank < 2) return "needs at least 2 virtual stages per rank (vpp)";
  const int p = shape.ranks;
  const int m = shape.micro_batches;
  const int group = group_of(shape);
  if (m < p) {
    return "needs at least as many micro-batches as pipeline ranks: " + std::to_string(m) + " < " +
           std::to_string(p);
  }
  if (group < p || group > m) {
    return "needs a group (vpp_group) between the " + std::to_string(p) +
           " pipeline ranks and the " + std::to_string(m) + " micro-batches, not " +
           std::to_string(group);
  }
  const int rest = m % group;
  if (rest != 0 && rest < p) {
    return std::to_string(m) + " micro-batches in groups of " + std::to_string(group) +
           " leave a last group of " + std::to_string(rest) +
           "; it must be empty or have at least " + std::to_string(p) + " (the pipeline ranks)";
  }
  return {};
}

// The order in which a rank meets (chunk, micro-batch), forward.
struct Visit {
  int chunk, micro_batch;
};
std::vector<Visit> visits(const ScheduleShape& shape) {
  const int m = shape.micro_batches;
  const int group = group_of(shape);
  std::vector<Visit> order;
  order.reserve(static_cast<std::size_t>(m) * static_cast<std::size_t>(shape.stages_per_rank));
  for (int first = 0; first < m; first += group) {
    const int end = std::min(m, first + group);
    for (int chunk = 0; chunk < shape.stages_per_rank; ++chunk) {
      for (int i = first; i < end; ++i) order.push_back({chunk, i});
    }
  }
  return order;
}

std::vector<Action> actions(int rank, const ScheduleShape& shape) {
  const int p = shape.ranks;
  const int v = shape.stages_per_rank;
  const std::vector<Visit> order = visits(shape);
  const int total = static_cast<int>(order.size());
  const int warm_up = std::min(total, 2 * (p - rank - 1) + (v - 1) * group_of(shape));

  const auto forward = [&](int k) {
    const Visit visit = order[static_cast<std::size_t>(k)];
    return Action{visit.chunk * p + rank, ActionKind::kForward, visit.micro_batch};
  };
  const auto backward = [&](int k) {  // the chunks in reverse
    const Visit visit = order[static_cast<std::size_t>(k)];
    return Action{(v - 1 - visit.chunk) * p + rank, ActionKind::kBackward, visit.micro_batch};
  };
  std::vector<Action> result;
  result.reserve(2 * order.size());
  for (int k = 0; k < warm_up; ++k) result.push_back(forward(k));
  for (int k = 0; k < total - warm_up; ++k) {
    result.push_back(forward(k + warm_up));
    result.push_back(backward(k));
  }
  for (int k = total - warm_up; k < total; ++k) result.push_back(backward(k));
  return result;
}

}  // namespace

Schedule interleaved() {
  Schedule schedule;
  schedule.name = "interleaved";
  schedule.source =
      "Interleaved 1F1B, arXiv 2104.04473 section 2.2; order of Megatron-LM schedules.py";
  schedule.fixed_stages_per_rank = 0;
  schedule.refusal = refusal;
  schedule.rank_of = looped_rank;
  schedule.actions = actions;
  return schedule;
}

}  // namespace headway::pipeline
