#include "kernels/execute/rank_run.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <stdexcept>
#include <thread>
#include <tuple>

#include "kernels/execute/operation_placement.hpp"

namespace headway {
namespace {

// The routing by which tokens choose their experts.
const Routing* choosing(const PlannedOperation& planned) {
  const auto* routing = std::get_if<Routing>(&planned.operation->operation);
  return routing != nullptr && routing->kind == RoutingKind::kChoose ? routing : nullptr;
}

}  // namespace

const Kernel* kernel_of(const PlannedOperation& planned) {
  return std::get_if<Kernel>(&planned.operation->operation);
}

void count_update(const PlannedOperation& planned, std::map<int, int>& updates,
                  Placement& placement) {
  const Kernel* kernel = kernel_of(planned);
  if (kernel != nullptr && kernel->kind == KernelKind::kAdam && planned.micro_batch >= 0) {
    placement.step = ++updates[planned.writes.front()];
  }
}

std::pair<std::size_t, std::size_t> gradients_read(const Program& program,
                                                   const PlannedOperation& planned) {
  const Kernel* kernel = kernel_of(planned);
  if (kernel == nullptr) return {0, 0};
  if (planned.micro_batch >= 0 && planned.micro_batch + 1 < program.micro_batches) return {0, 0};
  const std::size_t reads = planned.reads.size(), writes = planned.writes.size();
  switch (kernel->kind) {
    case KernelKind::kSquaredNorm:
      return {0, reads - 1};
    case KernelKind::kClip:
      return {1, reads};
    case KernelKind::kSgd:
      return {writes, reads};
    case KernelKind::kAdam:
      return {writes - 2, reads - 2};
    case KernelKind::kLion:
      return {writes - 1, reads - 1};
    case KernelKind::kMomentum:
      return {0, reads - 1};
    case KernelKind::kFactoredDirection:
      return {0, 1};
    default:
      return {0, 0};
  }
}

std::size_t parameters_written(const PlannedOperation& planned) {
  const Kernel* kernel = kernel_of(planned);
  if (kernel == nullptr) return 0;
  if (kernel->kind == KernelKind::kSgd || kernel->kind == KernelKind::kDecayedStep)
    return planned.writes.size();
  if (kernel->kind == KernelKind::kLion) return planned.writes.size() - 1;
  return kernel->kind == KernelKind::kAdam ? planned.writes.size() - 2 : 0;
}

Operation with_held_rows(const Program& program, const TemplateOperation& planned,
                         const CollectiveMember& own) {
  Operation operation = planned.operation;
  auto* kernel = std::get_if<Kernel>(&operation);
  if (kernel == nullptr || planned.reads.empty()) return operation;
  const auto family = static_cast<std::size_t>(planned.reads.front().family);
  if (program.buffers[family].most_rows > 0) kernel->rows = own.reads.front().rows;
  return operation;
}

std::vector<std::int64_t> choosing_tokens(const PlannedOperation& planned,
                                          const Placement& placement) {
  const Routing* routing = choosing(planned);
  std::vector<std::int64_t> tokens;
  for (std::int64_t row = 0; routing != nullptr && row < routing->tokens; ++row) {
    const TokenMap& map = placement.map;
    const std::int64_t own = placement.first_row + row;
    tokens.push_back(placement.first_token + map.sequence(own) * map.length + map.position(own));
  }
  return tokens;
}

namespace {

GlobalTensors assembled(const ExecutionPlan& plan, std::span<const RankNumbers> ranks,
                        std::map<int, std::vector<double>> RankNumbers::*held) {
  GlobalTensors tensors;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    for (const auto& [allocation, values] : ranks[r].*held) {
      const auto& planned = plan.ranks[r].allocations[static_cast<std::size_t>(allocation)];
      tensors.add(fragments(*plan.program, static_cast<int>(r), planned.buffer), values);
    }
  }
  return tensors;
}

}  // namespace

RankRun::RankRun(const ExecutionPlan& plan, int rank, const ExecuteOptions& options)
    : plan_(plan),
      rank_(rank),
      options_(options),
      memory_(plan, rank, options.seed, options.memory_limit, options.checked) {}

void RankRun::begin_step(int step, ExecutionClock::time_point start) {
  const std::size_t operations = plan().operations.size();
  step_ = step;
  start_ = start;
  memory_.begin_step(step);
  begun_.assign(operations, 0);
  ended_.assign(operations, 0);
  times_.assign(operations, {});
  heads_.assign(plan().streams.size(), 0);
  left_ = operations;
  released_.clear();
  numbers_ = {};
  loss_total_ = -1;
}

int RankRun::startable() const {
  const RankPlan& mine = plan();
  int best = -1;
  for (std::size_t s = 0; s < mine.streams.size(); ++s) {
    if (heads_[s] == mine.streams[s].size()) continue;
    const int head = mine.streams[s][heads_[s]];
    if (begun_[static_cast<std::size_t>(head)] != 0) continue;
    const auto& waits = mine.operations[static_cast<std::size_t>(head)].waits;
    const bool ready = std::all_of(waits.begin(), waits.end(), [&](const Dependency& wait) {
      return ended_[static_cast<std::size_t>(wait.operation)] != 0;
    });
    if (!ready) continue;
    const bool better = options_.preference == Preference::kFirstIssued ? head < best : head > best;
    if (best < 0 || better) best = head;
  }
  return best;
}

void RankRun::make_operands(int operation) {
  for (const auto* list : {&planned(operation).reads, &planned(operation).writes}) {
    for (const int allocation : *list) memory_.use(allocation);
  }
}

CollectiveMember RankRun::operands(int operation) const {
  CollectiveMember member;
  for (const int read : planned(operation).reads) member.reads.push_back(memory_.operand(read));
  for (const int write : planned(operation).writes) {
    member.writes.push_back(memory_.operand(write));
  }
  return member;
}

void RankRun::compute(const PlannedOperation& planned, const CollectiveMember& own) {
  Placement placement = placement_of(*plan_.program, rank_, planned, step_, options_);
  count_update(planned, updates_, placement);
  const Routing* routing = choosing(planned);
  const std::vector<std::int64_t> tokens = choosing_tokens(planned, placement);
  std::vector<std::int32_t> recorded;
  if (routing != nullptr && options_.routing != nullptr) {
    recorded = options_.routing->find(planned.layer, tokens);
    placement.choice = recorded.data();
  }
  headway::compute(with_held_rows(*plan_.program, *planned.operation, own), own.reads, own.writes,
                   placement);
  if (routing == nullptr) return;
  const std::vector<double> choice = memory_.values(planned.writes.front());
  routing_.add(planned.layer, tokens, routing->per_token, {choice.begin(), choice.end()});
}

MeasuredTimes RankRun::compute_alone(int operation) {
  const PlannedOperation& what = planned(operation);
  MeasuredTimes times;
  note_before(what);
  times.start = now();
  if (const auto* work = std::get_if<HostWork>(&what.operation->operation)) {
    if (work->kind == HostKind::kPause) {
      constexpr std::int64_t kPicosecondsPerNanosecond = 1000;
      std::this_thread::sleep_for(
          std::chrono::nanoseconds(work->time.picoseconds / kPicosecondsPerNanosecond));
    }
    for (const int write : what.writes) memory_.deliver(write);
  } else {
    compute(what, operands(operation));
  }
  times.end = now();
  note_after(what);
  return times;
}

void RankRun::end(int operation, MeasuredTimes times) {
  const PlannedOperation& what = planned(operation);
  times_[static_cast<std::size_t>(operation)] = times;
  ended_[static_cast<std::size_t>(operation)] = 1;
  --left_;
  ++heads_[static_cast<std::size_t>(what.operation->stream)];
  std::set<int> touched(what.reads.begin(), what.reads.end());
  touched.insert(what.writes.begin(), what.writes.end());
  released_.insert(released_.end(), touched.begin(), touched.end());
}

void RankRun::release() {
  for (const int allocation : released_) memory_.ended(allocation);
  released_.clear();
}

Time RankRun::now() const {
  constexpr std::int64_t kPicosecondsPerNanosecond = 1000;
  const auto elapsed =
      std::chrono::duration_cast<std::chrono::nanoseconds>(ExecutionClock::now() - start_).count();
  return {elapsed * kPicosecondsPerNanosecond};
}

RankNumbers RankRun::numbers() const {
  RankNumbers numbers = numbers_;
  if (loss_total_ >= 0 && memory_.is_there(loss_total_)) {
    numbers.loss_total = memory_.values(loss_total_).front();
  }
  return numbers;
}

void RankRun::note_before(const PlannedOperation& planned) {
  const Kernel* kernel = kernel_of(planned);
  if (kernel != nullptr &&
      (kernel->kind == KernelKind::kClip || kernel->kind == KernelKind::kValidateNorm)) {
    numbers_.norm = std::sqrt(memory_.values(planned.reads.front()).front());
  }
  if (!options_.checked) return;
  const auto [first, last] = gradients_read(*plan_.program, planned);
  for (std::size_t i = first; i < last; ++i) {
    const int allocation = planned.reads[i];
    if (!numbers_.gradients.contains(allocation)) {
      numbers_.gradients[allocation] = memory_.values(allocation);
    }
  }
}

void RankRun::note_after(const PlannedOperation& planned) {
  const Kernel* kernel = kernel_of(planned);
  if (kernel != nullptr && kernel->kind == KernelKind::kLossSum) {
    double sum = 0;
    for (const double loss : memory_.values(planned.reads.front())) sum += loss;
    numbers_.losses[planned.micro_batch] += kernel->scale * sum;
    loss_total_ = planned.writes.front();
  }
  if (!options_.checked) return;
  for (std::size_t i = 0; i < parameters_written(planned); ++i) {
    numbers_.updated[planned.writes[i]] = memory_.values(planned.writes[i]);
  }
}

// Ranks with the same coordinates along the data axis, and along those that sequences are spread
// over, see the same part of the data.
ExecutedStep executed_step(const ExecutionPlan& plan, std::span<const RankNumbers> ranks) {
  const Program& program = *plan.program;
  ExecutedStep executed;
  std::map<std::tuple<int, int, int, int>, double> losses;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const auto along = [&](const std::string& axis) {
      return program.grid.coordinate(static_cast<int>(r), axis);
    };
    const int coordinate = along(program.data_axis), place = along(program.layout.ring_axis),
              part = along(program.layout.heads_axis);
    for (const auto& [micro_batch, loss] : ranks[r].losses) {
      losses[{coordinate, place, part, micro_batch}] = loss;
    }
    if (ranks[r].norm) executed.own_norms.push_back(*ranks[r].norm);
    if (ranks[r].loss_total) executed.own_losses.push_back(*ranks[r].loss_total);
  }
  executed.gradients = assembled(plan, ranks, &RankNumbers::gradients);
  for (const auto& [where, loss] : losses) executed.loss += loss;
  executed.loss /=
      static_cast<double>(program.grid.axis_size(program.data_axis) * program.micro_batches *
                          program.sequences_per_micro_batch * program.sequence_length);
  return executed;
}

GlobalTensors updated_parameters(const ExecutionPlan& plan, std::span<const RankNumbers> ranks) {
  return assembled(plan, ranks, &RankNumbers::updated);
}

void require_same_collective(const ExecutionPlan& plan, const Meeting& meeting) {
  const auto operation = [&](const Meeting::Member& member) -> const TemplateOperation& {
    return *plan.ranks[static_cast<std::size_t>(member.rank)]
                .operations[static_cast<std::size_t>(member.operation)]
                .operation;
  };
  const TemplateOperation& first = operation(meeting.members.front());
  for (const Meeting::Member& member : meeting.members) {
    const TemplateOperation& other = operation(member);
    Collective a = std::get<Collective>(first.operation);
    Collective b = std::get<Collective>(other.operation);
    if (a.kind == CollectiveKind::kSend && b.kind == CollectiveKind::kReceive) b.kind = a.kind;
    if (a == b) continue;
    throw std::invalid_argument(
        "members of one group meet in different collectives: " + first.name + " and " + other.name);
  }
}

}  // namespace headway
