// Chimera (Li and Hoefler, arXiv 2107.06925): two copies of the model run through the pipeline in
// opposite directions, half of the micro-batches each, so that one fills the bubbles of the other.
// With slots of one pass, direction d's forward passes fall on the slots of one parity of a rank
// and its backward passes on those of the other: a unit of p micro-batches takes 2 p slots of every
// rank and leaves p - 2 free at its ends, which the next unit fills (the paper's direct
// concatenation). Weights are held twice; between p / 2 + 1 and p micro-batches are in flight.
#include <string>

#include "sim/program/pipeline/leaves.hpp"

namespace headway::pipeline {
namespace {

std::string refusal(const ScheduleShape& shape) {
  std::string stages = refusal_of_stages(shape, 2);
  if (!stages.empty()) return stages;
  if (shape.ranks % 2 != 0)
    return "needs an even number of pipeline ranks, not " + std::to_string(shape.ranks);
  if (shape.micro_batches % 2 != 0)
    return "needs an even number of micro-batches, not " + std::to_string(shape.micro_batches);
  return {};
}

// One direction's passes on a rank; `place`: how far from that direction's first stage it is.
void add_direction(std::vector<SlottedAction>& actions, int stage, int place, int first, int count,
                   int p) {
  for (int i = 0; i < count; ++i) {
    const int unit = i / (p / 2), within = i % (p / 2);
    const int slot = 2 * p * unit + 2 * within;
    actions.push_back({slot + place, {stage, ActionKind::kForward, first + i}});
    actions.push_back({slot + p + (p - 1 - place), {stage, ActionKind::kBackward, first + i}});
  }
}

std::vector<Action> actions(int rank, const ScheduleShape& shape) {
  const int p = shape.ranks, half = shape.micro_batches / 2;
  std::vector<SlottedAction> slots;
  add_direction(slots, rank, rank, 0, half, p);
  add_direction(slots, 2 * p - 1 - rank, p - 1 - rank, half, half, p);
  return in_slot_order(std::move(slots));
}

}  // namespace

Schedule chimera() {
  Schedule schedule;
  schedule.name = "chimera";
  schedule.source = "Chimera, arXiv 2107.06925, figure 2 and section 3.5 (direct concatenation)";
  schedule.copies = 2;
  schedule.fixed_stages_per_rank = 2;
  schedule.asynchronous = true;
  schedule.refusal = refusal;
  schedule.rank_of = folded_rank;
  schedule.actions = actions;
  return schedule;
}

}  // namespace headway::pipeline
