// ZB-V (Qi et al., arXiv 2405.15362): two stages per rank on a path that folds back, so that the
// last stage is on the first rank and backward passes begin there at once. No bubble where F = I =
// W, with 1F1B's memory: 2p half-size chunks on every rank.
#include <algorithm>
#include <utility>

#include "sim/program/pipeline/leaves.hpp"

namespace headway::pipeline {
namespace {

// Counters of the two chunks (the way there, the way back), each kind in the order of
// micro-batches. The phases are laid out for at least 2p - 1 micro-batches; those beyond m are
// dropped.
class RankOrder {
 public:
  RankOrder(int rank, const ScheduleShape& shape)
      : stages_{rank, 2 * shape.ranks - 1 - rank}, micro_batches_(shape.micro_batches) {}

  int forwards(int chunk) const { return forwards_[chunk]; }
  void forward(int chunk) { add(chunk, ActionKind::kForward, forwards_[chunk]++); }
  void input(int chunk) { add(chunk, ActionKind::kBackwardInput, inputs_[chunk]++); }
  void weight(int chunk) { add(chunk, ActionKind::kBackwardWeight, weights_[chunk]++); }
  void backward(int chunk) {
    input(chunk);
    weight(chunk);
  }
  void drain(int chunk) {
    while (weights_[chunk] < inputs_[chunk]) weight(chunk);
  }
  std::vector<Action> take() { return std::move(actions_); }

 private:
  void add(int chunk, ActionKind kind, int micro_batch) {
    if (micro_batch < micro_batches_) actions_.push_back({stages_[chunk], kind, micro_batch});
  }

  int stages_[2];
  int micro_batches_;
  int forwards_[2] = {0, 0}, inputs_[2] = {0, 0}, weights_[2] = {0, 0};
  std::vector<Action> actions_;
};

std::vector<Action> actions(int rank, const ScheduleShape& shape) {
  const int p = shape.ranks;
  const int laid_out = std::max(2 * p - 1, shape.micro_batches);
  RankOrder order(rank, shape);
  // Warm-up.
  for (int i = 0; i < 2 * (p - rank) - 1; ++i) order.forward(0);
  for (int i = 0; i < rank; ++i) {
    order.forward(1);
    order.forward(0);
  }
  for (int i = 0; i < p - rank; ++i) {
    order.forward(1);
    order.backward(1);
  }
  // Steady state.
  while (order.forwards(1) < order.forwards(0) || order.forwards(0) < laid_out) {
    if (order.forwards(0) < laid_out) order.forward(0);
    order.backward(0);
    order.forward(1);
    order.backward(1);
  }
  // Cool-down.
  for (int i = 0; i < rank; ++i) {
    order.input(0);
    order.input(1);
  }
  for (int i = 0; i < p - rank; ++i) order.backward(0);
  order.drain(1);
  order.drain(0);
  return order.take();
}

}  // namespace

Schedule zb_v() {
  Schedule schedule;
  schedule.name = "zb-v";
  schedule.source =
      "Pipeline parallelism with controllable memory, arXiv 2405.15362; order of PyTorch's "
      "ScheduleZBVZeroBubble";
  schedule.fixed_stages_per_rank = 2;
  schedule.splits_backward = true;
  schedule.asynchronous = true;
  schedule.validates_afterwards = true;
  schedule.refusal = [](const ScheduleShape& shape) { return refusal_of_stages(shape, 2); };
  schedule.rank_of = folded_rank;
  schedule.actions = actions;
  return schedule;
}

}  // namespace headway::pipeline
