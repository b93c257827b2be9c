// Programs of a few operations, written by hand, for tests of the executor.
#pragma once

#include <string>
#include <vector>

#include "sim/program/program.hpp"

namespace headway {

class TinyProgram {
 public:
  // `ranks` along "pp", each of its own kind.
  explicit TinyProgram(int ranks, std::vector<std::string> streams = {"compute"}) {
    program_.grid = RankGrid({{"pp", ranks}});
    program_.streams = std::move(streams);
    program_.sequence_length = 1;
    program_.vocab_size = 1;
    for (int rank = 0; rank < ranks; ++rank) {
      RankKind kind;
      kind.name = "pipeline rank " + std::to_string(rank);
      kind.stages = {rank};
      program_.kinds.push_back(std::move(kind));
    }
  }

  // A buffer of two fp64 numbers.
  int buffer(const std::string& name, InitialValue initial = InitialValue::kUndefined) {
    BufferFamily family;
    family.name = name;
    family.type = DataType::kFp64;
    family.rows = 1;
    family.columns = 2;
    family.initial = initial;
    program_.buffers.push_back(std::move(family));
    return static_cast<int>(program_.buffers.size()) - 1;
  }

  static TemplateOperation zero(const std::string& name, int target) {
    return operation(name, kernel(KernelKind::kZero), {}, {{target}});
  }
  static TemplateOperation copy(const std::string& name, int source, int target) {
    return operation(name, kernel(KernelKind::kCopy), {{source}}, {{target}});
  }
  static TemplateOperation send(const std::string& name, int source, int offset) {
    return message(name, CollectiveKind::kSend, {{source}}, {}, offset);
  }
  static TemplateOperation receive(const std::string& name, int target, int offset) {
    return message(name, CollectiveKind::kReceive, {}, {{target}}, offset);
  }
  TemplateOperation all_reduce(const std::string& name, int target) {
    if (program_.groups.empty()) program_.groups.push_back({"pp", {"pp"}, {}});
    Collective collective;
    collective.elements = 2;
    collective.type = DataType::kFp64;
    TemplateOperation made = operation(name, collective, {{target}}, {{target}});
    made.group = 0;
    return made;
  }

  // Issues the operations on a rank as one pass.
  void issue(int rank, const std::string& pass, std::vector<TemplateOperation> operations,
             int micro_batch = -1) {
    RankKind& kind = program_.kinds[static_cast<std::size_t>(rank)];
    const int list = static_cast<int>(program_.templates.size());
    program_.templates.push_back({pass + ".rank" + std::to_string(rank), std::move(operations)});
    kind.order.push_back({static_cast<int>(kind.passes.size()), micro_batch});
    kind.passes.push_back({pass, rank, {{list, 0}}});
  }

  Program& program() { return program_; }

 private:
  static Kernel kernel(KernelKind kind) {
    Kernel made;
    made.kind = kind;
    made.rows = 1;
    made.columns = 2;
    made.type = made.output = DataType::kFp64;
    return made;
  }
  static TemplateOperation operation(const std::string& name, Operation what,
                                     std::vector<BufferRef> reads, std::vector<BufferRef> writes) {
    TemplateOperation made;
    made.name = name;
    made.operation = std::move(what);
    made.reads = std::move(reads);
    made.writes = std::move(writes);
    return made;
  }
  static TemplateOperation message(const std::string& name, CollectiveKind kind,
                                   std::vector<BufferRef> reads, std::vector<BufferRef> writes,
                                   int offset) {
    Collective collective;
    collective.kind = kind;
    collective.elements = 2;
    collective.type = DataType::kFp64;
    TemplateOperation made = operation(name, collective, std::move(reads), std::move(writes));
    made.peer_axis = "pp";
    made.peer_offset = offset;
    return made;
  }

  Program program_;
};

}  // namespace headway
