#include "kernels/execute/device_rank_memory.hpp"

#include <algorithm>

#include "kernels/cuda/cuda_error.hpp"
#include "kernels/cuda/device_operators.hpp"
#include "kernels/cuda/initial_values.hpp"
#include "kernels/execute/byte_text.hpp"
#include "kernels/execute/global_tensors.hpp"
#include "sim/core/counter_random.hpp"

namespace headway {
namespace {

// Blocks are cut to multiples of this, and one that is larger by at most a quarter is used again.
constexpr std::size_t kGranularity = 512;
constexpr std::size_t kMostWaste = 4;

bool is_integer(DataType type) {
  return type == DataType::kBool || type == DataType::kInt64 || type == DataType::kInt32;
}

}  // namespace

DeviceRankMemory::DeviceRankMemory(const ExecutionPlan& plan, int rank, std::uint64_t seed,
                                   Bytes limit, bool poisoned, DeviceStream& stream)
    : plan_(plan),
      rank_plan_(plan.ranks[static_cast<std::size_t>(rank)]),
      rank_(rank),
      seed_(seed),
      limit_(limit),
      poisoned_(poisoned),
      blocks_(rank_plan_.allocations.size()),
      delivered_(plan.program->buffers.size()) {
  for (const PlannedOperation& planned : rank_plan_.operations) {
    const TemplateOperation& operation = *planned.operation;
    if (!std::holds_alternative<HostWork>(operation.operation)) continue;
    for (const BufferRef& write : operation.writes) {
      delivered_[static_cast<std::size_t>(write.family)] = true;
    }
  }
  // Mirrors copy what others begin with, so they come last.
  for (const bool mirrors : {false, true}) {
    for (std::size_t a = 0; a < rank_plan_.allocations.size(); ++a) {
      const int allocation = static_cast<int>(a);
      if (!rank_plan_.allocations[a].persistent) break;
      if ((family(allocation).initial == InitialValue::kMirror) == mirrors) {
        make(allocation, 0, stream);
      }
    }
  }
  stream.synchronise();
}

const BufferFamily& DeviceRankMemory::family(int allocation) const {
  const auto& planned = rank_plan_.allocations[static_cast<std::size_t>(allocation)];
  return plan_.program->buffers[static_cast<std::size_t>(planned.buffer.family)];
}

std::size_t DeviceRankMemory::bytes_of(int allocation) const {
  const BufferFamily& of = family(allocation);
  const auto bytes = static_cast<std::size_t>(size_of(of.type, held_rows(of) * of.columns).count);
  return std::max((bytes + kGranularity - 1) / kGranularity, std::size_t{1}) * kGranularity;
}

void DeviceRankMemory::begin_step(std::int64_t step) {
  step_ = step;
  for (std::size_t a = 0; a < blocks_.size(); ++a) {
    Block& block = blocks_[a];
    block.uses_left = rank_plan_.allocations[a].uses;
    if (rank_plan_.allocations[a].persistent || block.memory == nullptr) continue;
    in_use_ -= family(static_cast<int>(a)).size();
    const std::size_t bytes = block.memory->memory.bytes();
    free_.emplace(std::pair(block.memory->stream, bytes), std::move(block.memory));
  }
  for (auto& [key, memory] : free_) memory->last_uses.clear();
}

Operand DeviceRankMemory::use(int allocation, int index, DeviceStream& stream) {
  if (!is_there(allocation)) make(allocation, index, stream);
  return operand(allocation);
}

Operand DeviceRankMemory::operand(int allocation) const {
  const BufferFamily& of = family(allocation);
  return {of.type, held_rows(of), of.columns,
          blocks_[static_cast<std::size_t>(allocation)].memory->memory.data()};
}

bool DeviceRankMemory::needs_event(int allocation, int index) const {
  const auto a = static_cast<std::size_t>(allocation);
  return !rank_plan_.allocations[a].persistent && blocks_[a].memory != nullptr &&
         blocks_[a].memory->stream != index;
}

void DeviceRankMemory::enqueued(int allocation, int index, const DeviceEvent* end) {
  const auto a = static_cast<std::size_t>(allocation);
  if (rank_plan_.allocations[a].persistent) return;
  Block& block = blocks_[a];
  if (block.memory->stream != index) block.memory->last_uses[index] = end;
  if (--block.uses_left > 0) return;
  in_use_ -= family(allocation).size();
  const std::size_t bytes = block.memory->memory.bytes();
  free_.emplace(std::pair(block.memory->stream, bytes), std::move(block.memory));
}

void DeviceRankMemory::make(int allocation, int index, DeviceStream& stream) {
  const BufferFamily& of = family(allocation);
  if (limit_.count > 0 && in_use_ + of.size() > limit_) {
    throw AllocationRefused("no memory for " + of.name + ": " + std::to_string(of.size().count) +
                            " bytes more than the " + std::to_string(in_use_.count) +
                            " in use exceed the limit of " + std::to_string(limit_.count));
  }
  const std::size_t bytes = bytes_of(allocation);
  std::unique_ptr<Memory>& memory = blocks_[static_cast<std::size_t>(allocation)].memory;
  const auto found = free_.lower_bound({index, bytes});
  if (found != free_.end() && found->first.first == index &&
      found->first.second <= bytes + bytes / kMostWaste) {
    memory = std::move(found->second);
    free_.erase(found);
    for (const auto& [other, end] : memory->last_uses) stream.wait(*end);
    memory->last_uses.clear();
  } else {
    memory = std::make_unique<Memory>();
    memory->stream = index;
    memory->memory = allocated(bytes, of.name);
  }
  in_use_ += of.size();
  peak_ = std::max(peak_, in_use_);
  fill(allocation, stream);
}

// Where the device is full, blocks that wait to be used again are given back first.
DeviceMemory DeviceRankMemory::allocated(std::size_t bytes, const std::string& name) {
  try {
    return DeviceMemory(bytes);
  } catch (const DeviceFailure&) {
    free_.clear();  // which waits for the device
  }
  try {
    return DeviceMemory(bytes);
  } catch (const DeviceFailure& failure) {
    throw AllocationRefused("no memory for " + name + ", " + std::to_string(bytes) +
                            " bytes: " + failure.what());
  }
}

void DeviceRankMemory::fill(int allocation, DeviceStream& stream) {
  const BufferFamily& of = family(allocation);
  const BufferInstance& buffer =
      rank_plan_.allocations[static_cast<std::size_t>(allocation)].buffer;
  const Operand whole = operand(allocation);
  const auto bytes = static_cast<std::size_t>(size_of(whole.type, whole.elements()).count);
  switch (of.initial) {
    case InitialValue::kUndefined:
      if (!poisoned_) return;
      // Every byte set is no number of any real type; counts and places of rows stay in range.
      checked(cudaMemsetAsync(whole.data, is_integer(of.type) ? 0 : 0xff, bytes, stream.get()));
      return;
    case InitialValue::kMirror:
      return fill_mirrors(allocation, stream);
    case InitialValue::kTokens:
    case InitialValue::kTargets:
      // Until they are delivered they are no tokens, so that whoever comes too early is seen.
      if (delivered_[static_cast<std::size_t>(buffer.family)]) return fill_value(whole, -1, stream);
      return fill_text(allocation, stream);
    default:
      return fill_as_begun(buffer, whole, stream);
  }
}

// The values that a buffer begins with by itself.
void DeviceRankMemory::fill_as_begun(const BufferInstance& buffer, const Operand& operand,
                                     DeviceStream& stream) {
  const BufferFamily& of = plan_.program->buffers[static_cast<std::size_t>(buffer.family)];
  switch (of.initial) {
    case InitialValue::kZero:
      return fill_value(operand, 0, stream);
    case InitialValue::kOne:
      return fill_value(operand, 1, stream);
    case InitialValue::kNormal:
      fill_value(operand, 0, stream);
      for (const Fragment& fragment : fragments(*plan_.program, rank_, buffer)) {
        fill_normal(operand, fragment.local, fragment.count,
                    CounterRandom(seed_, fragment.tensor).key(),
                    static_cast<std::uint64_t>(fragment.global), of.initial_scale, stream);
      }
      return;
    default:
      throw std::invalid_argument("a buffer mirrors " + of.name +
                                  ", which this rank does not hold and which begins with no value");
  }
}

void DeviceRankMemory::fill_mirrors(int allocation, DeviceStream& stream) {
  const BufferFamily& of = family(allocation);
  const int layer = rank_plan_.allocations[static_cast<std::size_t>(allocation)].buffer.layer;
  std::vector<Operand> mirrored;
  std::vector<DeviceMemory> made;  // of parameters that the rank never holds whole
  for (const BufferRef& mirror : of.mirrors) {
    const BufferInstance buffer = instance_of(*plan_.program, mirror, layer, -1);
    const auto found = std::find_if(
        rank_plan_.allocations.begin(), rank_plan_.allocations.end(),
        [&](const Allocation& other) { return other.persistent && other.buffer == buffer; });
    if (found != rank_plan_.allocations.end()) {
      mirrored.push_back(operand(static_cast<int>(found - rank_plan_.allocations.begin())));
      continue;
    }
    const BufferFamily& part = plan_.program->buffers[static_cast<std::size_t>(buffer.family)];
    made.emplace_back(static_cast<std::size_t>(part.size().count));
    mirrored.push_back({part.type, part.rows, part.columns, made.back().data()});
    fill_as_begun(buffer, mirrored.back(), stream);
  }
  // The rank's own run of their concatenation.
  Operand own = operand(allocation);
  own.columns = own.elements();
  own.rows = 1;
  Kernel split;
  split.kind = KernelKind::kSplitSequence;
  Placement placement;
  if (of.row_group >= 0) {
    const GroupFamily& group = plan_.program->groups[static_cast<std::size_t>(of.row_group)];
    placement.first_row = plan_.program->grid.index_in_group(group, rank_);
  }
  compute_on_device(split, mirrored, std::vector{own}, placement, stream);
  stream.synchronise();  // `made` ends here
}

void DeviceRankMemory::deliver(int allocation, DeviceStream& stream) {
  const InitialValue initial = family(allocation).initial;
  if (initial == InitialValue::kTokens || initial == InitialValue::kTargets) {
    fill_text(allocation, stream);
  }
}

void DeviceRankMemory::fill_text(int allocation, DeviceStream& stream) {
  const std::vector<std::int64_t> tokens = tokens_of(plan_, rank_, allocation, seed_, step_);
  // From pageable memory: the values are the driver's when the call returns.
  checked(cudaMemcpyAsync(operand(allocation).data, tokens.data(),
                          tokens.size() * sizeof(std::int64_t), cudaMemcpyHostToDevice,
                          stream.get()));
}

}  // namespace headway
