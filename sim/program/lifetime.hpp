// When each buffer of a rank lives, in issue order: the "Lifetimes" paragraph of program.hpp as
// code. A buffer that is not persistent is allocated before the operation that writes it without
// reading it (a buffer with an initial value also before its first use), and freed after its last
// use before the next such write. Two readings: every event, for an executor; and the running total
// with its peak, found pass by pass with one generic micro-batch, for sim/price. A test holds the
// two equal.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <functional>
#include <vector>

#include "sim/core/units.hpp"
#include "sim/program/program.hpp"

namespace headway {

// One buffer of a rank. Layer 0 and micro-batch -1 where the family has none.
struct BufferInstance {
  int family = 0;
  int layer = 0;
  int micro_batch = -1;
  friend auto operator<=>(const BufferInstance&, const BufferInstance&) = default;
};
// The buffer that `reference` names in a template applied to `layer` for `micro_batch`.
BufferInstance instance_of(const Program& program, BufferRef reference, int layer, int micro_batch);

// An operation of a rank kind: an index of its order, of the pass' steps, of the template's
// operations.
struct IssuePosition {
  int issue = -1;
  int step = 0;
  int operation = 0;
  friend auto operator<=>(const IssuePosition&, const IssuePosition&) = default;
};

struct LifetimeEvent {
  IssuePosition at;
  BufferInstance buffer;
  friend auto operator<=>(const LifetimeEvent&, const LifetimeEvent&) = default;
};

struct Lifetimes {
  std::vector<BufferInstance> persistent;
  std::vector<LifetimeEvent> allocations;  // before the operation; in issue order, then by buffer
  std::vector<LifetimeEvent> frees;        // after the operation; in issue order, then by buffer
};

// REQUIRES: check(program) passes.
Lifetimes lifetimes(const Program& program, const RankKind& kind);

inline constexpr std::size_t kBufferCategories = 6;
using BytesByCategory = std::array<Bytes, kBufferCategories>;  // by BufferCategory
Bytes total(const BytesByCategory& bytes);

// PyTorch's caching allocator rounds each block up to this (c10/cuda/CUDACachingAllocator.cpp,
// kMinBlockSize).
inline constexpr std::int64_t kBlockRounding = 512;
Bytes rounded_block(Bytes bytes);

// The memory of one rank in issue order.
struct MemoryUse {
  BytesByCategory persistent{};
  BytesByCategory at_peak{};  // persistent included
  Bytes peak;                 // total(at_peak)
  IssuePosition peak_at;  // the first operation during which the peak stands; issue -1: no order
  Bytes rounded_peak;     // the peak where every block takes rounded_block() of its size
  Bytes host_peak;      // of what lives in the host's memory, which nothing above counts
  // Where asked for, by issue: the most that lives while it runs, and what lives after it.
  std::vector<Bytes> during_issue;
  std::vector<Bytes> after_issue;
};

// REQUIRES: check(program) passes. Equal to what lifetimes() adds up to, at a cost of a few
// nanoseconds per issue.
MemoryUse memory_use(const Program& program, const RankKind& kind, bool with_timeline = false);

// Replays the allocations and frees of the first `issues` issues in issue order, at the cost of the
// events themselves. Allocations of one operation come in the order of its operands.
void replay(const Program& program, const RankKind& kind, int issues,
            const std::function<void(const BufferInstance&, bool allocated)>& event);

}  // namespace headway
