// Sequences spread over ranks, played out: what the order of the tokens costs, and what folding may
// take together.
#include <gtest/gtest.h>

#include <string>

#include "sim/cost/profile.hpp"
#include "sim/plan/job.hpp"
#include "sim/simulate/simulated_step.hpp"

namespace headway {
namespace {

const Profile& h100() {
  static const Profile profile = read_profile("h100-sxm");
  return profile;
}

SimulatedStep simulated(const std::string& plan, const StepOptions& options = {}) {
  const std::string text =
      R"({"model": "llama3-8b", "cluster": {"topology": "dgx-h100", "gpus": 8},
          "sequence_length": 65536, "global_batch": 2, "plan": {)" +
      plan + "}}";
  Problems problems;
  const JobReading reading = read_job(JsonNode::parse_text(text, "job"), {}, problems);
  problems.throw_if_any();
  EXPECT_TRUE(reading.not_built.empty());
  return simulate_step(*reading.job, h100(), options);
}

TEST(ContextParallelStep, ZigzagRanksFoldIntoOneAndContiguousOnesDoNot) {
  EXPECT_EQ(simulated(R"("cp": 8)").lowered.graph.devices, 1);
  EXPECT_EQ(simulated(R"("cp": 8, "cp_balance": "contiguous")").lowered.graph.devices, 8);
}

TEST(ContextParallelStep, AContiguousOrderWaitsForTheLastRank) {
  // Attention: 15 half blocks on the last of 8 ranks against 8 on each (Megatron-LM's reason to
  // deal out chunks i and 2 c - 1 - i).
  const Time zigzag = simulated(R"("cp": 8)").timeline.makespan;
  const Time contiguous = simulated(R"("cp": 8, "cp_balance": "contiguous")").timeline.makespan;
  EXPECT_GT(contiguous, zigzag);
  EXPECT_LT(contiguous.seconds(), 15.0 / 8 * zigzag.seconds());
}

TEST(ContextParallelStep, FoldedEqualsUnfoldedWhereRanksDiffer) {
  StepOptions every_rank;
  every_rank.unfolded = true;
  for (const char* plan : {R"("cp": 4, "cp_balance": "contiguous")",
                           R"("cp": 4, "cp_kind": "ulysses+ring", "ulysses_degree": 2)"}) {
    EXPECT_EQ(simulated(plan).timeline.makespan, simulated(plan, every_rank).timeline.makespan)
        << plan;
  }
}

// Exchanges of heads and reductions of gradients share a group here; what the framework's
// reductions reach of the network says nothing of the exchanges.
TEST(ContextParallelStep, AnExchangeIsNotSlowedByWhatReductionsReach) {
  Problems problems;
  const JobReading reading = read_job(JsonNode::parse_text(R"({
        "model": {"hidden_size": 4096, "num_hidden_layers": 4, "num_attention_heads": 32,
                  "intermediate_size": 16384, "vocab_size": 51200, "hidden_act": "gelu"},
        "cluster": {"topology": "dgx-h100", "gpus": 16}, "sequence_length": 65536,
        "global_batch": 1, "plan": {"cp": 16, "cp_kind": "ulysses"}})",
                                                           "job"),
                                      {}, problems);
  problems.throw_if_any();
  Job job = *reading.job;
  const auto exchanging = [&](double efficiency) {
    job.software.dp_network_efficiency = efficiency;
    const DeviceTotals totals = simulate_step(job, h100()).timeline.devices.front();
    return totals.busy[static_cast<std::size_t>(Cause::kContextParallel)].seconds();
  };
  EXPECT_NEAR(exchanging(1), exchanging(0.25), 1e-9);  // rates are whole numbers
}

TEST(ContextParallelStep, ARingHidesWhatAGatherExposes) {
  const auto exposed = [](const SimulatedStep& step) {
    const DeviceTotals& totals = step.timeline.devices.front();
    const auto cause = static_cast<std::size_t>(Cause::kContextParallel);
    return totals.busy[cause] + totals.waiting[cause];
  };
  EXPECT_LT(exposed(simulated(R"("cp": 8)")),
            exposed(simulated(R"("cp": 8, "cp_kind": "allgather")")));
}

}  // namespace
}  // namespace headway
