// V-Half and V-Min (Qi et al., arXiv 2405.15362, section 4): a building block of one micro-batch,
// repeated every six slots. The path folds back as in ZB-V, so that a stage that holds a
// micro-batch long shares its rank with one that holds it briefly, and all ranks hold the same; how
// far apart the block's passes stand decides how much: half of 1F1B's activations, or a third.
// Weight halves fill the slots that the block leaves free. The authors also reorder the two ends of
// the schedule greedily; here the block is repeated as it is, and whoever plays it closes its gaps.
#include <algorithm>
#include <array>
#include <deque>
#include <string>
#include <utility>

#include "sim/program/pipeline/leaves.hpp"

namespace headway::pipeline {

namespace {

// Two stages of a forward, an input and a weight half each: one micro-batch fills six slots.
constexpr int kInterval = 6;

// The slots of a micro-batch's passes on one rank: forward there and back, input half there and
// back.
using Block = std::array<int, 4>;

Block half_block(int rank, int p) {
  // Shifts the backward passes so that no two passes of a rank fall on the same slot modulo six.
  const int shift = p % 2 == 0 ? 3 : 0;
  return {2 * rank, 3 * p - rank - 2, 3 * p + shift + 2 * rank - 1, 6 * p + shift - rank - 2};
}

Block min_block(int rank, int p) {
  const int shift = p % 3 == 0 ? 2 : 0;
  return {rank, 2 * p - rank - 1, 2 * p + shift + rank, 4 * p + shift - rank - 1};
}

std::vector<Action> repeated(const Block& block, int rank, const ScheduleShape& shape) {
  const int there = rank, back = 2 * shape.ranks - 1 - rank;
  std::vector<SlottedAction> passes;
  for (int i = 0; i < shape.micro_batches; ++i) {
    const int first = kInterval * i;
    passes.push_back({first + block[0], {there, ActionKind::kForward, i}});
    passes.push_back({first + block[1], {back, ActionKind::kForward, i}});
    passes.push_back({first + block[2], {back, ActionKind::kBackwardInput, i}});
    passes.push_back({first + block[3], {there, ActionKind::kBackwardInput, i}});
  }
  std::sort(passes.begin(), passes.end(),
            [](const SlottedAction& a, const SlottedAction& b) { return a.slot < b.slot; });

  std::vector<Action> order;
  std::deque<Action> weights;
  const auto weight = [&] {
    order.push_back(weights.front());
    weights.pop_front();
  };
  int slot = 0;
  for (const SlottedAction& pass : passes) {
    for (; slot < pass.slot; ++slot) {
      if (!weights.empty()) weight();
    }
    order.push_back(pass.action);
    ++slot;
    if (pass.action.kind != ActionKind::kBackwardInput) continue;
    weights.push_back({pass.action.stage, ActionKind::kBackwardWeight, pass.action.micro_batch});
  }
  while (!weights.empty()) weight();
  return order;
}

Schedule controllable(std::string name, Block (*block)(int, int)) {
  Schedule schedule;
  schedule.name = std::move(name);
  schedule.source = "Pipeline parallelism with controllable memory, arXiv 2405.15362, section 4";
  schedule.fixed_stages_per_rank = 2;
  schedule.splits_backward = true;
  schedule.asynchronous = true;
  schedule.validates_afterwards = true;
  schedule.refusal = [](const ScheduleShape& shape) { return refusal_of_stages(shape, 2); };
  schedule.rank_of = folded_rank;
  schedule.actions = [block](int rank, const ScheduleShape& shape) {
    return repeated(block(rank, shape.ranks), rank, shape);
  };
  return schedule;
}

}  // namespace

Schedule v_half() { return controllable("v-half", half_block); }
Schedule v_min() { return controllable("v-min", min_block); }

}  // namespace headway::pipeline
