// 1F1B with flush (PipeDream-Flush; Narayanan et al., arXiv 2104.04473): rank r runs p-r-1 forward
// passes ahead, then one forward and one backward in turn, then the backward passes left. The
// bubble is GPipe's, (p-1)(F+B), but only min(m, p-r) micro-batches are in flight.
#include <algorithm>

#include "sim/program/pipeline/leaves.hpp"

namespace headway::pipeline {

Schedule one_f_one_b() {
  Schedule schedule;
  schedule.name = "1f1b";
  schedule.source = "PipeDream-Flush, arXiv 2104.04473; order of Megatron-LM schedules.py";
  schedule.refusal = [](const ScheduleShape& shape) { return refusal_of_stages(shape, 1); };
  schedule.rank_of = looped_rank;
  schedule.actions = [](int rank, const ScheduleShape& shape) {
    const int m = shape.micro_batches;
    const int warm_up = std::min(m, shape.ranks - rank - 1);
    std::vector<Action> actions;
    actions.reserve(2 * static_cast<std::size_t>(m));
    for (int i = 0; i < warm_up; ++i) actions.push_back({rank, ActionKind::kForward, i});
    for (int i = 0; i < m - warm_up; ++i) {
      actions.push_back({rank, ActionKind::kForward, i + warm_up});
      actions.push_back({rank, ActionKind::kBackward, i});
    }
    for (int i = m - warm_up; i < m; ++i) actions.push_back({rank, ActionKind::kBackward, i});
    return actions;
  };
  return schedule;
}

}  // namespace headway::pipeline
