#include "tests/pipeline/replay.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>

namespace headway {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// Ends of what has run, by stage and micro-batch, and where a micro-batch's path begins and ends.
class Ends {
 public:
  Ends(const Schedule& schedule, const ScheduleShape& shape, const Durations& durations)
      : schedule_(schedule),
        shape_(shape),
        durations_(durations),
        stages_(shape.ranks * shape.stages_per_rank),
        path_(stages_ / schedule.copies),
        forward_(cells(), kNever),
        backward_(cells(), kNever) {}

  // When the inputs of the action are there; kNever where one has not run.
  double ready(const Action& action) const {
    const int s = action.stage;
    const int first = s / path_ * path_;
    switch (action.kind) {
      case ActionKind::kForward:
        return s == first ? 0 : arrival(forward_, s - 1, s, action.micro_batch);
      case ActionKind::kBackward:
      case ActionKind::kBackwardInput: {
        const double own = forward_[cell(s, action.micro_batch)];
        if (s == first + path_ - 1) return own;
        return std::max(own, arrival(backward_, s + 1, s, action.micro_batch));
      }
      case ActionKind::kBackwardWeight:
        return backward_[cell(s, action.micro_batch)];
    }
    return kNever;
  }

  void set(const Action& action, double end) {
    if (action.kind == ActionKind::kForward) forward_[cell(action.stage, action.micro_batch)] = end;
    if (action.kind == ActionKind::kBackward || action.kind == ActionKind::kBackwardInput) {
      backward_[cell(action.stage, action.micro_batch)] = end;
    }
  }

 private:
  std::size_t cells() const {
    return static_cast<std::size_t>(stages_) * static_cast<std::size_t>(shape_.micro_batches);
  }
  std::size_t cell(int stage, int micro_batch) const {
    return static_cast<std::size_t>(stage) * static_cast<std::size_t>(shape_.micro_batches) +
           static_cast<std::size_t>(micro_batch);
  }
  double arrival(const std::vector<double>& ends, int from, int to, int micro_batch) const {
    const bool same_rank = schedule_.rank_of(from, shape_) == schedule_.rank_of(to, shape_);
    return ends[cell(from, micro_batch)] + (same_rank ? 0 : durations_.latency);
  }

  const Schedule& schedule_;
  const ScheduleShape& shape_;
  const Durations& durations_;
  int stages_, path_;
  std::vector<double> forward_, backward_;
};

double duration(const Action& action, const Durations& durations) {
  switch (action.kind) {
    case ActionKind::kForward:
      return durations.forward;
    case ActionKind::kBackward:
      return durations.backward;
    case ActionKind::kBackwardInput:
      return durations.backward_input;
    case ActionKind::kBackwardWeight:
      return durations.backward_weight;
  }
  return 0;
}

// Saved at the forward, freed at the full backward or, where it is split, at W. The two halves of a
// pair count as forward before backward: what they free is only free at their common end.
int most_in_flight(const std::vector<Action>& actions) {
  int now = 0;
  int most = 0;
  for (const Action& action : actions) {
    if (action.kind == ActionKind::kForward) most = std::max(most, ++now);
    if (action.kind == ActionKind::kBackward || action.kind == ActionKind::kBackwardWeight) --now;
  }
  return most;
}

}  // namespace

Replay replay(const Schedule& schedule, const ScheduleShape& shape, const Durations& durations) {
  const auto ranks = static_cast<std::size_t>(shape.ranks);
  std::vector<std::vector<Action>> orders;
  for (int rank = 0; rank < shape.ranks; ++rank) orders.push_back(schedule.actions(rank, shape));
  Ends ends(schedule, shape, durations);
  std::vector<std::size_t> next(ranks, 0);
  std::vector<double> free(ranks, 0), began(ranks, kNever);

  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const std::vector<Action>& order = orders[rank];
      while (next[rank] < order.size()) {
        const Action& action = order[next[rank]];
        const bool pair = action.overlaps_next;
        double start = std::max(free[rank], ends.ready(action));
        if (pair) start = std::max(start, ends.ready(order[next[rank] + 1]));
        if (start == kNever) break;
        const double end = start + (pair ? durations.pair : duration(action, durations));
        began[rank] = std::min(began[rank], start);
        ends.set(action, end);
        if (pair) ends.set(order[next[rank] + 1], end);
        free[rank] = end;
        next[rank] += pair ? 2 : 1;
        moved = true;
      }
    }
  }
  Replay result;
  result.finished = true;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    result.makespan = std::max(result.makespan, free[rank]);
    result.longest_stage = std::max(result.longest_stage, free[rank] - began[rank]);
    result.in_flight.push_back(most_in_flight(orders[rank]));
    if (next[rank] == orders[rank].size()) continue;
    result.finished = false;
    result.stuck +=
        "rank " + std::to_string(rank) + " at " + to_text(orders[rank][next[rank]]) + "; ";
  }
  return result;
}

std::string completeness_fault(const Schedule& schedule, const ScheduleShape& shape) {
  const int stages = shape.ranks * shape.stages_per_rank;
  const auto micro_batches = static_cast<std::size_t>(shape.micro_batches);
  // Forward 1, backward 2, input half 4, weight half 8; done when 3 or 13.
  std::vector<int> seen(static_cast<std::size_t>(stages) * micro_batches, 0);
  for (int rank = 0; rank < shape.ranks; ++rank) {
    for (const Action& action : schedule.actions(rank, shape)) {
      const std::string where = "rank " + std::to_string(rank) + " " + to_text(action);
      if (action.stage < 0 || action.stage >= stages || action.micro_batch < 0 ||
          action.micro_batch >= shape.micro_batches) {
        return where + " is out of range";
      }
      if (schedule.rank_of(action.stage, shape) != rank) return where + " is on a foreign rank";
      int& bits = seen[static_cast<std::size_t>(action.stage) * micro_batches +
                       static_cast<std::size_t>(action.micro_batch)];
      const int before = bits;
      switch (action.kind) {
        case ActionKind::kForward:
          bits |= before == 0 ? 1 : 16;
          break;
        case ActionKind::kBackward:
          bits |= before == 1 ? 2 : 16;
          break;
        case ActionKind::kBackwardInput:
          bits |= before == 1 ? 4 : 16;
          break;
        case ActionKind::kBackwardWeight:
          bits |= before == 5 ? 8 : 16;
          break;
      }
      if (bits >= 16) return where + " comes twice or too early";
    }
  }
  const int path = stages / schedule.copies;
  const int share = shape.micro_batches / schedule.copies;
  for (int stage = 0; stage < stages; ++stage) {
    for (int i = 0; i < shape.micro_batches; ++i) {
      const bool passes = schedule.copies == 1 || i / share == stage / path;
      const int bits =
          seen[static_cast<std::size_t>(stage) * micro_batches + static_cast<std::size_t>(i)];
      if (passes != (bits == 3 || bits == 13)) {
        return "stage " + std::to_string(stage) + " micro-batch " + std::to_string(i) +
               " is not done once";
      }
    }
  }
  return {};
}

}  // namespace headway
