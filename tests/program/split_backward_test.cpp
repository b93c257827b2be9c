// Schedules that split the backward pass or fold the pipeline back: plans of all kinds are sound
// and run to their end, every layer of every micro-batch runs once in each direction, and what a
// rank saves is what the published counts say (facts 2.3).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <random>
#include <set>

#include "sim/program/lifetime.hpp"
#include "sim/program/schedule.hpp"
#include "sim/program/training_step.hpp"
#include "tests/program/program_player.hpp"
#include "tests/program/small_job.hpp"

namespace headway {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::Eq;
using testing::IsEmpty;

Job scheduled(const char* schedule, int pp, int micro_batches, int layers_per_stage = 1, int dp = 1,
              int tp = 1) {
  Job job = small_job();
  const int fixed = find_schedule(schedule)->fixed_stages_per_rank;
  const int vpp = fixed > 0 ? fixed : 2;
  job.model.num_hidden_layers = layers_per_stage * pp * vpp / find_schedule(schedule)->copies;
  job.global_batch = static_cast<std::int64_t>(micro_batches) * dp;
  job = spread(std::move(job), tp, pp, dp, vpp);
  job.plan.schedule = schedule;
  if (find_schedule(schedule)->copies > 1) {
    job.plan.stage_layers.resize(job.plan.stage_layers.size() / 2, 0);
    for (auto& layers : job.plan.stage_layers) layers = layers_per_stage;
  }
  return job;
}

std::vector<std::string> lowered_schedules() {
  std::vector<std::string> names;
  for (const Schedule& schedule : schedules()) {
    if (schedule.lowered && schedule.asynchronous) names.push_back(schedule.name);
  }
  return names;
}

std::optional<Job> drawn(unsigned seed) {
  std::mt19937 random(seed);
  const auto below = [&](unsigned limit) { return static_cast<int>(random() % limit); };
  const auto coin = [&] { return below(2) == 1; };
  // 1F1B with its vocabulary over the pipeline, in each of the three ways, among the others.
  constexpr Vocabulary kSpread[] = {Vocabulary::kParallelOneBarrier,
                                    Vocabulary::kParallelTwoBarriers, Vocabulary::kInterlaced};
  std::vector<std::string> names = lowered_schedules();
  names.insert(names.end(), 3, "1f1b");
  const Schedule& schedule =
      *find_schedule(names[static_cast<std::size_t>(below(static_cast<unsigned>(names.size())))]);
  const int pp = 2 + below(3), micro_batches = 1 + below(10);
  Job job = scheduled(schedule.name.c_str(), pp, micro_batches, 1 + below(2), 1 << below(2),
                      1 << below(2));
  const bool spread_out = schedule.name == "1f1b";
  if (spread_out) {
    job.plan.vocabulary = kSpread[below(3)];
    job.plan.vpp = 1;
    job.plan.stage_layers.assign(static_cast<std::size_t>(pp), job.model.num_hidden_layers / pp);
  }
  job.plan.synchronous_optimizer = !schedule.validates_afterwards || coin();
  const ScheduleShape shape{pp, job.plan.vpp, micro_batches, 0};
  if (!schedule.refusal(shape).empty()) return std::nullopt;
  if (coin()) {
    auto& layers = job.plan.stage_layers;
    const auto from = static_cast<std::size_t>(below(static_cast<unsigned>(layers.size())));
    const auto to = static_cast<std::size_t>(below(static_cast<unsigned>(layers.size())));
    --layers[from];
    ++layers[to];
  }
  if (coin()) {
    const Job llama = small_llama();
    const std::int64_t layers = job.model.num_hidden_layers;
    job.model = llama.model;
    job.model.num_hidden_layers = layers;
    job.software.attention = llama.software.attention;
  }
  job.model.tie_word_embeddings = coin();
  job.plan.sequence_parallel = coin() && !spread_out;
  job.plan.scatter_gather = coin();
  job.plan.overlap_grad_reduce = coin();
  job.plan.overlap_param_gather = coin();
  job.plan.dp_kind = static_cast<DataParallelKind>(below(3));
  if (coin()) job.plan.bucket_elements = 2000;
  job.plan.recompute = static_cast<Recompute>(below(3));
  job.plan.recompute_layers = below(2);
  job.software.dropout = coin() ? 0.1 : 0.0;
  job.software.fused_kernels = coin();
  job.software.accumulation = static_cast<GradientAccumulation>(below(3));
  job.software.gathered_logits = coin();
  job.software.fused_loss = coin();
  job.software.p2p_synchronises = coin();
  return job;
}

// How often each (layer, micro-batch) runs the template, over all kinds.
using Runs = std::map<std::pair<int, int>, int>;
Runs runs(const Program& program, const std::string& base) {
  Runs count;
  for (const RankKind& kind : program.kinds) {
    for (const Issue& issue : kind.order) {
      for (const Step& step : kind.passes[static_cast<std::size_t>(issue.pass)].steps) {
        const std::string& name =
            program.templates[static_cast<std::size_t>(step.template_index)].name;
        if (name == base || name.starts_with(base + ".")) ++count[{step.layer, issue.micro_batch}];
      }
    }
  }
  return count;
}
void add(Runs& all, const Runs& more) {
  for (const auto& [key, count] : more) all[key] += count;
}

TEST(SplitBackward, EveryDrawnPlanIsSoundAndRunsEveryLayerOnceInEachDirection) {
  int lowered = 0;
  for (unsigned seed = 0; seed < 250; ++seed) {
    const std::optional<Job> job = drawn(seed);
    if (!job) continue;
    SCOPED_TRACE(seed);
    SCOPED_TRACE(job->plan.schedule);
    const Program program = lower(*job);
    ASSERT_NO_THROW(check(program, "lowered"));
    ASSERT_THAT(play(program).stuck, IsEmpty());
    Runs inputs = runs(program, "layer.backward"), weights = inputs;
    add(inputs, runs(program, "layer.backward_input"));
    add(weights, runs(program, "layer.backward_weight"));
    for (const Runs& count : {inputs, weights}) {
      ASSERT_EQ(count.size(),
                static_cast<std::size_t>(job->model.num_hidden_layers * job->plan.micro_batches));
      for (const auto& [key, times] : count) ASSERT_EQ(times, 1);
    }
    // Nothing of a micro-batch lives on behind the order.
    for (const RankKind& kind : program.kinds) {
      const Lifetimes lives = lifetimes(program, kind);
      ASSERT_EQ(lives.allocations.size(), lives.frees.size());
    }
    ++lowered;
  }
  EXPECT_GT(lowered, 150);
}

TEST(SplitBackward, LargePipelinesRunToTheirEnd) {
  for (const std::string& name : lowered_schedules()) {
    for (const auto& [pp, micro_batches] : {std::pair(8, 16), {8, 24}, {5, 11}}) {
      SCOPED_TRACE(name);
      const Schedule& schedule = *find_schedule(name);
      const int stages = std::max(1, schedule.fixed_stages_per_rank);
      if (!schedule.refusal({pp, stages, micro_batches, 0}).empty() && name != "looped-bfs")
        continue;
      const Program program = lower(scheduled(name.c_str(), pp, micro_batches));
      ASSERT_NO_THROW(check(program, "lowered"));
      EXPECT_THAT(play(program).stuck, IsEmpty());
    }
  }
}

// Only the matrices' gradients are put off.
TEST(SplitBackward, TheWeightHalfIsTheWeightGradientsOfTheMatrices) {
  const Program program = lower(scheduled("zb-h1", 2, 2));
  std::map<std::string, std::vector<std::string>> operations;
  for (const Template& list : program.templates) {
    for (const TemplateOperation& operation : list.operations) {
      operations[list.name].push_back(operation.name);
    }
  }
  EXPECT_THAT(operations["layer.backward_weight"],
              ElementsAre("mlp.second_wgrad", "mlp.first_wgrad", "attention.projection_wgrad",
                          "attention.qkv_wgrad"));
  EXPECT_THAT(operations["head.backward_weight"], ElementsAre("head_wgrad"));
  for (const std::string& name : operations["layer.backward_input"]) {
    EXPECT_FALSE(name.ends_with("_wgrad")) << name;
  }
  EXPECT_EQ(operations["layer.backward_input"].size() + 4, operations["layer.backward"].size());
}

// The most instances of a family that live at once on each pipeline rank.
std::vector<int> most_alive(const Program& program, const std::string& family) {
  std::vector<int> most;
  for (const RankKind& kind : program.kinds) {
    const Lifetimes lives = lifetimes(program, kind);
    std::vector<std::pair<IssuePosition, int>> events;
    const auto is_it = [&](const LifetimeEvent& event) {
      return program.buffers[static_cast<std::size_t>(event.buffer.family)].name == family;
    };
    int alive = 0, peak = 0;
    std::size_t freed = 0;
    for (const LifetimeEvent& birth : lives.allocations) {
      for (; freed < lives.frees.size() && lives.frees[freed].at < birth.at; ++freed) {
        if (is_it(lives.frees[freed])) --alive;
      }
      if (is_it(birth)) peak = std::max(peak, ++alive);
    }
    most.push_back(peak);
  }
  return most;
}

// Facts 2.3. The MLP's activation is what its second matrix needs: until W where there is one.
TEST(InFlightMicroBatches, AreThePublishedCounts) {
  constexpr const char* kKept = "mlp.activation";
  EXPECT_THAT(most_alive(lower(scheduled("looped-bfs", 4, 8)), kKept), Each(Eq(16)));  // m v
  EXPECT_THAT(most_alive(lower(scheduled("zb-h1", 4, 8)), kKept), Each(Eq(4)));        // p
  EXPECT_THAT(most_alive(lower(scheduled("zb-h2", 4, 8)), kKept), Each(Eq(7)));        // 2p - 1
  EXPECT_THAT(most_alive(lower(scheduled("zb-v", 4, 8)), kKept), Each(Eq(8)));         // 2p chunks
  EXPECT_THAT(most_alive(lower(scheduled("dualpipe-v", 4, 8)), kKept), Each(Eq(9)));   // 2p + 1
  EXPECT_THAT(most_alive(lower(scheduled("zb-h1", 4, 8, 3)), kKept), Each(Eq(12)));    // 3 layers
  EXPECT_THAT(most_alive(lower(scheduled("dualpipe", 4, 8)), kKept), Each(Eq(5)));     // p + 1
  // Half and a third of 1F1B's p, of two chunks each; Chimera's p / 2 + 1 to p.
  EXPECT_THAT(most_alive(lower(scheduled("v-half", 4, 8)), kKept), Each(testing::Le(6)));
  EXPECT_THAT(most_alive(lower(scheduled("v-min", 4, 8)), kKept), Each(testing::Le(4)));
  EXPECT_THAT(most_alive(lower(scheduled("chimera", 4, 8)), kKept), ElementsAre(3, 4, 4, 3));
  // What only the input half needs goes with it: as in 1F1B.
  EXPECT_THAT(most_alive(lower(scheduled("zb-h1", 4, 8)), "attention.probabilities"),
              ElementsAre(4, 3, 2, 1));
}

// One micro-batch more than 1F1B's for each barrier, and 3 p / 2 (arXiv 2411.05288, table 1).
TEST(InFlightMicroBatches, OfASpreadVocabularyAreMoreByItsBarriers) {
  const auto alive = [](Vocabulary vocabulary) {
    Job job = scheduled("1f1b", 4, 12);
    job.plan.vocabulary = vocabulary;
    return most_alive(lower(job), "mlp.activation");
  };
  EXPECT_THAT(alive(Vocabulary::kParallelOneBarrier), ElementsAre(5, 4, 3, 2));
  EXPECT_THAT(alive(Vocabulary::kParallelTwoBarriers), ElementsAre(6, 5, 4, 3));
  EXPECT_EQ(alive(Vocabulary::kInterlaced).front(), 6);
}

// GPipe keeps the inputs of its stages for all m micro-batches, and all layers of a stage for the
// one that goes back (arXiv 1811.06965, section 2.3); Megatron's recomputation one layer of it.
TEST(InFlightMicroBatches, OfRematerialisedStagesAreOne) {
  constexpr int kLayers = 3, kMicroBatches = 4;
  const auto alive = [](const char* schedule, const char* family) {
    Job job = scheduled(schedule, 2, kMicroBatches, kLayers);
    job.plan.vpp = 1;
    job.plan.stage_layers = {kLayers, kLayers};
    job.model.num_hidden_layers = 2 * kLayers;
    job.plan.recompute = Recompute::kFull;
    return most_alive(lower(job), family);
  };
  EXPECT_THAT(alive("gpipe", "mlp.activation"), Each(Eq(kLayers)));
  EXPECT_THAT(alive("1f1b", "mlp.activation"), Each(Eq(1)));
  EXPECT_EQ(alive("gpipe", "hidden").front(), kMicroBatches + kLayers);
  EXPECT_EQ(alive("1f1b", "hidden").back(), kLayers + 1);
}

// Two copies of the model: each rank of 4 holds two of 4 stages, and the parameters of both.
TEST(TwoCopies, DoubleTheParameters) {
  const auto parameters = [](const char* schedule, int rank) {
    Job job = scheduled(schedule, 4, 8);
    job.model.tie_word_embeddings = false;  // a tied table would be held once by both ends
    const Program program = lower(job);
    std::int64_t bytes = 0;
    for (const BufferRef& buffer : program.kinds[static_cast<std::size_t>(rank)].persistent) {
      const BufferFamily& family = program.buffers[static_cast<std::size_t>(buffer.family)];
      if (family.category == BufferCategory::kParameter) bytes += family.size().count;
    }
    return bytes;
  };
  for (const char* schedule : {"dualpipe", "chimera"}) {
    EXPECT_EQ(parameters(schedule, 1), 2 * parameters("1f1b", 1)) << schedule;
    EXPECT_EQ(parameters(schedule, 0), parameters("1f1b", 0) + parameters("1f1b", 3)) << schedule;
  }
}

TEST(FoldedPath, NeighboursOnOneRankExchangeNoMessage) {
  const Program program = lower(scheduled("zb-v", 4, 8));
  for (const RankKind& kind : program.kinds) {
    std::set<std::string> names;
    for (const Pass& pass : kind.passes) names.insert(pass.name);
    const int rank = kind.stages.front();
    EXPECT_EQ(names.contains(std::to_string(rank) + "SEND_F"), rank < 3);
    EXPECT_EQ(names.contains(std::to_string(7 - rank) + "RECV_F"), rank < 3);
    EXPECT_EQ(names.contains(std::to_string(7 - rank) + "SEND_F"), rank > 0);
    EXPECT_EQ(names.contains(std::to_string(rank) + "RECV_F"), rank > 0);
  }
}

// Rank 0 holds both ends of a folded path, so tied tables are one, and nothing is left to sum.
TEST(FoldedPath, HoldsATiedTableOnce) {
  Job job = scheduled("zb-v", 2, 4);
  job.model.tie_word_embeddings = true;
  const Program program = lower(job);
  int tables = 0;
  for (const RankKind& kind : program.kinds) {
    for (const BufferRef& buffer : kind.persistent) {
      const std::string& name = program.buffers[static_cast<std::size_t>(buffer.family)].name;
      if (name == "embedding.word_weight") ++tables;
    }
  }
  EXPECT_EQ(tables, 1);
  for (const GroupFamily& group : program.groups) EXPECT_NE(group.name, "embedding");
}

}  // namespace
}  // namespace headway
