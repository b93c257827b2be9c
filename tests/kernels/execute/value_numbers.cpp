#include "tests/kernels/execute/value_numbers.hpp"

#include <algorithm>
#include <optional>

namespace headway {
namespace {

// The first word of a key says what kind of value it is.
enum class Value : std::int64_t { kInitial, kDelivered, kComputed, kAdded, kSum, kMet, kResult };

std::int64_t word(Value value) { return static_cast<std::int64_t>(value); }

// The member that alone has what a reduction brings; all others keep what they had.
std::optional<std::size_t> only_receiver(const Operation& operation) {
  const auto* collective = std::get_if<Collective>(&operation);
  if (collective == nullptr || collective->kind != CollectiveKind::kReduce) return std::nullopt;
  return static_cast<std::size_t>(collective->root);
}

// Unfused attention saves its probabilities; the backward pass finds all it needs in them, and
// takes the context, its third operand, for the sake of the fused kernels' order alone.
bool looks_at(const TemplateOperation& operation, std::size_t read) {
  const auto* attention = std::get_if<Attention>(&operation.operation);
  return attention == nullptr || !attention->backward ||
         attention->kernel != AttentionKernel::kUnfused || read != 2;
}

class Numbering {
 public:
  Numbering(const ExecutionPlan& plan, ValueTable& table) : plan_(plan), table_(table) {
    for (const RankPlan& rank : plan.ranks) {
      std::vector<std::int64_t>& values = values_.emplace_back();
      for (const Allocation& allocation : rank.allocations) {
        values.push_back(table.number(named(Value::kInitial, allocation.buffer)));
      }
    }
  }

  std::vector<ValueTable::Key> run(const PlanOrder& order) {
    std::vector<bool> met(plan_.meetings.size());
    for (const Meeting::Member& member : order.possible_order()) {
      const int meeting = planned(member).meeting;
      if (meeting < 0) {
        play(member);
      } else if (!met[static_cast<std::size_t>(meeting)]) {
        met[static_cast<std::size_t>(meeting)] = true;
        meet(plan_.meetings[static_cast<std::size_t>(meeting)]);
      }
    }
    for (std::size_t r = 0; r < plan_.ranks.size(); ++r) {
      const auto& allocations = plan_.ranks[r].allocations;
      for (std::size_t a = 0; a < allocations.size() && allocations[a].persistent; ++a) {
        ValueTable::Key key = named(Value::kResult, allocations[a].buffer);
        key.push_back(static_cast<std::int64_t>(r));
        key.push_back(values_[r][a]);
        results_.push_back(std::move(key));
      }
    }
    std::sort(results_.begin(), results_.end());
    return std::move(results_);
  }

 private:
  static ValueTable::Key named(Value value, const BufferInstance& buffer) {
    return {word(value), buffer.family, buffer.layer, buffer.micro_batch};
  }
  const PlannedOperation& planned(const Meeting::Member& member) const {
    return plan_.ranks[static_cast<std::size_t>(member.rank)]
        .operations[static_cast<std::size_t>(member.operation)];
  }
  std::int64_t& value(int rank, int allocation) {
    return values_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(allocation)];
  }
  const BufferInstance& buffer(int rank, int allocation) const {
    return plan_.ranks[static_cast<std::size_t>(rank)]
        .allocations[static_cast<std::size_t>(allocation)]
        .buffer;
  }

  // The values that an operation reads, but for those it only adds to.
  ValueTable::Key read_values(const Meeting::Member& member) {
    const PlannedOperation& own = planned(member);
    ValueTable::Key read;
    for (std::size_t i = 0; i < own.reads.size(); ++i) {
      if (!looks_at(*own.operation, i)) continue;
      if (!accumulates(*own.operation, own.operation->reads[i])) {
        read.push_back(value(member.rank, own.reads[i]));
      }
    }
    return read;
  }

  void play(const Meeting::Member& member) {
    const PlannedOperation& own = planned(member);
    const bool host = std::holds_alternative<HostWork>(own.operation->operation);
    ValueTable::Key of = {table_.operation(own.operation->operation), own.layer, own.micro_batch};
    const ValueTable::Key read = read_values(member);
    of.insert(of.end(), read.begin(), read.end());
    note_result(member, of);
    std::vector<std::int64_t> written;
    for (std::size_t i = 0; i < own.writes.size(); ++i) {
      const bool adds = accumulates(*own.operation, own.operation->writes[i]);
      ValueTable::Key key = named(host   ? Value::kDelivered
                                  : adds ? Value::kAdded
                                         : Value::kComputed,
                                  buffer(member.rank, own.writes[i]));
      key.push_back(static_cast<std::int64_t>(i));
      if (!host) key.insert(key.end(), of.begin(), of.end());
      const std::int64_t number = table_.number(key);
      written.push_back(adds ? table_.sum(value(member.rank, own.writes[i]), number) : number);
    }
    for (std::size_t i = 0; i < own.writes.size(); ++i) {
      value(member.rank, own.writes[i]) = written[i];
    }
  }

  void meet(const Meeting& meeting) {
    ValueTable::Key read = {table_.operation(planned(meeting.members[0]).operation->operation)};
    const auto receiver = only_receiver(planned(meeting.members[0]).operation->operation);
    for (const Meeting::Member& member : meeting.members) {
      const PlannedOperation& own = planned(member);
      const std::size_t given = receiver ? own.writes.size() : own.reads.size();
      for (std::size_t i = 0; i < given; ++i) read.push_back(value(member.rank, own.reads[i]));
    }
    for (std::size_t m = 0; m < meeting.members.size(); ++m) {
      if (receiver && m != *receiver) continue;
      const Meeting::Member& member = meeting.members[m];
      const PlannedOperation& own = planned(member);
      for (std::size_t i = 0; i < own.writes.size(); ++i) {
        ValueTable::Key key = named(Value::kMet, buffer(member.rank, own.writes[i]));
        key.push_back(static_cast<std::int64_t>(m));
        key.push_back(static_cast<std::int64_t>(i));
        key.insert(key.end(), read.begin(), read.end());
        value(member.rank, own.writes[i]) = table_.number(key);
      }
    }
  }

  void note_result(const Meeting::Member& member, const ValueTable::Key& of) {
    const auto* kernel = std::get_if<Kernel>(&planned(member).operation->operation);
    if (kernel == nullptr) return;
    switch (kernel->kind) {
      case KernelKind::kLossSum:
      case KernelKind::kSquaredNorm:
      case KernelKind::kClip:
      case KernelKind::kValidateNorm:
      case KernelKind::kSgd:
      case KernelKind::kAdam:
      case KernelKind::kLion:
      case KernelKind::kMomentum:
      case KernelKind::kFactoredDirection:
      case KernelKind::kDecayedStep: {
        ValueTable::Key key = {word(Value::kResult), member.rank};
        key.insert(key.end(), of.begin(), of.end());
        results_.push_back(std::move(key));
        return;
      }
      default:
        return;
    }
  }

  const ExecutionPlan& plan_;
  ValueTable& table_;
  std::vector<std::vector<std::int64_t>> values_;  // by rank and allocation
  std::vector<ValueTable::Key> results_;
};

}  // namespace

std::int64_t ValueTable::operation(const Operation& operation) {
  const auto found = std::find(operations_.begin(), operations_.end(), operation);
  if (found != operations_.end()) return found - operations_.begin();
  operations_.push_back(operation);
  return static_cast<std::int64_t>(operations_.size()) - 1;
}

std::int64_t ValueTable::number(const Key& key) {
  return numbers_.try_emplace(key, static_cast<std::int64_t>(numbers_.size())).first->second;
}

std::int64_t ValueTable::sum(std::int64_t base, std::int64_t added) {
  Sum whole{base, {}};
  const auto found = sums_.find(base);
  if (found != sums_.end()) whole = found->second;
  whole.added.insert(std::upper_bound(whole.added.begin(), whole.added.end(), added), added);
  Key key = {word(Value::kSum), whole.base};
  key.insert(key.end(), whole.added.begin(), whole.added.end());
  const std::int64_t made = number(key);
  sums_.emplace(made, std::move(whole));
  return made;
}

std::vector<ValueTable::Key> results(const ExecutionPlan& plan, const PlanOrder& order,
                                     ValueTable& table) {
  return Numbering(plan, table).run(order);
}

bool accumulates(const TemplateOperation& operation, const BufferRef& buffer) {
  const auto holds = [&](const std::vector<BufferRef>& list) {
    return std::find(list.begin(), list.end(), buffer) != list.end();
  };
  if (!holds(operation.reads) || !holds(operation.writes)) return false;
  if (const auto* gemm = std::get_if<Gemm>(&operation.operation)) return gemm->accumulate;
  if (const auto* gemm = std::get_if<GroupedGemm>(&operation.operation)) return gemm->accumulate;
  const auto* kernel = std::get_if<Kernel>(&operation.operation);
  if (kernel == nullptr) return false;
  switch (kernel->kind) {
    case KernelKind::kEmbeddingBackward:
    case KernelKind::kPositionBackward:
    case KernelKind::kRmsNormBackward:
    case KernelKind::kLayerNormBackward:
    case KernelKind::kGeluBackward:
    case KernelKind::kBiasBackward:
    case KernelKind::kBiasDropoutAddBackward:
    case KernelKind::kGradientAccumulate:
    case KernelKind::kLossSum:
    case KernelKind::kSquaredNorm:
      return true;
    default:
      return false;
  }
}

}  // namespace headway
