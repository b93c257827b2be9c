#include "sim/program/weight_versions.hpp"

#include <gtest/gtest.h>

#include <string>

#include "sim/program/lifetime.hpp"
#include "sim/program/training_step.hpp"
#include "tests/program/small_job.hpp"

namespace headway {
namespace {

Job pipedream(int ranks, int micro_batches) {
  Job job = small_llama();
  job.model.num_hidden_layers = ranks;
  job.global_batch = micro_batches;
  job = spread(job, 1, ranks, 1);
  job.plan.schedule = "pipedream";
  return job;
}

// Versions (V), forward and backward passes and updates (U) of a rank, in order.
std::string order(const Program& program, int rank) {
  const RankKind& kind = program.kinds[static_cast<std::size_t>(rank)];
  std::string text;
  for (const Issue& issue : kind.order) {
    const std::string& name = kind.passes[static_cast<std::size_t>(issue.pass)].name;
    const bool counts = name == "U" || name == "V0" || name.ends_with("F") || name.ends_with("B");
    if (!counts || name.find('_') != std::string::npos) continue;
    text += (text.empty() ? "" : " ") + std::string(1, name == "V0" ? 'V' : name.back()) +
            std::to_string(issue.micro_batch);
  }
  return text;
}

// arXiv 1806.03377, figure 8: the first of three stages has three mini-batches in flight, the last
// one; each takes the weights that the updates so far have left.
TEST(WeightVersions, AreTakenBeforeAForwardAndUpdatedBehindABackwardPass) {
  const Program program = lower(pipedream(3, 4));
  EXPECT_EQ(order(program, 0), "V0 F0 V1 F1 V2 F2 B0 U0 V3 F3 B1 U1 B2 U2 B3 U3");
  EXPECT_EQ(order(program, 1), "V0 F0 V1 F1 B0 U0 V2 F2 B1 U1 V3 F3 B2 U2 B3 U3");
  EXPECT_EQ(order(program, 2), "V0 F0 B0 U0 V1 F1 B1 U1 V2 F2 B2 U2 V3 F3 B3 U3");
}

// Stage r of p keeps p - r versions.
TEST(WeightVersions, AreAsManyAsMiniBatchesInFlight) {
  const Program program = lower(pipedream(4, 8));
  const auto versions = [&](int rank) {
    const RankKind& kind = program.kinds[static_cast<std::size_t>(rank)];
    int alive = 0, most = 0;
    replay(program, kind, static_cast<int>(kind.order.size()),
           [&](const BufferInstance& buffer, bool allocated) {
             const BufferFamily& family = program.buffers[static_cast<std::size_t>(buffer.family)];
             if (family.name != "mlp.first_weight") return;
             alive += allocated ? 1 : -1;
             most = std::max(most, alive);
           });
    EXPECT_EQ(alive, 0);
    return most;
  };
  EXPECT_EQ(versions(0), 4);
  EXPECT_EQ(versions(1), 3);
  EXPECT_EQ(versions(2), 2);
  EXPECT_EQ(versions(3), 1);
}

// The reference run makes each version from what the updates that its stage has seen have left: on
// stage r of p mini-batch m reads the weights of m - (p - 1 - r).
TEST(WeightVersions, OfTheReferenceAreMadeSoManyUpdatesEarlier) {
  const Job job = reference_job(pipedream(2, 3));
  EXPECT_EQ(job.plan.weight_delays, (std::vector<std::int64_t>{1, 0}));
  const Program program = lower(job);
  const RankKind& kind = program.kinds[0];
  std::string text;
  for (const Issue& issue : kind.order) {
    const std::string& name = kind.passes[static_cast<std::size_t>(issue.pass)].name;
    if (name.starts_with("V") || name == "U" || name == "0F" || name == "0B") {
      text += (text.empty() ? "" : " ") + name + ":" + std::to_string(issue.micro_batch);
    }
  }
  EXPECT_EQ(text, "V0:0 V1:0 V1:1 0F:0 0B:0 U:0 V0:1 V1:2 0F:1 0B:1 U:1 V0:2 0F:2 0B:2 U:2");
}

}  // namespace
}  // namespace headway
