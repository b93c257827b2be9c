// Steps on a machine that differs from its description: slow and dead links, other jobs, unequal
// GPUs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "sim/core/error.hpp"
#include "sim/cost/profile.hpp"
#include "sim/program/training_step.hpp"
#include "sim/simulate/background.hpp"
#include "sim/simulate/jitter.hpp"
#include "sim/simulate/simulated_step.hpp"

namespace headway {
namespace {

Job job_of(const std::string& text) {
  Problems problems;
  JobReading reading = read_job(JsonNode::parse_text(text, "job"), {}, problems);
  problems.throw_if_any();
  return std::move(*reading.job);
}

const Profile& a100() {
  static const Profile profile = read_profile("a100-sxm-80gb");
  return profile;
}

// Four servers; every rank reduces its gradients with the same rank of the other three.
Job data_parallel(int tp = 8, int gpus = 32) {
  return job_of(R"({"model": "gpt3-1.7b", "cluster": {"topology": "dgx-a100", "gpus": )" +
                std::to_string(gpus) + R"(}, "sequence_length": 2048, "global_batch": 32,
                "plan": {"micro_batch": 2, "overlap_grad_reduce": false, "tp": )" +
                std::to_string(tp) + "}}");
}

Time step_time(const Job& job, const MachineWhatIf& machine, bool unfolded = false) {
  StepOptions options;
  options.machine = machine;
  options.unfolded = unfolded;
  return simulate_step(job, a100(), options).timeline.makespan;
}

// What one NIC at half speed costs the step is what a NIC at half speed costs one reduction: only
// one of the eight rings uses it, and all wait for it.
TEST(DegradedLinks, OneNicIsFeltByExactlyWhatUsesIt) {
  const Job job = data_parallel();
  const Time sound = step_time(job, {});
  const Time one = step_time(job, {{}, {{"node1/nic3:unit0/leaf3", 0.5}}});
  const Time all = step_time(job, {{}, {{"nic", 0.5}}});
  EXPECT_GT(one, sound);
  EXPECT_LE(one, all);
  EXPECT_NEAR(one.seconds(), all.seconds(), 0.02 * all.seconds());
  // The other server's NIC of a rail that only a deeper tensor group uses is not missed.
  const Job small = data_parallel(8, 8);
  EXPECT_EQ(step_time(small, {{}, {{"node0/nic3", 0.1}}}), step_time(small, {}));
}

TEST(DegradedLinks, ADeadNicsTrafficGoesOverTheNextAndBothRingsFeelIt) {
  const Job job = data_parallel();
  const Time dead = step_time(job, {{}, {{"node1/nic3", 0}}});
  EXPECT_GT(dead, step_time(job, {}));
  EXPECT_NEAR(dead.seconds(), step_time(job, {{}, {{"nic", 0.5}}}).seconds(),
              0.02 * dead.seconds());
}

TEST(DegradedLinks, OneGpusNvlinkSlowsItsGroupAndSplitsItFromTheOthers) {
  const Job job = data_parallel();
  const Time one = step_time(job, {{}, {{"node0/gpu3:node0/nvswitch", 0.5}}});
  EXPECT_GT(one, step_time(job, {}));
  EXPECT_NEAR(one.seconds(), step_time(job, {{}, {{"nvlink", 0.5}}}).seconds(),
              0.05 * one.seconds());
  // Dead, its group meets it over PCI Express: 31 of 300 GB/s.
  EXPECT_GT(step_time(job, {{}, {{"node0/gpu3:node0/nvswitch", 0}}}), one);
}

TEST(DegradedLinks, FoldedEqualsUnfolded) {
  for (const std::map<std::string, double>& links :
       {std::map<std::string, double>{{"node1/nic3", 0}},
        {{"node0/gpu3:node0/nvswitch", 0.3}},
        {{"node2/nic0:unit0/leaf0", 0.4}, {"nvlink", 0.9}}}) {
    const MachineWhatIf machine{{{5, 1.1}}, links};
    EXPECT_EQ(step_time(data_parallel(4), machine), step_time(data_parallel(4), machine, true))
        << links.begin()->first;
  }
}

TEST(DegradedLinks, AServerCutOffIsRefusedByName) {
  MachineWhatIf machine;
  for (int nic = 0; nic < 8; ++nic) machine.degraded_links["node1/nic" + std::to_string(nic)] = 0;
  try {
    step_time(data_parallel(), machine);
    FAIL();
  } catch (const InvalidInput& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("--degrade: with these links dead there is no way "
                                                 "between node0/gpu0 and node1/gpu0"));
  }
}

// Twelve servers on two leaves of six, whose uplinks carry what two servers send. A ring crosses
// between the leaves once each way, with one server's traffic. In an exchange among all, six of
// eleven parts of six servers' traffic cross: as much as 3.3 servers send.
TEST(SharedUplinks, AnExchangeCrossesMoreThanARing) {
  const auto time = [](const std::string& experts, const std::string& plan,
                       const std::string& uplink) {
    return step_time(
        job_of(R"({"model": {"hidden_size": 2048, "num_attention_heads": 16, "num_hidden_layers": 2,
                   "intermediate_size": 4096, "vocab_size": 32000, "hidden_act": "silu",
                   "gated_mlp": true)" +
               experts + R"(}, "cluster": {"topology": "jean-zay-a100", "gpus": 96,
                   "links": {"leaf-spine": {"bandwidth": ")" +
               uplink + R"("}}}, "sequence_length": 2048, "global_batch": 96,
                   "plan": {"micro_batch": 1, "overlap_grad_reduce": false)" +
               plan + "}}"),
        {});
  };
  const std::string experts =
      R"(, "num_experts": 96, "num_experts_per_tok": 4, "moe_intermediate_size": 1024)";
  EXPECT_EQ(time("", "", "100 GB/s"), time("", "", "1000 GB/s"));
  EXPECT_GT(time("", "", "40 GB/s"), time("", "", "1000 GB/s"));
  EXPECT_GT(time(experts, R"(, "ep": 96)", "100 GB/s"),
            time(experts, R"(, "ep": 96)", "1000 GB/s"));
}

// Two servers of one 20 Gbit/s NIC each.
Job over_one_leaf() {
  return job_of(R"({"model": "gpt3-1.7b", "cluster": {"topology": "a100-1x100", "gpus": 16,
      "links": {"nic": {"bandwidth": "20 Gbit/s"}}}, "sequence_length": 2048, "global_batch": 32,
      "plan": {"tp": 2, "micro_batch": 2}})");
}

TEST(Background, AJobElsewhereIsNotFelt) {
  const Job job = over_one_leaf();
  StepOptions options;
  options.background = {{&job, &a100(), 16}};
  EXPECT_EQ(simulate_step(job, a100(), options).timeline.makespan,
            simulate_step(job, a100()).timeline.makespan);
}

TEST(Background, AJobOnTheSameUplinksIsFeltFoldedAndUnfoldedAlike) {
  Job job = job_of(R"({"model": "gpt3-1.7b", "cluster": {"topology": "grand-teton-h100-96gb",
      "gpus": 32, "links": {"leaf-spine": {"bandwidth": "20 GB/s"}}}, "sequence_length": 2048,
      "global_batch": 32, "plan": {"tp": 8, "micro_batch": 2, "order": "tp-cp-ep-dp-pp"}})");
  const Profile profile = read_profile("h100-96gb-500w");
  // Leaves hold two servers: the other job begins at the fifth server, on leaves of its own, and
  // meets nobody; at 32 it would meet the first only through a common leaf, which there is none of.
  StepOptions options;
  options.background = {{&job, &profile, 32}};
  const Time apart = simulate_step(job, profile, options).timeline.makespan;
  const Time alone = simulate_step(job, profile).timeline.makespan;
  EXPECT_EQ(apart, alone);
  // A job of three servers ends in the middle of a leaf, where the other begins.
  Job three = job_of(R"({"model": "gpt3-1.7b", "cluster": {"topology": "grand-teton-h100-96gb",
      "gpus": 24, "links": {"leaf-spine": {"bandwidth": "20 GB/s"}}}, "sequence_length": 2048,
      "global_batch": 24, "plan": {"tp": 8, "micro_batch": 2}})");
  StepOptions beside;
  beside.background = {{&three, &profile, 24}};
  const Time together = simulate_step(three, profile, beside).timeline.makespan;
  EXPECT_GT(together, simulate_step(three, profile).timeline.makespan);
  beside.unfolded = true;
  EXPECT_EQ(simulate_step(three, profile, beside).timeline.makespan, together);
}

TEST(Background, DevicesStillAccountForTheWholeStep) {
  const Job job = over_one_leaf();
  StepOptions options;
  options.background = {{&job, &a100(), 16}};
  const SimulatedStep step = simulate_step(job, a100(), options);
  ASSERT_EQ(step.timeline.devices.size(), static_cast<std::size_t>(step.lowered.graph.devices));
  for (const DeviceTotals& totals : step.timeline.devices) {
    Time all = totals.idle;
    for (const Time time : totals.busy) all += time;
    for (const Time time : totals.waiting) all += time;
    EXPECT_EQ(all, step.timeline.makespan);
  }
}

JitterReport drawn(const Job& job, const JitterOptions& options) {
  return jitter(lower(job), job, a100(), {}, options);
}

TEST(Jitter, IsTheSameOnAnyNumberOfThreadsAndHoweverManyAreDrawn) {
  const Job job = data_parallel();
  const JitterReport one = drawn(job, {.sigma = 0.05, .draws = 6, .seed = 7, .threads = 1});
  const JitterReport four = drawn(job, {.sigma = 0.05, .draws = 6, .seed = 7, .threads = 4});
  EXPECT_EQ(one.steps, four.steps);
  const JitterReport two = drawn(job, {.sigma = 0.05, .draws = 2, .seed = 7, .threads = 1});
  EXPECT_EQ(two.steps[1], one.steps[1]);
  EXPECT_NE(drawn(job, {.sigma = 0.05, .draws = 2, .seed = 8, .threads = 1}).steps, two.steps);
}

// Alone on its GPU a step is as much slower as the GPU: what the host launches is hidden by it.
TEST(Jitter, OfOneGpuIsItsSpeed) {
  const Job job = job_of(R"({"model": "gpt3-1.7b", "cluster": {"topology": "dgx-a100", "gpus": 1},
      "sequence_length": 2048, "global_batch": 8, "plan": {"micro_batch": 4}})");
  const double even = simulate_step(job, a100()).timeline.makespan.seconds();
  const JitterOptions options{.sigma = 0.1, .draws = 5, .seed = 3, .threads = 1};
  const JitterReport report = drawn(job, options);
  for (int draw = 0; draw < 5; ++draw) {
    EXPECT_NEAR(report.steps[static_cast<std::size_t>(draw)].seconds() / even,
                jitter_factor(options, draw, 0), 0.01)
        << draw;
  }
}

// 32 ranks of one data-parallel group wait for the slowest: the whole step is as slow as it.
TEST(Jitter, AStepWaitsForItsSlowestGpu) {
  const Job job = data_parallel(1, 8);
  const double even = simulate_step(job, a100()).timeline.makespan.seconds();
  const JitterReport report = drawn(job, {.sigma = 0.05, .draws = 20, .seed = 1, .threads = 2});
  EXPECT_GT(report.percentile(50).seconds(), even);
  EXPECT_LE(report.percentile(5), report.percentile(50));
  EXPECT_LE(report.percentile(50), report.percentile(95));
  EXPECT_LT(report.mean().seconds() / even, report.slowest);
  EXPECT_GT(report.mean().seconds() / even, 1 + (report.slowest - 1) / 2);
}

TEST(Jitter, PercentilesAreNearestRanks) {
  JitterReport report;
  for (int i = 20; i >= 1; --i) report.steps.push_back(Time{i});
  EXPECT_EQ(report.percentile(5), Time{1});
  EXPECT_EQ(report.percentile(50), Time{10});
  EXPECT_EQ(report.percentile(95), Time{19});
}

TEST(Jitter, FactorsHaveMedianOneAndTheAskedSpread) {
  const JitterOptions options{.sigma = 0.1, .draws = 1, .seed = 5, .threads = 1};
  double sum = 0, squares = 0;
  constexpr int kMany = 20'000;
  for (int rank = 0; rank < kMany; ++rank) {
    const double z = std::log(jitter_factor(options, 0, rank)) / options.sigma;
    sum += z;
    squares += z * z;
  }
  EXPECT_NEAR(sum / kMany, 0, 0.03);
  EXPECT_NEAR(squares / kMany, 1, 0.05);
}

}  // namespace
}  // namespace headway
