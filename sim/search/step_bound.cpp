#include "sim/search/step_bound.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "sim/program/schedule.hpp"
#include "sim/simulate/operation_pricer.hpp"

namespace headway {

namespace {

// A fluid transfer's end is rounded once more than its price: a few picoseconds each.
constexpr double kRounding = 1e-6;

// Of a ring whose ranks have different attention to compute: the place of the one with least.
constexpr int kLeastWork = 0;

using StreamTimes = std::vector<Time>;

StreamTimes& operator+=(StreamTimes& sum, const StreamTimes& more) {
  for (std::size_t s = 0; s < sum.size(); ++s) sum[s] += more[s];
  return sum;
}

enum class Direction : std::uint8_t { kForward, kBackward, kOther };

// "2F", "2F_first" and "2B", "2I_last" are actions of a stage; "2W" and "2SEND_F" pass nothing on.
Direction direction_of(const Pass& pass) {
  const std::size_t letter = pass.name.find_first_not_of("0123456789");
  if (pass.stage < 0 || letter == std::string::npos) return Direction::kOther;
  switch (pass.name[letter]) {
    case 'F':
      return Direction::kForward;
    case 'B':
    case 'I':
      return Direction::kBackward;
    default:
      return Direction::kOther;
  }
}

class StepBound {
 public:
  StepBound(const Job& job, const Program& program, const PriceBook& prices)
      : job_(job),
        program_(program),
        prices_(prices),
        collectives_(prices.profile(), job.topology),
        host_(job.topology) {
    const Schedule* schedule = schedule_of(job.plan);
    copies_ = schedule == nullptr ? 1 : schedule->copies;
  }

  Time run() {
    for (std::size_t k = 0; k < program_.kinds.size(); ++k) read_kind(k);
    Time most;
    for (const Kind& kind : kinds_) {
      for (const Time time : kind.all) most = std::max(most, time);
      // Where steps overlap, what fills and drains the pipeline is another step's.
      if (!program_.steps_overlap && !program_.updates_every_micro_batch) most = std::max(most, through_pipeline(kind));
    }
    return Time::from_seconds(most.seconds() * (1 - kRounding));
  }

 private:
  struct Kind {
    StreamTimes all;
    int first_forward = -1, last_backward = -1;  // stages
    Time between;                                // compute stream, from the one through the other
    Time after;                                  // behind the last backward action
  };
  struct StageTimes {
    std::optional<Time> forward, backward;  // the least of its passes
  };

  void read_kind(std::size_t index) {
    const RankKind& kind = program_.kinds[index];
    rank_ = rank_of(static_cast<int>(index));
    roles_.clear();
    templates_.assign(program_.templates.size(), std::nullopt);
    std::vector<StreamTimes> passes;
    passes.reserve(kind.passes.size());
    for (const Pass& pass : kind.passes) {
      passes.push_back(pass_times(pass));
      note_stage(pass, passes.back().front());
    }
    Kind result;
    result.all.resize(program_.streams.size());
    for (const Issue& issue : kind.order) {
      // Where every micro-batch has an update of its own, nothing is once a step.
      if (program_.updates_every_micro_batch && issue.micro_batch < 0) continue;
      const auto p = static_cast<std::size_t>(issue.pass);
      const Direction direction = direction_of(kind.passes[p]);
      if (direction == Direction::kForward && result.first_forward < 0) {
        result.first_forward = kind.passes[p].stage;
      }
      result.all += passes[p];
      if (result.first_forward < 0) continue;
      result.after += passes[p].front();
      if (direction != Direction::kBackward) continue;
      result.last_backward = kind.passes[p].stage;
      result.between += result.after;
      result.after = Time::zero();
    }
    kinds_.push_back(std::move(result));
  }

  int rank_of(int kind) const {
    for (int rank = 0; rank < program_.grid.size(); ++rank) {
      if (program_.kind_of(rank) == kind) return rank;
    }
    return 0;
  }

  StreamTimes pass_times(const Pass& pass) {
    StreamTimes times(program_.streams.size());
    for (const Step& step : pass.steps) {
      auto& known = templates_[static_cast<std::size_t>(step.template_index)];
      if (!known)
        known = template_times(program_.templates[static_cast<std::size_t>(step.template_index)]);
      times += *known;
    }
    return times;
  }

  StreamTimes template_times(const Template& list) {
    StreamTimes times(program_.streams.size());
    for (const TemplateOperation& operation : list.operations) {
      const Role* role = collective_of(operation) == nullptr ? nullptr : &role_of(operation);
      times[static_cast<std::size_t>(operation.stream)] +=
          price_of(operation, role, kLeastWork, prices_, collectives_, host_, job_.software)
              .price.time;
    }
    return times;
  }

  const Role& role_of(const TemplateOperation& operation) {
    const bool message = is_message(operation);
    const int key = message ? -1 - operation.peer_offset * 2 - (operation.peer_offset < 0 ? 1 : 0)
                            : operation.group;
    const auto [found, is_new] = roles_.try_emplace({operation.peer_axis, key});
    if (!is_new) return found->second;
    Role& role = found->second;
    if (message) {
      const int peer = program_.grid.shifted(rank_, operation.peer_axis, operation.peer_offset);
      role.same_node = job_.topology.node_of(rank_) == job_.topology.node_of(peer);
      return role;
    }
    const GroupFamily& family = program_.groups[static_cast<std::size_t>(operation.group)];
    const std::vector<int> members = program_.grid.members(family, rank_);
    if (!members.empty()) role.placement = job_.topology.placement(members);
    role.same_node = role.placement.nodes == 1;
    return role;
  }

  void note_stage(const Pass& pass, Time time) {
    const Direction direction = direction_of(pass);
    if (direction == Direction::kOther) return;
    const auto stage = static_cast<std::size_t>(pass.stage);
    if (stages_.size() <= stage) stages_.resize(stage + 1);
    auto& least =
        direction == Direction::kForward ? stages_[stage].forward : stages_[stage].backward;
    least = least ? std::min(*least, time) : time;
  }

  Time through_pipeline(const Kind& kind) const {
    if (kind.first_forward < 0 || kind.last_backward < 0) return Time::zero();
    Time time = kind.between;
    for (int s = first_of_copy(kind.first_forward); s < kind.first_forward; ++s) {
      time += stages_[static_cast<std::size_t>(s)].forward.value_or(Time::zero());
    }
    const int end = first_of_copy(kind.last_backward);
    for (int s = end; s < kind.last_backward; ++s) {
      time += stages_[static_cast<std::size_t>(s)].backward.value_or(Time::zero());
    }
    // The rank of the first stage goes on when the gradient has arrived there.
    const Kind& first = kinds_[kind_of_stage(end)];
    return time + (kind.last_backward == end ? kind.after : first.after);
  }

  int first_of_copy(int stage) const {
    const int stages = static_cast<int>(stages_.size()) / copies_;
    return stages == 0 ? 0 : stage / stages * stages;
  }

  std::size_t kind_of_stage(int stage) const {
    for (std::size_t k = 0; k < program_.kinds.size(); ++k) {
      for (const Pass& pass : program_.kinds[k].passes) {
        if (pass.stage == stage && direction_of(pass) == Direction::kBackward) return k;
      }
    }
    return 0;
  }

  const Job& job_;
  const Program& program_;
  const PriceBook& prices_;
  CollectiveCost collectives_;
  HostCost host_;
  int copies_ = 1;
  int rank_ = 0;
  std::map<std::pair<std::string, int>, Role> roles_;  // of rank_
  std::vector<std::optional<StreamTimes>> templates_;  // on rank_
  std::vector<StageTimes> stages_;
  std::vector<Kind> kinds_;
};

}  // namespace

Time least_step_time(const Job& job, const Program& program, const PriceBook& prices) {
  return StepBound(job, program, prices).run();
}

}  // namespace headway
