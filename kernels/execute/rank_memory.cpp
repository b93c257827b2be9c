#include "kernels/execute/rank_memory.hpp"

#include <algorithm>
#include <cassert>
#include <limits>

#include "kernels/execute/byte_text.hpp"
#include "kernels/execute/global_tensors.hpp"
#include "sim/core/counter_random.hpp"

namespace headway {

namespace {

bool is_integer(DataType type) {
  return type == DataType::kBool || type == DataType::kInt64 || type == DataType::kInt32;
}

}  // namespace

std::int64_t first_token(const Program& program, int rank, int micro_batch, std::int64_t step) {
  const std::int64_t ranks = program.grid.axis_size(program.data_axis);
  const std::int64_t coordinate = program.grid.coordinate(rank, program.data_axis);
  const std::int64_t global =
      (step * program.micro_batches + std::max(micro_batch, 0)) * ranks + coordinate;
  return global * program.sequences_per_micro_batch * program.sequence_length;
}

bool held_in_double(const Program& program) {
  for (const Template& list : program.templates) {
    for (const TemplateOperation& operation : list.operations) {
      const auto* kernel = std::get_if<Kernel>(&operation.operation);
      if (kernel != nullptr && kernel->kind == KernelKind::kQuantise) return true;
    }
  }
  return false;
}

RankMemory::RankMemory(const ExecutionPlan& plan, int rank, std::uint64_t seed, Bytes limit,
                       bool poisoned)
    : plan_(plan),
      rank_plan_(plan.ranks[static_cast<std::size_t>(rank)]),
      rank_(rank),
      seed_(seed),
      limit_(limit),
      in_double_(held_in_double(*plan.program)),
      poisoned_(poisoned),
      blocks_(rank_plan_.allocations.size()),
      delivered_(plan.program->buffers.size()) {
  for (const PlannedOperation& planned : rank_plan_.operations) {
    if (!std::holds_alternative<HostWork>(planned.operation->operation)) continue;
    for (const BufferRef& write : planned.operation->writes) {
      delivered_[static_cast<std::size_t>(write.family)] = true;
    }
  }
  // Mirrors copy what others begin with, so they come last.
  for (const bool mirrors : {false, true}) {
    for (std::size_t a = 0; a < rank_plan_.allocations.size(); ++a) {
      const int allocation = static_cast<int>(a);
      if (!rank_plan_.allocations[a].persistent) break;
      if ((family(allocation).initial == InitialValue::kMirror) == mirrors) make(allocation);
    }
  }
}

const BufferFamily& RankMemory::family(int allocation) const {
  const auto& planned = rank_plan_.allocations[static_cast<std::size_t>(allocation)];
  return plan_.program->buffers[static_cast<std::size_t>(planned.buffer.family)];
}

DataType held_type(DataType declared, bool in_double) {
  const bool narrows = declared == DataType::kFp32 || declared == DataType::kTf32 ||
                       declared == DataType::kBf16 || declared == DataType::kFp16;
  return in_double && narrows ? DataType::kFp64 : declared;
}

std::int64_t held_rows(const BufferFamily& family) {
  return std::max(family.rows, family.most_rows);
}

std::int64_t RankMemory::held_elements(int allocation) const {
  return held_rows(family(allocation)) * family(allocation).columns;
}

void RankMemory::begin_step(std::int64_t step) {
  step_ = step;
  for (std::size_t a = 0; a < blocks_.size(); ++a) {
    const Allocation& planned = rank_plan_.allocations[a];
    if (planned.persistent) continue;
    assert(blocks_[a].held == nullptr);
    blocks_[a].uses_left = planned.uses;
  }
}

Operand RankMemory::use(int allocation) {
  if (!is_there(allocation)) make(allocation);
  return operand(allocation);
}

void RankMemory::ended(int allocation) {
  const auto a = static_cast<std::size_t>(allocation);
  if (rank_plan_.allocations[a].persistent) return;
  if (--blocks_[a].uses_left > 0) return;
  blocks_[a].held.reset();
  in_use_ -= family(allocation).size();
}

Operand RankMemory::operand(int allocation) const {
  const BufferFamily& of = family(allocation);
  return {held_type(of.type, in_double_), held_rows(of), of.columns,
          blocks_[static_cast<std::size_t>(allocation)].held.get()};
}

std::vector<double> RankMemory::values(int allocation) const {
  std::vector<double> out(static_cast<std::size_t>(held_elements(allocation)));
  load(operand(allocation), 0, held_elements(allocation), out.data());
  return out;
}

void RankMemory::make(int allocation) {
  const BufferFamily& of = family(allocation);
  if (limit_.count > 0 && in_use_ + of.size() > limit_) {
    throw AllocationRefused("no memory for " + of.name + ": " + std::to_string(of.size().count) +
                            " bytes more than the " + std::to_string(in_use_.count) +
                            " in use exceed the limit of " + std::to_string(limit_.count));
  }
  const std::size_t bytes = static_cast<std::size_t>(held_elements(allocation)) *
                            held_size(held_type(of.type, in_double_));
  blocks_[static_cast<std::size_t>(allocation)].held =
      std::make_unique_for_overwrite<std::uint64_t[]>((bytes + 7) / 8);
  in_use_ += of.size();
  peak_ = std::max(peak_, in_use_);
  fill(allocation);
}

void RankMemory::fill(int allocation) {
  const BufferFamily& of = family(allocation);
  const auto fill_with = [&](double value) { headway::fill(operand(allocation), value); };
  switch (of.initial) {
    case InitialValue::kUndefined:
      if (!poisoned_) return;
      // Whoever reads what nobody wrote shall be seen; but counts and places of rows stay in range.
      return fill_with(is_integer(of.type) ? 0 : std::numeric_limits<double>::quiet_NaN());
    case InitialValue::kZero:
      return fill_with(0);
    case InitialValue::kOne:
      return fill_with(1);
    case InitialValue::kNormal:
      return fill_normal(allocation);
    case InitialValue::kMirror:
      return fill_mirrors(allocation);
    case InitialValue::kTokens:
    case InitialValue::kTargets: {
      const auto& planned = rank_plan_.allocations[static_cast<std::size_t>(allocation)];
      // Until they are delivered they are no tokens, so that whoever comes too early is seen.
      if (delivered_[static_cast<std::size_t>(planned.buffer.family)]) return fill_with(-1);
      return fill_text(allocation);
    }
  }
}

void RankMemory::fill_normal(int allocation) {
  const Allocation& planned = rank_plan_.allocations[static_cast<std::size_t>(allocation)];
  const std::vector<Fragment> parts = fragments(*plan_.program, rank_, planned.buffer);
  std::vector<double> values;
  in_chunks(0, family(allocation).elements(), [&](std::int64_t first, std::int64_t count) {
    initial_values(planned.buffer, parts, first, count, values);
    store(operand(allocation), first, count, values.data());
  });
}

void RankMemory::initial_values(const BufferInstance& buffer, std::span<const Fragment> parts,
                                std::int64_t first, std::int64_t count,
                                std::vector<double>& values) const {
  const BufferFamily& of = plan_.program->buffers[static_cast<std::size_t>(buffer.family)];
  values.assign(static_cast<std::size_t>(count), of.initial == InitialValue::kOne ? 1.0 : 0.0);
  if (of.initial == InitialValue::kNormal) {
    for (const Fragment& fragment : parts) {
      const CounterRandom random(seed_, fragment.tensor);
      const std::int64_t from = std::max(first, fragment.local);
      const std::int64_t to = std::min(first + count, fragment.local + fragment.count);
      for (std::int64_t i = from; i < to; ++i) {
        const std::int64_t global = fragment.global + (i - fragment.local);
        values[static_cast<std::size_t>(i - first)] =
            of.initial_scale * random.normal(static_cast<std::uint64_t>(global));
      }
    }
  } else if (of.initial != InitialValue::kZero && of.initial != InitialValue::kOne) {
    throw std::invalid_argument("a buffer mirrors " + of.name +
                                ", which this rank does not hold and which begins with no value");
  }
  for (double& value : values) value = rounded(value, held_type(of.type, in_double_));
}

// What is mirrored lies end to end; this buffer is a window on it, zero past its end.
void RankMemory::fill_mirrors(int allocation) {
  const BufferFamily& of = family(allocation);
  const Operand own = operand(allocation);
  headway::fill(own, 0);
  std::int64_t at = 0;  // where the next mirrored buffer begins in the window
  if (of.row_group >= 0) {
    const GroupFamily& group = plan_.program->groups[static_cast<std::size_t>(of.row_group)];
    at = -plan_.program->grid.index_in_group(group, rank_) * of.elements();
  }
  const int layer = rank_plan_.allocations[static_cast<std::size_t>(allocation)].buffer.layer;
  std::vector<double> values;
  for (const BufferRef& mirror : of.mirrors) {
    const BufferInstance mirrored = instance_of(*plan_.program, mirror, layer, -1);
    const auto found = std::find_if(
        rank_plan_.allocations.begin(), rank_plan_.allocations.end(),
        [&](const Allocation& other) { return other.persistent && other.buffer == mirrored; });
    const bool held = found != rank_plan_.allocations.end();
    const int theirs = held ? static_cast<int>(found - rank_plan_.allocations.begin()) : -1;
    const std::int64_t size =
        held ? held_elements(theirs)
             : plan_.program->buffers[static_cast<std::size_t>(mirrored.family)].elements();
    const std::vector<Fragment> parts =
        held ? std::vector<Fragment>{} : fragments(*plan_.program, rank_, mirrored);
    const std::int64_t from = std::max<std::int64_t>(0, -at);
    const std::int64_t to = std::min(size, of.elements() - at);
    in_chunks(from, to, [&](std::int64_t first, std::int64_t count) {
      if (held) {
        values.resize(static_cast<std::size_t>(count));
        load(operand(theirs), first, count, values.data());
      } else {
        initial_values(mirrored, parts, first, count, values);
      }
      store(own, at + first, count, values.data());
    });
    at += size;
  }
}

void RankMemory::deliver(int allocation) {
  const InitialValue initial = family(allocation).initial;
  if (initial == InitialValue::kTokens || initial == InitialValue::kTargets) fill_text(allocation);
}

std::vector<std::int64_t> tokens_of(const ExecutionPlan& plan, int rank, int allocation,
                                    std::uint64_t seed, std::int64_t step) {
  const Program& program = *plan.program;
  const Allocation& planned =
      plan.ranks[static_cast<std::size_t>(rank)].allocations[static_cast<std::size_t>(allocation)];
  const BufferFamily& of = program.buffers[static_cast<std::size_t>(planned.buffer.family)];
  const std::int64_t shift = of.ahead + (of.initial == InitialValue::kTargets ? 1 : 0);
  const std::int64_t first_sample =
      first_token(program, rank, planned.buffer.micro_batch, step) / program.sequence_length;
  const TokenMap map = token_map(program.layout, program.grid, rank, program.sequence_length);
  std::int64_t first_row = 0;
  if (of.row_group >= 0) {
    const GroupFamily& group = program.groups[static_cast<std::size_t>(of.row_group)];
    first_row = program.grid.index_in_group(group, rank) * of.rows;
  }
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(of.elements())), text;
  std::int64_t of_sample = -1;
  for (std::int64_t i = 0; i < of.elements(); ++i) {
    const std::int64_t sample = first_sample + map.sequence(first_row + i);
    if (sample != of_sample) {
      text = sample_tokens(seed, sample, program.sequence_length + of.ahead, program.vocab_size);
      of_sample = sample;
    }
    tokens[static_cast<std::size_t>(i)] =
        text[static_cast<std::size_t>(map.position(first_row + i) + shift)];
  }
  return tokens;
}

void RankMemory::fill_text(int allocation) {
  const std::vector<std::int64_t> tokens = tokens_of(plan_, rank_, allocation, seed_, step_);
  store(operand(allocation), 0, static_cast<std::int64_t>(tokens.size()), tokens.data());
}

}  // namespace headway
