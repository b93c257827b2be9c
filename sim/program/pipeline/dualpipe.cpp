// DualPipe (DeepSeek-V3, arXiv 2412.19437, figure 5) and DualPipeV: two streams of micro-batches
// meet on every rank, and a forward pass of one overlaps a backward pass of the other. DualPipe
// runs them from both ends of the pipeline over two copies of the model; DualPipeV folds one copy
// of 2p stages back on itself. The eight steps are those of the published dualpipe.py and
// dualpipev.py.
#include <algorithm>
#include <deque>
#include <string>
#include <utility>

#include "sim/program/pipeline/leaves.hpp"

namespace headway::pipeline {
namespace {

// What a rank does for one of the two streams.
struct Stream {
  int stage = 0;
  int first_micro_batch = 0;
  int forwards = 0, backwards = 0;  // so far
};

class RankOrder {
 public:
  RankOrder(Stream zero, Stream one) : streams_{zero, one} {}

  void forward(int s) { actions_.push_back(next_forward(s)); }
  void backward(int s) { actions_.push_back(next_backward(s, ActionKind::kBackward)); }
  // The input half alone; the weight half waits in line.
  void input(int s) {
    const Action action = next_backward(s, ActionKind::kBackwardInput);
    actions_.push_back(action);
    waiting_.push_back({action.stage, ActionKind::kBackwardWeight, action.micro_batch});
  }
  void weight() {
    actions_.push_back(waiting_.front());
    waiting_.pop_front();
  }
  void pair(int forward_of, int backward_of) {
    Action action = next_forward(forward_of);
    action.overlaps_next = true;
    actions_.push_back(action);
    backward(backward_of);
  }
  std::vector<Action> take() { return std::move(actions_); }

 private:
  Action next_forward(int s) {
    Stream& stream = streams_[s];
    return {stream.stage, ActionKind::kForward, stream.first_micro_batch + stream.forwards++};
  }
  Action next_backward(int s, ActionKind kind) {
    Stream& stream = streams_[s];
    return {stream.stage, kind, stream.first_micro_batch + stream.backwards++};
  }

  Stream streams_[2];
  std::deque<Action> waiting_;
  std::vector<Action> actions_;
};

// The end of the order, where backward passes are all that is left; from its middle on they are
// split.
void run_out(RankOrder& order, int half, int q) {
  for (int i = 0; i < half - q - 1; ++i) {
    order.backward(1);
    order.pair(1, 0);
  }
  bool split = false;
  for (int i = 0; i < q + 1; ++i) {
    if (i == (q + 1) / 2 && q % 2 == 1) split = true;
    if (split) order.input(1);
    if (!split) order.backward(1);
    if (i == (q + 1) / 2 && q % 2 == 0) split = true;
    if (split) order.input(0);
    if (!split) order.backward(0);
  }
  for (int i = 0; i < half - q - 1; ++i) {
    order.weight();
    order.input(0);
  }
  for (int i = 0; i < q + 1; ++i) order.weight();
}

// `half`: ranks from an end of the pipeline to where the streams meet; `q`: this rank's distance
// from its end; `count`: micro-batches of each stream.
std::vector<Action> eight_steps(RankOrder order, int half, int q, int count) {
  const bool middle = q == half - 1;
  for (int i = 0; i < 2 * (half - q - 1); ++i) order.forward(0);
  for (int i = 0; i < q + 1; ++i) {
    order.forward(0);
    order.forward(1);
  }
  for (int i = 0; i < half - q - 1; ++i) {
    order.input(1);
    order.weight();
    order.forward(1);
  }
  for (int i = 0; i < count - 2 * half + q + 1; ++i) {
    if (i == 0 && middle) {  // not overlapped: what it would wait for is made here
      order.forward(0);
      order.backward(1);
    } else {
      order.pair(0, 1);
    }
    order.pair(1, 0);
  }
  run_out(order, half, q);
  return order.take();
}

std::string refusal_of_pairs(const ScheduleShape& shape) {
  std::string stages = refusal_of_stages(shape, 2);
  if (!stages.empty() || shape.micro_batches >= 2 * shape.ranks) return stages;
  return "needs at least twice as many micro-batches as pipeline ranks: " +
         std::to_string(shape.micro_batches) + " < " + std::to_string(2 * shape.ranks);
}

Schedule dual(std::string name) {
  Schedule schedule;
  schedule.name = std::move(name);
  schedule.source = "DualPipe, arXiv 2412.19437 figure 5; order of deepseek-ai/DualPipe";
  schedule.fixed_stages_per_rank = 2;
  schedule.splits_backward = true;
  schedule.asynchronous = true;
  // Both lay two stages on a rank, r and 2p - 1 - r; in DualPipe the second is stage p - 1 - r of
  // the other copy.
  schedule.rank_of = folded_rank;
  return schedule;
}

}  // namespace

Schedule dualpipe() {
  Schedule schedule = dual("dualpipe");
  schedule.copies = 2;
  schedule.refusal = [](const ScheduleShape& shape) {
    std::string pairs = refusal_of_pairs(shape);
    if (!pairs.empty()) return pairs;
    if (shape.ranks % 2 != 0)
      return "needs an even number of pipeline ranks, not " + std::to_string(shape.ranks);
    if (shape.micro_batches % 2 != 0) {
      return "needs an even number of micro-batches, not " + std::to_string(shape.micro_batches);
    }
    return std::string();
  };
  schedule.actions = [](int rank, const ScheduleShape& shape) {
    const int p = shape.ranks;
    const int count = shape.micro_batches / 2;
    const Stream there = {rank, 0};
    const Stream back = {2 * p - 1 - rank, count};
    const bool near = rank < p / 2;  // a rank's first stream is the one whose end it is nearer to
    return eight_steps(RankOrder(near ? there : back, near ? back : there), p / 2,
                       std::min(rank, p - 1 - rank), count);
  };
  return schedule;
}

Schedule dualpipe_v() {
  Schedule schedule = dual("dualpipe-v");
  schedule.refusal = refusal_of_pairs;
  schedule.actions = [](int rank, const ScheduleShape& shape) {
    return eight_steps(RankOrder({rank, 0}, {2 * shape.ranks - 1 - rank, 0}), shape.ranks, rank,
                       shape.micro_batches);
  };
  return schedule;
}

}  // namespace headway::pipeline
