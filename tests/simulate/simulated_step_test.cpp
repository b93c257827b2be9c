#include "sim/simulate/simulated_step.hpp"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "sim/cost/profile.hpp"
#include "sim/plan/job.hpp"

namespace headway {
namespace {

Job job_of(const std::string& text) {
  Problems problems;
  JobReading reading = read_job(JsonNode::parse_text(text, "job"), {}, problems);
  problems.throw_if_any();
  EXPECT_TRUE(reading.not_built.empty());
  return std::move(*reading.job);
}

const Profile& a100() {
  static const Profile profile = read_profile("a100-sxm-80gb");
  return profile;
}

constexpr const char* kGpt3 = R"({
  "model": "gpt3-175b", "cluster": {"topology": "dgx-a100", "nodes": 128},
  "precision": "bf16", "sequence_length": 2048, "global_batch": 1536,
  "software": {"framework": "megatron-2022"},
  "plan": {"tp": 8, "pp": 16, "micro_batch": 1, "schedule": "interleaved", "vpp": 3,
           "sequence_parallel": true, "recompute": "selective"}})";

TEST(SimulatedStep, RanksOfAStageFoldIntoOneDevice) {
  const SimulatedStep step = simulate_step(job_of(kGpt3), a100());
  EXPECT_EQ(step.lowered.graph.devices, 16);
  for (const int ranks : step.lowered.partition.rank_multiplicity) EXPECT_EQ(ranks, 64);
  EXPECT_TRUE(step.timeline.deadlock.empty());
}

TEST(SimulatedStep, EveryDeviceAccountsForTheWholeStep) {
  const SimulatedStep step = simulate_step(job_of(kGpt3), a100());
  for (const DeviceTotals& totals : step.timeline.devices) {
    Time all = totals.idle;
    for (const Time time : totals.busy) all += time;
    for (const Time time : totals.waiting) all += time;
    EXPECT_EQ(all, step.timeline.makespan);
  }
}

// A launch-bound step: while the host waits where a micro-batch's data arrives, the device runs
// out of work.
TEST(SimulatedStep, AHostThatWaitsForItsDataCannotRunAhead) {
  Job job = job_of(R"({
    "model": "gpt3-1.7b", "cluster": {"topology": "dgx-a100", "gpus": 1}, "sequence_length": 1024,
    "global_batch": 8, "software": {"framework": "megatron-2022"}, "plan": {"micro_batch": 1}})");
  job.software.host_per_kernel_forward = Time::from_microseconds(60);
  job.software.data_synchronises = false;
  const Time ahead = simulate_step(job, a100()).timeline.makespan;
  job.software.data_synchronises = true;
  EXPECT_GT(simulate_step(job, a100()).timeline.makespan, ahead);
}

// What runs again in a backward pass is issued by the same Python as the first time: 15 kernels a
// layer (two norms, four products, their biases and activation, five of attention's core, two
// residuals), where autograd's own kernels are free here.
TEST(SimulatedStep, WhatRunsAgainCostsTheHostWhatItDidTheFirstTime) {
  Job job = job_of(R"({
    "model": "gpt3-1.7b", "cluster": {"topology": "dgx-a100", "gpus": 1}, "sequence_length": 1024,
    "global_batch": 1, "software": {"framework": "megatron-2022"}, "plan": {"micro_batch": 1}})");
  job.software.host_per_kernel_forward = Time::from_microseconds(1000);
  job.software.host_per_kernel_backward = Time::zero();
  job.plan.recompute = Recompute::kNothing;
  const double once = simulate_step(job, a100()).timeline.makespan.seconds();
  job.plan.recompute = Recompute::kFull;
  const double again = simulate_step(job, a100()).timeline.makespan.seconds();
  // All of it, but for what the device works off meanwhile of the backward pass.
  EXPECT_LE(again - once, 24 * 15 * 1e-3);
  EXPECT_GT(again - once, 0.8 * 24 * 15 * 1e-3);
}

// A product taken apart in hops is one call of the framework; without, its collective is a call of
// its own.
TEST(SimulatedStep, HopsOfAProductCostTheHostOneCall) {
  const auto step = [](const std::string& overlap) {
    Job job = job_of(R"({
      "model": "gpt3-1.7b", "cluster": {"topology": "dgx-a100", "gpus": 4},
      "sequence_length": 1024, "global_batch": 1, "software": {"framework": "megatron-core"},
      "plan": {"tp": 4, "sequence_parallel": true, "tp_overlap": ")" +
                     overlap + R"("}})");
    job.software.host_per_kernel_forward = Time::from_microseconds(1000);
    job.software.host_per_kernel_backward = Time::from_microseconds(1000);
    return simulate_step(job, a100()).timeline.makespan.seconds();
  };
  EXPECT_LT(step("ring"), step("none"));
}

TEST(SimulatedStep, ASlowRankSlowsTheStepAndSplitsItsClass) {
  const Job job = job_of(R"({
    "model": "gpt3-1.7b", "cluster": {"topology": "dgx-a100", "gpus": 16}, "sequence_length": 2048,
    "global_batch": 64, "plan": {"tp": 2, "pp": 2, "micro_batch": 2}})");
  const SimulatedStep even = simulate_step(job, a100());
  StepOptions options;
  options.machine.slow_ranks[5] = 1.2;
  const SimulatedStep slow = simulate_step(job, a100(), options);
  EXPECT_GT(slow.timeline.makespan, even.timeline.makespan);
  EXPECT_LT(slow.timeline.makespan.seconds(), even.timeline.makespan.seconds() * 1.2);
  EXPECT_GT(slow.lowered.graph.devices, even.lowered.graph.devices);
}

TEST(SimulatedStep, ADegradedNicSlowsWhatCrossesIt) {
  const Job job = job_of(R"({
    "model": "gpt3-1.7b", "cluster": {"topology": "dgx-a100", "gpus": 32}, "sequence_length": 2048,
    "global_batch": 64, "plan": {"tp": 2, "micro_batch": 2}})");
  StepOptions options;
  options.machine.degraded_links["nic"] = 0.1;
  EXPECT_GT(simulate_step(job, a100(), options).timeline.makespan,
            simulate_step(job, a100()).timeline.makespan);
}

// Random small jobs: what folding leaves out must not be missed, to the picosecond.
class FoldedEqualsUnfolded : public ::testing::TestWithParam<int> {};

std::string random_job(std::mt19937& random) {
  const auto pick = [&](std::vector<std::string> options) {
    return options[random() % options.size()];
  };
  const std::string tp = pick({"1", "2", "4"}), pp = pick({"1", "2", "4"});
  const std::string schedule = pp == "1" ? "1f1b" : pick({"1f1b", "gpipe", "interleaved"});
  std::string plan = R"("tp": )" + tp + R"(, "pp": )" + pp + R"(, "schedule": ")" + schedule + "\"";
  if (schedule == "interleaved") plan += R"(, "vpp": 2)";
  plan += R"(, "micro_batch": )" + pick({"1", "2"});
  plan += R"(, "sequence_parallel": )" + pick({"true", "false"});
  plan += R"(, "recompute": ")" + pick({"none", "selective", "full"}) + "\"";
  plan += R"(, "dp_kind": ")" +
          (pp == "1" ? pick({"ddp", "zero1", "distributed_optimizer", "zero2", "zero3", "fsdp"})
                     : pick({"ddp", "zero1", "distributed_optimizer", "fsdp"})) +
          "\"";
  plan += R"(, "reshard_after_forward": )" + pick({"true", "false"});
  plan += R"(, "prefetch": )" + pick({"0", "1", "20000000"});
  plan += R"(, "overlap_grad_reduce": )" + pick({"true", "false"});
  plan += R"(, "overlap_p2p": )" + (schedule == "interleaved" ? pick({"true", "false"}) : "false");
  return R"({"model": {"hidden_size": 1024, "num_hidden_layers": 8, "num_attention_heads": 16,
             "intermediate_size": 4096, "vocab_size": 51200, "hidden_act": "gelu", "gated_mlp": false},
             "cluster": {"topology": ")" +
         pick({"dgx-a100", "a100-4x200", "a100-1x100"}) + R"(", "gpus": )" + pick({"16", "32"}) +
         R"(}, "precision": "bf16", "sequence_length": 1024,
             "global_batch": 256, "software": {"framework": ")" +
         pick({"megatron-2021", "megatron-2022", "megatron-deepspeed-2022", "headway"}) +
         R"("}, "plan": {)" + plan + "}}";
}

TEST_P(FoldedEqualsUnfolded, OnARandomJob) {
  std::mt19937 random(static_cast<unsigned>(GetParam()));
  const std::string text = random_job(random);
  SCOPED_TRACE(text);
  const Job job = job_of(text);
  StepOptions options;
  if (random() % 3 == 0) {
    options.machine.slow_ranks[static_cast<int>(random() % static_cast<unsigned>(job.gpus()))] =
        1.1;
  }
  const SimulatedStep folded = simulate_step(job, a100(), options);
  options.unfolded = true;
  const SimulatedStep whole = simulate_step(job, a100(), options);
  ASSERT_EQ(folded.timeline.makespan, whole.timeline.makespan);
  ASSERT_EQ(whole.lowered.graph.devices, job.gpus());
  for (int rank = 0; rank < job.gpus(); ++rank) {
    const auto device = static_cast<std::size_t>(
        folded.lowered.partition.rank_class[static_cast<std::size_t>(rank)]);
    const DeviceTotals& mine = whole.timeline.devices[static_cast<std::size_t>(rank)];
    ASSERT_EQ(folded.timeline.devices[device].end, mine.end) << "rank " << rank;
    ASSERT_EQ(folded.timeline.devices[device].busy, mine.busy) << "rank " << rank;
    ASSERT_EQ(folded.timeline.devices[device].idle, mine.idle) << "rank " << rank;
  }
}

INSTANTIATE_TEST_SUITE_P(RandomJobs, FoldedEqualsUnfolded, ::testing::Range(0, 200));

}  // namespace
}  // namespace headway
