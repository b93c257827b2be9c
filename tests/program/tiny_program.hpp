// Programs small enough to follow by hand, and random ones, for the tests of sim/program and
// sim/price.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "sim/program/program.hpp"

namespace headway::tiny {

// A buffer of `bytes` bytes: booleans take one each.
inline BufferFamily buffer(std::string name, BufferCategory category, std::int64_t bytes,
                           bool per_layer = false, bool per_micro_batch = false) {
  BufferFamily family;
  family.name = std::move(name);
  family.category = category;
  family.type = DataType::kBool;
  family.rows = 1;
  family.columns = bytes;
  family.per_layer = per_layer;
  family.per_micro_batch = per_micro_batch;
  return family;
}

inline TemplateOperation kernel(std::string name, std::vector<BufferRef> reads,
                                std::vector<BufferRef> writes) {
  TemplateOperation operation;
  operation.name = std::move(name);
  operation.operation = Kernel{};
  operation.reads = std::move(reads);
  operation.writes = std::move(writes);
  return operation;
}

inline TemplateOperation message(std::string name, CollectiveKind kind, BufferRef carried,
                                 std::int64_t elements, int peer_offset) {
  TemplateOperation operation;
  operation.name = std::move(name);
  operation.operation = Collective{.kind = kind, .elements = elements, .type = DataType::kBool};
  operation.cause = Cause::kPipelineParallel;
  operation.stream = 1;
  operation.peer_offset = peer_offset;
  operation.peer_axis = "pp";
  (kind == CollectiveKind::kSend ? operation.reads : operation.writes).push_back(carried);
  return operation;
}

enum Family { kWeight, kHidden, kScratch, kGradient };
enum Lists {
  kStart,
  kLayer,
  kLoss,
  kBackward,
  kSendForward,
  kReceiveForward,
  kSendBackward,
  kReceiveBackward,
  kUpdate
};

// Two layers of 100-byte weights; each layer keeps its 10-byte input for the backward.
inline Program two_layers_on_one_rank() {
  Program program;
  program.grid = RankGrid({{"dp", 2}, {"pp", 1}});
  program.streams = {"compute", "pp"};
  program.groups = {{"dp", {"dp"}, {}}};
  program.buffers = {buffer("weight", BufferCategory::kParameter, 100, true),
                     buffer("hidden", BufferCategory::kActivation, 10, true, true),
                     buffer("scratch", BufferCategory::kActivation, 3),
                     buffer("gradient", BufferCategory::kActivation, 7, false, true)};
  program.buffers[kWeight].initial = InitialValue::kOne;
  program.templates = {
      {"start", {kernel("embed", {}, {{kHidden, 0}})}},
      {"layer",
       {kernel("up", {{kHidden, 0}, {kWeight, 0}}, {{kScratch, 0}}),
        kernel("down", {{kScratch, 0}}, {{kHidden, 1}})}},
      {"loss", {kernel("loss", {{kHidden, 0}}, {{kGradient, 0}})}},
      {"backward",
       {kernel("back", {{kGradient, 0}, {kHidden, 0}, {kWeight, 0}}, {{kGradient, 0}})}},
  };
  RankKind kind;
  kind.name = "pipeline rank 0";
  kind.stages = {0};
  kind.persistent = {{kWeight, 0}, {kWeight, 1}};
  kind.passes = {{"0F", 0, {{kStart, 0}, {kLayer, 0}, {kLayer, 1}}},
                 {"0B", 0, {{kLoss, 2}, {kBackward, 1}, {kBackward, 0}}}};
  kind.order = {{0, 0}, {0, 1}, {1, 0}, {1, 1}};
  program.kinds = {kind};
  program.micro_batches = 2;
  return program;
}

// The same, a layer on each of two pipeline ranks, in the order of 1F1B, with a weight update by an
// all-reduce over two data-parallel ranks.
inline Program two_stages() {
  Program program = two_layers_on_one_rank();
  program.grid = RankGrid({{"dp", 2}, {"pp", 2}});
  TemplateOperation reduce = kernel("reduce", {{kWeight, 0}}, {{kWeight, 0}});
  reduce.operation =
      Collective{.kind = CollectiveKind::kAllReduce, .elements = 100, .type = DataType::kBool};
  reduce.cause = Cause::kDataParallel;
  reduce.group = 0;
  reduce.joins = {0, 1};
  program.templates.push_back(
      {"send_forward", {message("send", CollectiveKind::kSend, {kHidden, 0}, 10, 1)}});
  program.templates.push_back(
      {"receive_forward", {message("receive", CollectiveKind::kReceive, {kHidden, 0}, 10, -1)}});
  program.templates.push_back(
      {"send_backward", {message("send", CollectiveKind::kSend, {kGradient, 0}, 7, -1)}});
  program.templates.push_back(
      {"receive_backward", {message("receive", CollectiveKind::kReceive, {kGradient, 0}, 7, 1)}});
  program.templates.push_back({"update", {reduce}});
  RankKind first;
  first.name = "pipeline rank 0";
  first.stages = {0};
  first.persistent = {{kWeight, 0}};
  first.passes = {{"0F", 0, {{kStart, 0}, {kLayer, 0}}},
                  {"0SEND_F", 0, {{kSendForward, 1}}},
                  {"0RECV_B", 0, {{kReceiveBackward, 0}}},
                  {"0B", 0, {{kBackward, 0}}},
                  {"update", -1, {{kUpdate, 0}}}};
  first.order = {{0, 0}, {1, 0}, {0, 1}, {1, 1}, {2, 0}, {3, 0}, {2, 1}, {3, 1}, {4, -1}};
  RankKind last;
  last.name = "pipeline rank 1";
  last.stages = {1};
  last.persistent = {{kWeight, 1}};
  last.passes = {{"1RECV_F", 1, {{kReceiveForward, 1}}},
                 {"1F", 1, {{kLayer, 1}}},
                 {"1B", 1, {{kLoss, 2}, {kBackward, 1}}},
                 {"1SEND_B", 1, {{kSendBackward, 0}}},
                 {"update", -1, {{kUpdate, 1}}}};
  last.order = {{0, 0}, {1, 0}, {2, 0}, {3, 0}, {0, 1}, {1, 1}, {2, 1}, {3, 1}, {4, -1}};
  program.kinds = {first, last};
  return program;
}

// One rank; anything that check() lets pass: buffers of all kinds, rewritten, read late, used
// before they are written where they have an initial value; passes in any order, micro-batches
// alike or not.
class RandomProgram {
 public:
  explicit RandomProgram(std::uint64_t seed) : random_(seed) {}

  Program make() {
    Program program;
    program.grid = RankGrid({{"pp", 1}});
    program.streams = {"compute"};
    program.micro_batches = pick(1, 5);
    const int families = pick(1, 7);
    for (int f = 0; f < families; ++f) {
      program.buffers.push_back(buffer("buffer" + std::to_string(f),
                                       static_cast<BufferCategory>(pick(0, 5)), pick(0, 2000),
                                       coin(), coin()));
      if (pick(0, 4) == 0) program.buffers.back().initial = InitialValue::kZero;
    }
    const int templates = pick(1, 4);
    for (int t = 0; t < templates; ++t) program.templates.push_back(list(t, program.buffers));
    program.kinds.push_back(kind(program, templates));
    give_initial_values(program);
    return program;
  }

 private:
  int pick(int lowest, int highest) {
    return std::uniform_int_distribution<int>(lowest, highest)(random_);
  }
  bool coin() { return pick(0, 1) == 1; }

  std::vector<BufferRef> references(const std::vector<BufferFamily>& families) {
    std::vector<BufferRef> result;
    for (int i = pick(0, 3); i > 0; --i) {
      const int family = pick(0, static_cast<int>(families.size()) - 1);
      const bool layers = families[static_cast<std::size_t>(family)].per_layer;
      result.push_back({family, layers ? pick(-1, 1) : 0});
    }
    return result;
  }

  Template list(int number, const std::vector<BufferFamily>& families) {
    Template list;
    list.name = "list" + std::to_string(number);
    for (int o = 0, count = pick(1, 5); o < count; ++o) {
      list.operations.push_back(
          kernel("o" + std::to_string(o), references(families), references(families)));
    }
    return list;
  }

  RankKind kind(const Program& program, int templates) {
    RankKind kind;
    kind.name = "all";
    kind.stages = {0};
    const int families = static_cast<int>(program.buffers.size());
    for (int i = pick(0, 3); i > 0; --i) {
      const int family = pick(0, families - 1);
      const bool layers = program.buffers[static_cast<std::size_t>(family)].per_layer;
      kind.persistent.push_back({family, layers ? pick(-1, 3) : 0});
    }
    for (int p = 0, count = pick(1, 5); p < count; ++p) {
      Pass pass{"pass" + std::string(1, static_cast<char>('A' + p)), p, {}};
      for (int s = pick(1, 4); s > 0; --s) {
        pass.steps.push_back({pick(0, templates - 1), pick(0, 2)});
      }
      kind.passes.push_back(std::move(pass));
    }
    const int passes = static_cast<int>(kind.passes.size());
    const bool alike = coin();  // as a schedule has it: every micro-batch goes through every pass
    if (alike) {
      for (int p = 0; p < passes; ++p) {
        for (int m = 0; m < program.micro_batches; ++m) kind.order.push_back({p, m});
      }
      for (int i = pick(0, 4); i > 0; --i) {
        const auto a = static_cast<std::size_t>(pick(0, static_cast<int>(kind.order.size()) - 1));
        const auto b = static_cast<std::size_t>(pick(0, static_cast<int>(kind.order.size()) - 1));
        std::swap(kind.order[a], kind.order[b]);
      }
    } else {
      for (int i = pick(0, 30); i > 0; --i) {
        kind.order.push_back(
            {pick(0, passes - 1), pick(0, static_cast<int>(program.micro_batches) - 1)});
      }
    }
    return kind;
  }

  // Whatever the order reads before it writes gets a value to begin with.
  static void give_initial_values(Program& program) {
    const RankKind& kind = program.kinds[0];
    std::vector<std::vector<int>> written;  // family, layer, micro-batch
    for (const Issue issue : kind.order) {
      for (const Step& step : kind.passes[static_cast<std::size_t>(issue.pass)].steps) {
        for (const TemplateOperation& operation :
             program.templates[static_cast<std::size_t>(step.template_index)].operations) {
          const auto key = [&](const BufferRef& reference) {
            const auto& family = program.buffers[static_cast<std::size_t>(reference.family)];
            return std::vector<int>{reference.family,
                                    family.per_layer ? step.layer + reference.layer : 0,
                                    family.per_micro_batch ? issue.micro_batch : -1};
          };
          for (const BufferRef& read : operation.reads) {
            if (std::find(written.begin(), written.end(), key(read)) != written.end()) continue;
            program.buffers[static_cast<std::size_t>(read.family)].initial = InitialValue::kZero;
          }
          for (const BufferRef& write : operation.writes) written.push_back(key(write));
        }
      }
    }
  }

  std::mt19937_64 random_;
};

}  // namespace headway::tiny
