// Looped breadth-first (Lamy-Poirier, arXiv 2211.05953): a rank passes all micro-batches through a
// chunk before it turns to the next, forward, then the same in reverse. The makespan of the
// interleaved schedule with m v chunks in flight; but each chunk's weights are visited once per
// direction.
#include "sim/program/pipeline/leaves.hpp"

namespace headway::pipeline {

Schedule looped_bfs() {
  Schedule schedule;
  schedule.name = "looped-bfs";
  schedule.source =
      "Breadth-first pipeline parallelism, arXiv 2211.05953; order of PyTorch's ScheduleLoopedBFS";
  schedule.fixed_stages_per_rank = 0;
  schedule.asynchronous = true;
  schedule.refusal = [](const ScheduleShape& shape) {
    std::string counts = refusal_of_counts(shape);
    if (!counts.empty() || shape.stages_per_rank >= 2) return counts;
    return std::string("needs at least 2 virtual stages per rank (vpp)");
  };
  schedule.rank_of = looped_rank;
  schedule.actions = [](int rank, const ScheduleShape& shape) {
    const int m = shape.micro_batches;
    std::vector<Action> actions;
    for (int chunk = 0; chunk < shape.stages_per_rank; ++chunk) {
      for (int i = 0; i < m; ++i)
        actions.push_back({chunk * shape.ranks + rank, ActionKind::kForward, i});
    }
    for (int chunk = shape.stages_per_rank - 1; chunk >= 0; --chunk) {
      for (int i = m - 1; i >= 0; --i) {
        actions.push_back({chunk * shape.ranks + rank, ActionKind::kBackward, i});
      }
    }
    return actions;
  };
  return schedule;
}

}  // namespace headway::pipeline
