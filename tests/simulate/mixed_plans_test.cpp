// What holds of every legal plan, whatever families meet in it: on random ones of up to 512 ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>

#include "sim/cost/profile.hpp"
#include "sim/price/traffic.hpp"
#include "sim/program/lifetime.hpp"
#include "sim/program/training_step.hpp"
#include "sim/simulate/simulated_step.hpp"
#include "tests/support/random_plan.hpp"

namespace headway {
namespace {

bool nightly() { return std::getenv("HEADWAY_NIGHTLY") != nullptr; }

constexpr int kEveryRun = 12, kNightly = 600;
// Unfolded, a plan of more ranks takes too long.
constexpr int kMostUnfolded = 64;

const Profile& a100() {
  static const Profile profile = read_profile("a100-sxm-80gb");
  return profile;
}

template <typename Visit>
void each_operation(const Program& program, const RankKind& kind, Visit visit) {
  for (const Issue& issue : kind.order) {
    const Pass& pass = kind.passes[static_cast<std::size_t>(issue.pass)];
    for (const Step& step : pass.steps) {
      const Template& list = program.templates[static_cast<std::size_t>(step.template_index)];
      for (const TemplateOperation& operation : list.operations)
        visit(operation, step.layer, issue);
    }
  }
}

// The letter of an action's pass: 'F', 'B', 'I', 'W'; 0 for every other pass.
char action_of(const Pass& pass) {
  const std::size_t letter = pass.name.find_first_not_of("0123456789");
  if (pass.stage < 0 || letter == 0 || letter == std::string::npos) return 0;
  const std::string rest = pass.name.substr(letter);
  const bool action = rest.size() == 1 || rest.substr(1) == "_first" || rest.substr(1) == "_last";
  return action && std::string("FBIW").find(rest.front()) != std::string::npos ? rest.front() : 0;
}

// Every layer of every micro-batch goes forward once, and backward once, whole or in halves.
void expect_every_layer_once(const Program& program, std::int64_t layers) {
  std::map<std::tuple<char, int, int>, int> seen;  // action, layer, micro-batch
  for (const RankKind& kind : program.kinds) {
    for (const Issue& issue : kind.order) {
      const Pass& pass = kind.passes[static_cast<std::size_t>(issue.pass)];
      const char action = action_of(pass);
      if (action == 0) continue;
      for (const Step& step : pass.steps) {
        const std::string& name =
            program.templates[static_cast<std::size_t>(step.template_index)].name;
        const bool of_layer = name.starts_with("layer.") || name.starts_with("expert_layer.");
        const char* half = action == 'F' ? ".forward" : ".backward";
        if (!of_layer || name.find(half) == std::string::npos) continue;
        ++seen[{action, step.layer, issue.micro_batch}];
      }
    }
  }
  for (int layer = 0; layer < layers; ++layer) {
    for (int m = 0; m < program.micro_batches; ++m) {
      const auto times = [&](char action) {
        const auto found = seen.find({action, layer, m});
        return found == seen.end() ? 0 : found->second;
      };
      EXPECT_EQ(times('F'), 1) << "layer " << layer << " of micro-batch " << m;
      EXPECT_EQ(times('B') + times('I'), 1) << "layer " << layer << " of micro-batch " << m;
      EXPECT_EQ(times('I'), times('W')) << "layer " << layer << " of micro-batch " << m;
    }
  }
}

// Follows every gradient into what the optimizer reads: the collectives of data parallelism that it
// passes through must reach as many ranks as hold the parameter, each once.
void expect_reduced_over_their_groups(const Program& program, const Job& job) {
  using Buffer = std::pair<int, int>;  // family, layer
  const bool experts = job.model.num_experts > 0;
  for (const RankKind& kind : program.kinds) {
    std::map<Buffer, std::map<Buffer, int>> carried;  // what a buffer holds: gradient -> ranks
    std::set<Buffer> checked;
    each_operation(program, kind, [&](const TemplateOperation& operation, int at, const Issue&) {
      const auto buffer_of = [&](const BufferRef& ref) {
        const bool per_layer = program.buffers[static_cast<std::size_t>(ref.family)].per_layer;
        return Buffer{ref.family, per_layer ? ref.layer + at : 0};
      };
      const auto is_gradient = [&](const Buffer& buffer) {
        const BufferFamily& family = program.buffers[static_cast<std::size_t>(buffer.first)];
        return family.category == BufferCategory::kGradient && !family.parts.empty();
      };
      const auto* kernel = std::get_if<Kernel>(&operation.operation);
      const auto* collective = std::get_if<Collective>(&operation.operation);
      const bool moves =
          kernel != nullptr &&
          (kernel->kind == KernelKind::kToHost || kernel->kind == KernelKind::kToDevice ||
           kernel->kind == KernelKind::kCast || kernel->kind == KernelKind::kGradientAccumulate ||
           kernel->kind == KernelKind::kSplitSequence || kernel->kind == KernelKind::kQuantise ||
           kernel->kind == KernelKind::kSplitColumns || kernel->kind == KernelKind::kSumParts ||
           kernel->kind == KernelKind::kCastParameters || kernel->kind == KernelKind::kClip);
      const bool reduces = collective != nullptr && operation.cause == Cause::kDataParallel &&
                           collective->kind != CollectiveKind::kAllGather;
      const bool updates = kernel != nullptr &&
                           (kernel->kind == KernelKind::kAdam || kernel->kind == KernelKind::kSgd);
      if (updates) {
        for (const BufferRef& ref : operation.reads) {
          const Buffer buffer = buffer_of(ref);
          std::map<Buffer, int> held = carried[buffer];
          if (held.empty() && is_gradient(buffer)) held = {{buffer, 1}};
          for (const auto& [gradient, ranks] : held) {
            const BufferFamily& family = program.buffers[static_cast<std::size_t>(gradient.first)];
            const bool of_experts = experts && family.blocks > 1;
            EXPECT_EQ(ranks, of_experts ? job.plan.edp : job.plan.dp * job.plan.cp)
                << family.name << "[" << gradient.second << "] on " << kind.name;
            checked.insert(gradient);
          }
        }
        return;
      }
      if (!moves && !reduces) {
        // Backward passes begin gradients anew.
        for (const BufferRef& ref : operation.writes) {
          if (is_gradient(buffer_of(ref))) carried[buffer_of(ref)] = {{buffer_of(ref), 1}};
        }
        return;
      }
      int ranks = 1;
      if (reduces && operation.group >= 0) {
        ranks = program.grid.group_size(program.groups[static_cast<std::size_t>(operation.group)]);
        const GroupFamily& group = program.groups[static_cast<std::size_t>(operation.group)];
        if (group.name.starts_with("copies")) ranks = 1;  // two copies of a model, not of data
      }
      std::map<Buffer, int> held;
      for (const BufferRef& ref : operation.reads) {
        const Buffer buffer = buffer_of(ref);
        if (carried[buffer].empty() && is_gradient(buffer)) carried[buffer] = {{buffer, 1}};
        for (const auto& [gradient, so_far] : carried[buffer]) {
          int& most = held[gradient];
          most = std::max(most, so_far * ranks);
        }
      }
      for (const BufferRef& ref : operation.writes) {
        const Buffer buffer = buffer_of(ref);
        if (held.contains(buffer)) {
          carried[buffer] = {{buffer, held.at(buffer)}};
        } else {
          carried[buffer] = held;
        }
      }
    });
    EXPECT_FALSE(checked.empty()) << kind.name << " updates nothing";
  }
}

// Messages: whatever one sends another receives. Collectives count the same both ways.
void expect_sent_is_received(const Program& program) {
  std::int64_t sent = 0, received = 0;
  for (int rank = 0; rank < program.grid.size(); ++rank) {
    const RankKind& kind = program.kinds[static_cast<std::size_t>(program.kind_of(rank))];
    static thread_local std::map<const RankKind*, std::pair<std::int64_t, std::int64_t>> known;
    if (rank == 0) known.clear();
    const auto [found, fresh] = known.try_emplace(&kind);
    if (fresh) {
      for (const TrafficLine& line : traffic(program, kind)) {
        found->second.first += line.sent.count;
        found->second.second += line.received.count;
      }
    }
    sent += found->second.first;
    received += found->second.second;
  }
  EXPECT_EQ(sent, received);
}

// In issue order memory never falls below what lives throughout, and ends there.
void expect_memory_comes_back(const Program& program) {
  for (const RankKind& kind : program.kinds) {
    const MemoryUse use = memory_use(program, kind, true);
    const std::int64_t throughout = total(use.persistent).count;
    for (const Bytes after : use.after_issue) EXPECT_GE(after.count, throughout) << kind.name;
    EXPECT_EQ(use.after_issue.back().count, throughout) << kind.name;
  }
}

void expect_plays_out_whole(unsigned seed) {
  std::mt19937 random(seed);
  const RandomPlan plan =
      random_plan(random, {.most_ranks = 512, .topology = "dgx-a100", .executed = false});
  SCOPED_TRACE("seed " + std::to_string(seed) + ": " + plan.text);
  const SimulatedStep step = simulate_step(plan.job, a100());
  ASSERT_NO_THROW(check(step.program, "random plan"));
  ASSERT_TRUE(step.timeline.deadlock.empty()) << describe(step, step.timeline.deadlock.front());
  EXPECT_GT(step.timeline.makespan, Time::zero());
  expect_every_layer_once(step.program, plan.job.model.num_hidden_layers);
  expect_reduced_over_their_groups(step.program, plan.job);
  expect_sent_is_received(step.program);
  expect_memory_comes_back(step.program);
  if (plan.job.gpus() > kMostUnfolded) return;
  StepOptions whole;
  whole.unfolded = true;
  EXPECT_EQ(simulate_step(plan.job, a100(), whole).timeline.makespan, step.timeline.makespan);
}

TEST(MixedPlans, PlayOutWhole) {
  for (int seed = 0; seed < (nightly() ? kNightly : kEveryRun); ++seed) {
    expect_plays_out_whole(static_cast<unsigned>(seed));
  }
}

}  // namespace
}  // namespace headway
