// Zero-bubble schedules of one stage per rank (Qi et al., arXiv 2401.10241): the backward pass is
// split into its input half I, which the earlier stages wait for, and its weight half W, which
// fills bubbles. H1 keeps 1F1B's memory of p micro-batches and leaves (p-1)(F+I-W); H2 runs up to 2
// (p-r) - 1 forward passes ahead, holds 2p - 1 micro-batches and leaves (p-1)(F+I-2W). These are
// the hand-written orders; the authors also search.
#include <string>
#include <utility>

#include "sim/program/pipeline/leaves.hpp"

namespace headway::pipeline {
namespace {

// The order of one rank under construction: each kind takes its micro-batches one after the other.
class RankOrder {
 public:
  RankOrder(int rank, int micro_batches) : rank_(rank), micro_batches_(micro_batches) {
    actions_.reserve(3 * static_cast<std::size_t>(micro_batches));
  }
  int inputs() const { return inputs_; }
  bool done() const { return inputs_ == micro_batches_; }
  void forward() {
    if (forwards_ < micro_batches_) actions_.push_back({rank_, ActionKind::kForward, forwards_++});
  }
  void input() { actions_.push_back({rank_, ActionKind::kBackwardInput, inputs_++}); }
  void weight() { actions_.push_back({rank_, ActionKind::kBackwardWeight, weights_++}); }
  std::vector<Action> drained() {
    while (weights_ < micro_batches_) weight();
    return std::move(actions_);
  }

 private:
  int rank_, micro_batches_;
  int forwards_ = 0, inputs_ = 0, weights_ = 0;
  std::vector<Action> actions_;
};

std::vector<Action> one_times_memory(int rank, const ScheduleShape& shape) {
  RankOrder order(rank, shape.micro_batches);
  for (int i = 0; i < shape.ranks - 1 - rank; ++i) order.forward();
  while (!order.done()) {
    order.forward();
    order.input();
    if (order.inputs() > rank) order.weight();
  }
  return order.drained();
}

std::vector<Action> two_times_memory(int rank, const ScheduleShape& shape) {
  RankOrder order(rank, shape.micro_batches);
  for (int i = 0; i < 2 * (shape.ranks - rank) - 1; ++i) order.forward();
  while (!order.done()) {
    order.input();
    if (order.inputs() > 2 * rank) order.weight();
    order.forward();
  }
  return order.drained();
}

Schedule zero_bubble(std::string name, std::vector<Action> (*actions)(int, const ScheduleShape&)) {
  Schedule schedule;
  schedule.name = std::move(name);
  schedule.source = "Zero bubble pipeline parallelism, arXiv 2401.10241, figure 3";
  schedule.splits_backward = true;
  schedule.asynchronous = true;
  schedule.validates_afterwards = true;
  schedule.refusal = [](const ScheduleShape& shape) { return refusal_of_stages(shape, 1); };
  schedule.rank_of = looped_rank;
  schedule.actions = actions;
  return schedule;
}

}  // namespace

Schedule zb_h1() { return zero_bubble("zb-h1", one_times_memory); }
Schedule zb_h2() { return zero_bubble("zb-h2", two_times_memory); }

}  // namespace headway::pipeline
