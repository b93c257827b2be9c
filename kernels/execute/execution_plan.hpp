// A Program spelled out for every rank: each operation of its issue order with what it waits for,
// the allocations its operands are bound to, and whom it meets. What an executor runs, and what its
// measured times are judged by. Nothing is left of templates, layers and micro-batches but names.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/program/lifetime.hpp"
#include "sim/program/program.hpp"

namespace headway {

enum class WaitKind : std::uint8_t {
  kStream,  // the operation before it on its stream
  kAfter,   // TemplateOperation::after
  kJoin,    // TemplateOperation::joins
  kPort,    // TemplateOperation::awaits
  kHost,    // the host stopped there before it issued this one
};

struct Dependency {
  int operation = 0;  // of the same rank
  WaitKind kind = WaitKind::kStream;
};

// One lifetime of a buffer on a rank.
struct Allocation {
  BufferInstance buffer;
  bool persistent = false;
  int uses = 0;    // operations that touch it
  int maker = -1;  // the first of them; -1 where persistent
};

struct PlannedOperation {
  const TemplateOperation* operation = nullptr;
  IssuePosition at;
  int task = 0;  // counted through the steps of the pass
  int layer = 0, micro_batch = -1;
  std::vector<int> reads, writes;  // of RankPlan::allocations
  std::vector<Dependency> waits;   // the stream's first, where there is one
  int meeting = -1;                // of ExecutionPlan::meetings; -1: works alone
};

struct RankPlan {
  int kind = 0;
  std::vector<PlannedOperation> operations;  // in issue order
  std::vector<Allocation> allocations;       // the persistent ones first
  std::vector<std::vector<int>> streams;     // operations by stream
};

// A collective or a message: the operations that start and end together.
struct Meeting {
  struct Member {
    int rank = 0, operation = 0;
  };
  std::vector<Member> members;  // by rank; of a message the sender, then the receiver
  std::vector<int> ranks;       // who must come, in the same order
};

// A fault put into one rank's issue order, for tests of what a check finds: the operation issued at
// `first` changes places with the next.
struct SwappedOperations {
  int rank = 0;
  int first = 0;
};

struct ExecutionPlan {
  // REQUIRES: check(program) passes; `program` outlives the plan.
  explicit ExecutionPlan(const Program& of, std::optional<SwappedOperations> swapped = {});

  // "rank 2, 1F3, attention.qkv (layer 5)": an operation in the schedule's words.
  std::string words(int rank, int operation) const;

  const Program* program = nullptr;
  std::vector<RankPlan> ranks;
  std::vector<Meeting> meetings;
};

}  // namespace headway
