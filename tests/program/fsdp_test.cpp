#include "sim/program/data/fsdp.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "sim/program/lifetime.hpp"
#include "sim/program/training_step.hpp"
#include "tests/program/small_job.hpp"

namespace headway {
namespace {

using testing::ElementsAre;

Job sharded(DataParallelKind kind, int dp, std::int64_t prefetch, int pp = 1) {
  Job job = spread(small_llama(), 1, pp, dp);
  job.plan.dp_kind = kind;
  job.plan.prefetch = prefetch;
  job.plan.overlap_grad_reduce = true;
  return job;
}

// The steps of a pass that gather, compute or reduce: "g2" gathers layer 2 ("gR" the root, "gE" the
// embedding, "gH" the head), "F2" and "B2" compute, "r2" reduces.
std::string text(const Program& program, const std::string& pass_name, std::size_t kind = 0) {
  std::string result;
  for (const Pass& pass : program.kinds[kind].passes) {
    if (pass.name != pass_name) continue;
    for (const Step& step : pass.steps) {
      const std::string name =
          program.templates[static_cast<std::size_t>(step.template_index)].name;
      std::string unit = std::to_string(step.layer);
      if (name.find("root") != std::string::npos) unit = "R";
      if (name.find("embedding") != std::string::npos) unit = "E";
      if (name.find("head") != std::string::npos) unit = "H";
      std::string what;
      if (name.starts_with("gathered.")) what = "g";
      if (name.starts_with("reduce.")) what = "r";
      if (name.find(".forward") != std::string::npos && what.empty()) what = "F";
      if (name.find(".backward") != std::string::npos && what.empty()) what = "B";
      if (what.empty()) continue;
      result += (result.empty() ? "" : " ") + what + unit;
    }
  }
  return result;
}

TEST(ShardedUnits, AreGatheredOneAheadAndReducedBehindTheirBackward) {
  // PyTorch FSDP: the host issues the next unit's gather before the unit in use (BACKWARD_PRE; two
  // gathers in flight); the root's parameters stay from forward to backward.
  const Program program = lower(sharded(DataParallelKind::kFsdp, 2, 1));
  EXPECT_EQ(text(program, "0F"), "gR g0 FE g1 F0 g2 F1 g3 F2 F3 FH");
  EXPECT_EQ(text(program, "0B"), "g3 BH g2 B3 r3 g1 B2 r2 g0 B1 r1 B0 r0 BE rR");
}

TEST(ShardedUnits, AreGatheredWhereTheyAreNeededWithoutPrefetch) {
  const Program program = lower(sharded(DataParallelKind::kFsdp, 2, 0));
  EXPECT_EQ(text(program, "0F"), "gR FE g0 F0 g1 F1 g2 F2 g3 F3 FH");
  EXPECT_EQ(text(program, "0B"), "BH g3 B3 r3 g2 B2 r2 g1 B1 r1 g0 B0 r0 BE rR");
}

TEST(ShardedUnits, StayForTheBackwardPassWithoutResharding) {
  Job job = sharded(DataParallelKind::kFsdp, 2, 1);
  job.plan.reshard_after_forward = false;
  EXPECT_EQ(text(lower(job), "0B"), "BH B3 r3 B2 r2 B1 r1 B0 r0 BE rR");
}

TEST(ShardedUnits, OfRecomputedLayersServeBothPasses) {
  Job job = sharded(DataParallelKind::kFsdp, 2, 1);
  job.plan.recompute = Recompute::kFull;
  EXPECT_EQ(text(lower(job), "0B"), "g3 BH g2 F3 B3 r3 g1 F2 B2 r2 g0 F1 B1 r1 F0 B0 r0 BE rR");
}

TEST(ShardedUnits, AreGatheredOnceAStepOverAPipeline) {
  // torchtitan: reshard_after_forward is off with pipeline parallelism, and gradients are reduced
  // with the last micro-batch.
  const Program program = lower(sharded(DataParallelKind::kFsdp, 2, 1, 2));
  EXPECT_EQ(text(program, "0F_first"), "gE g0 FE g1 F0 F1");
  EXPECT_EQ(text(program, "0F"), "FE F0 F1");
  EXPECT_EQ(text(program, "0B"), "B1 B0 BE");
  EXPECT_EQ(text(program, "0B_last"), "B1 r1 B0 r0 BE rE");
  EXPECT_EQ(text(program, "1F_first", 1), "g2 g3 F2 gH F3 FH");
}

// Elements of a layer of small_llama(): qkv 32 x 16, projection 16 x 16, gate and up 128 x 16, down
// 16 x 64, two norms of 16.
constexpr std::int64_t kLayer = 512 + 256 + 2048 + 1024 + 32;

TEST(ShardedUnits, OfStageThreeAreFetchedWithinTheirBucketOfElements) {
  // stage3_prefetch_bucket_size; the embedding, 60 x 16, and the head are modules of their own, and
  // the embedding's backward reads no parameter.
  EXPECT_EQ(text(lower(sharded(DataParallelKind::kZero3, 2, kLayer)), "0F"),
            "gE g0 FE g1 F0 g2 F1 g3 F2 gH F3 FH");
  // A layer that does not fit into it is still the next one to be fetched.
  EXPECT_EQ(text(lower(sharded(DataParallelKind::kZero3, 2, 1)), "0F"),
            "gE g0 FE g1 F0 g2 F1 g3 F2 gH F3 FH");
  EXPECT_EQ(text(lower(sharded(DataParallelKind::kZero3, 2, 0)), "0B"),
            "gH BH rH g3 B3 r3 g2 B2 r2 g1 B1 r1 g0 B0 r0 BE rE");
}

// The most layers whose buffer of this family lives at once.
std::size_t layers_alive(const Job& job, const std::string& family) {
  const Program program = lower(job);
  const RankKind& kind = program.kinds[0];
  std::set<int> alive;
  std::size_t most = 0;
  replay(program, kind, static_cast<int>(kind.order.size()),
         [&](const BufferInstance& buffer, bool allocated) {
           if (program.buffers[static_cast<std::size_t>(buffer.family)].name != family) return;
           if (allocated) {
             alive.insert(buffer.layer);
           } else {
             alive.erase(buffer.layer);
           }
           most = std::max(most, alive.size());
         });
  EXPECT_TRUE(alive.empty());
  return most;
}

TEST(ShardedUnits, LiveWholeOnlyWhileTheyAreNeeded) {
  // The unit in use and as many as are gathered ahead.
  for (const int ahead : {0, 1, 2}) {
    EXPECT_EQ(layers_alive(sharded(DataParallelKind::kFsdp, 2, ahead), "mlp.first_weight"),
              static_cast<std::size_t>(ahead) + 1);
  }
  Job stays = sharded(DataParallelKind::kFsdp, 2, 1);
  stays.plan.reshard_after_forward = false;
  EXPECT_EQ(layers_alive(stays, "mlp.first_weight"), 4U);
  // Whole gradients: those of one unit.
  EXPECT_EQ(layers_alive(stays, "mlp.first_weight_gradient"), 1U);
  EXPECT_EQ(layers_alive(sharded(DataParallelKind::kZero3, 2, 0), "mlp.first_weight_gradient"), 1U);
}

TEST(ShardedUnits, BeginTheirSharesWithTheFirstMicroBatchAndAddTheOthers) {
  Job job = sharded(DataParallelKind::kFsdp, 2, 1);
  const Program program = lower(job);
  std::vector<std::string> order;
  for (const Issue& issue : program.kinds[0].order) {
    const std::string name = program.kinds[0].passes[static_cast<std::size_t>(issue.pass)].name;
    if (name.starts_with("0B")) order.push_back(name);
  }
  EXPECT_THAT(order, ElementsAre("0B_first", "0B", "0B", "0B"));
}

}  // namespace
}  // namespace headway
