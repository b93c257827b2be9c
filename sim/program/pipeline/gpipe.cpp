// GPipe (Huang et al., arXiv 1811.06965): all forward passes, then all backward passes, in the
// order of the micro-batches as PyTorch's ScheduleGPipe has it. Bubble (p-1)(F+B); every
// micro-batch is in flight.
#include "sim/program/pipeline/leaves.hpp"

namespace headway::pipeline {

Schedule gpipe() {
  Schedule schedule;
  schedule.name = "gpipe";
  schedule.source = "GPipe, arXiv 1811.06965; order of torch.distributed.pipelining ScheduleGPipe";
  schedule.rematerialises_stages = true;
  schedule.refusal = [](const ScheduleShape& shape) { return refusal_of_stages(shape, 1); };
  schedule.rank_of = looped_rank;
  schedule.actions = [](int rank, const ScheduleShape& shape) {
    std::vector<Action> actions;
    actions.reserve(2 * static_cast<std::size_t>(shape.micro_batches));
    for (int i = 0; i < shape.micro_batches; ++i)
      actions.push_back({rank, ActionKind::kForward, i});
    for (int i = 0; i < shape.micro_batches; ++i)
      actions.push_back({rank, ActionKind::kBackward, i});
    return actions;
  };
  return schedule;
}

}  // namespace headway::pipeline
