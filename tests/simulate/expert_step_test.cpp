// Experts that are chosen unevenly: the hottest decides, and costs exactly what its products and
// its link take.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "sim/cost/collective_cost.hpp"
#include "sim/cost/compute_cost.hpp"
#include "sim/cost/profile.hpp"
#include "sim/plan/job.hpp"
#include "sim/simulate/simulated_step.hpp"
#include "tests/support/folders.hpp"

namespace headway {
namespace {

// Eight ranks of one node share 16 experts; no host time, so that nothing hides the devices' work.
Job expert_job(const std::string& moe) {
  const std::string text =
      R"({"model": {"hidden_size": 2048, "num_attention_heads": 16, "num_hidden_layers": 3,
           "intermediate_size": 4096, "vocab_size": 32000, "hidden_act": "silu", "gated_mlp": true,
           "num_experts": 16, "num_experts_per_tok": 2, "moe_intermediate_size": 1024,
           "first_k_dense_replace": 1},
          "cluster": {"topology": "dgx-a100", "gpus": 8, "profile": "a100-sxm-80gb"},
          "precision": "bf16", "sequence_length": 2048, "global_batch": 16,
          "software": {"framework": "headway", "launch": "cuda_graph"},
          "plan": {"ep": 8, "micro_batch": 1, "overlap_grad_reduce": false, "moe": {)" +
      moe + "}}}";
  Problems problems;
  JobReading reading = read_job(JsonNode::parse_text(text, "job"), {}, problems);
  problems.throw_if_any();
  EXPECT_TRUE(reading.not_built.empty());
  return std::move(*reading.job);
}

Operation at_load(Operation operation, double load) {
  const auto scale = [&](std::int64_t& rows) {
    rows = static_cast<std::int64_t>(std::llround(static_cast<double>(rows) * load));
  };
  if (auto* gemm = std::get_if<GroupedGemm>(&operation)) scale(gemm->m);
  if (auto* kernel = std::get_if<Kernel>(&operation)) scale(kernel->rows);
  if (auto* routing = std::get_if<Routing>(&operation)) scale(routing->rows);
  if (auto* collective = std::get_if<Collective>(&operation)) scale(collective->elements);
  return operation;
}

TEST(ExpertStep, IsSlowedByAHotExpertByWhatItsProductsAndItsLinkTake) {
  const Profile profile = read_profile("a100-sxm-80gb");
  const Job even_job = expert_job(R"("routing": "uniform")");
  // Expert 0 takes 8 of 23 choices in every layer; rank 0 holds it and expert 1: 9 of 23, for 2 of
  // 16 experts 3.13 times as much as even.
  Job hot_job = even_job;
  std::vector<double> loads(16, 16.0 / 23);
  loads[0] = 8 * 16.0 / 23;
  hot_job.plan.moe.loads = {loads};
  const SimulatedStep even = simulate_step(even_job, profile);
  const SimulatedStep hot = simulate_step(hot_job, profile);
  EXPECT_DOUBLE_EQ(hot.program.expert_load(0, 1), 9 * 8.0 / 23);
  EXPECT_DOUBLE_EQ(hot.program.expert_load(3, 2), 2 * 8.0 / 23);

  const ComputeCost compute(profile);
  const CollectiveCost collectives(profile, hot_job.topology);
  const GroupPlacement node = hot_job.topology.placement({0, 1, 2, 3, 4, 5, 6, 7});
  const double load = hot.program.expert_load(0, 1);
  const auto time = [&](const Operation& operation) {
    const auto* collective = std::get_if<Collective>(&operation);
    return collective != nullptr ? collectives.price(*collective, node).alone.time
                                 : compute.price(operation).time;
  };
  Time expected = even.timeline.makespan;
  const RankKind& kind = hot.program.kinds[0];
  for (const Issue& issue : kind.order) {
    for (const Step& step : kind.passes[static_cast<std::size_t>(issue.pass)].steps) {
      const auto& list = hot.program.templates[static_cast<std::size_t>(step.template_index)];
      for (const TemplateOperation& operation : list.operations) {
        if (!operation.by_load) continue;
        expected += time(at_load(operation.operation, load)) - time(operation.operation);
      }
    }
  }
  EXPECT_EQ(hot.timeline.makespan, expected);
  EXPECT_GT(hot.timeline.makespan.seconds(), 1.1 * even.timeline.makespan.seconds());
  // Ranks fold exactly where their loads are equal: the hot one and the seven others.
  EXPECT_EQ(even.lowered.graph.devices, 1);
  EXPECT_EQ(hot.lowered.graph.devices, 2);
}

TEST(ExpertStep, OfUniformCountsIsTheOneWithout) {
  const Profile profile = read_profile("a100-sxm-80gb");
  Job counted = expert_job(R"("routing": {"zipf": 0})");
  EXPECT_EQ(simulate_step(counted, profile).timeline.makespan,
            simulate_step(expert_job(""), profile).timeline.makespan);
}

TEST(ExpertStep, OfFixedShapesDoesNotFeelTheLoads) {
  const Profile profile = read_profile("a100-sxm-80gb");
  const auto step = [&](const char* routing) {
    return simulate_step(expert_job(std::string(R"("kind": "gshard", "routing": )") + routing),
                         profile)
        .timeline.makespan;
  };
  EXPECT_EQ(step(R"({"zipf": 1.2})"), step("\"uniform\""));
}

TEST(ExpertStep, HidesTheExchangeBesideAnotherMicroBatch) {
  const Profile profile = read_profile("a100-sxm-80gb");
  Job job = expert_job("");
  const SimulatedStep apart = simulate_step(job, profile);
  job.plan.moe.overlap = true;
  const SimulatedStep beside = simulate_step(job, profile);
  const CollectiveCost collectives(profile, job.topology);
  const GroupPlacement node = job.topology.placement({0, 1, 2, 3, 4, 5, 6, 7});
  // Of two micro-batches, the forward pass of one and the backward pass of the other are a pair.
  Time exchanges;
  for (const Template& list : apart.program.templates) {
    for (const TemplateOperation& operation : list.operations) {
      const auto* collective = std::get_if<Collective>(&operation.operation);
      if (collective == nullptr || collective->kind != CollectiveKind::kAllToAll) continue;
      exchanges += collectives.price(*collective, node).alone.time * 2;  // layers
    }
  }
  EXPECT_LT(beside.timeline.makespan, apart.timeline.makespan);
  EXPECT_GT(beside.timeline.makespan, apart.timeline.makespan - exchanges);
}

TEST(ExpertStep, KeepsSharedExpertsOffTheCriticalPathWhereTheyOverlap) {
  const Profile profile = read_profile("a100-sxm-80gb");
  Job beside = expert_job("");
  beside.model.experts.shared_intermediate_size = 1024;
  const Time behind = simulate_step(beside, profile).timeline.makespan;
  beside.plan.moe.shared_overlap = true;
  EXPECT_LT(simulate_step(beside, profile).timeline.makespan, behind);
}

}  // namespace
}  // namespace headway
