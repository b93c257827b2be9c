// Captured graphs over parts of the model: what a scope covers costs the host one launch for each
// graph; all else is launched kernel by kernel.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "sim/cost/profile.hpp"
#include "sim/plan/job.hpp"
#include "sim/program/training_step.hpp"
#include "sim/simulate/lowering.hpp"

namespace headway {
namespace {

constexpr double kEachUs = 10;
// The launch of a graph, and the copy of its input (sim/simulate/lowering.cpp).
constexpr double kGraphUs = kEachUs + 3.5;

// One layer on one GPU, with experts or without; 10 us for each kernel.
Job layer_job(bool experts, Launch launch, const GraphScope& scope) {
  const std::string text =
      std::string(R"({"model": {"hidden_size": 1024, "num_attention_heads": 16,
           "num_hidden_layers": 1, "intermediate_size": 4096, "vocab_size": 32000,
           "hidden_act": "silu", "gated_mlp": true)") +
      (experts ? R"(, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 512,
                     "n_shared_experts": 1)"
               : "") +
      R"(}, "cluster": {"topology": "dgx-a100", "gpus": 1, "profile": "a100-sxm-80gb"},
          "precision": "bf16", "sequence_length": 1024, "global_batch": 2,
          "software": {"framework": "headway"}, "plan": {}})";
  Problems problems;
  JobReading reading = read_job(JsonNode::parse_text(text, "job"), {}, problems);
  problems.throw_if_any();
  Job job = std::move(*reading.job);
  Software& software = job.software;
  software.launch = launch;
  software.graph_scope = scope;
  software.host_per_kernel_forward = software.host_per_kernel_backward =
      Time::from_microseconds(kEachUs);
  software.host_tp_jitter.clear();
  return job;
}

using HostTimes = std::map<std::string, double>;  // us, by operation

// What the host needs for each operation of the layer's template.
HostTimes host_times(const Job& job, const std::string& list) {
  const Program program = lower(job);
  const Profile profile = read_profile("a100-sxm-80gb");
  const LoweredStep step = lower_to_tasks({program, job.topology, profile, job.software, {}});
  HostTimes times;
  for (std::size_t t = 0; t < step.origins.size(); ++t) {
    for (std::size_t i = 0; i < step.origins[t].size(); ++i) {
      const TaskOrigin& origin = step.origins[t][i];
      const Template& one = program.templates[static_cast<std::size_t>(origin.template_index)];
      if (one.name != list) continue;
      times[one.operations[static_cast<std::size_t>(origin.operation)].name] =
          step.graph.templates[t].tasks[i].host.seconds() * 1e6;
    }
  }
  EXPECT_FALSE(times.empty()) << list;
  return times;
}

// With the scope, each of `graphs` (its operations, the first of them first) is one launch, and all
// else costs what it does without.
void expect_graphs(bool experts, const GraphScope& scope, const std::string& list,
                   const std::vector<std::vector<std::string>>& graphs) {
  HostTimes expected = host_times(layer_job(experts, Launch::kEager, {}), list);
  for (const std::vector<std::string>& graph : graphs) {
    for (const std::string& name : graph) {
      ASSERT_TRUE(expected.contains(name)) << name;
      EXPECT_GT(expected.at(name), 0) << name;
      expected[name] = name == graph.front() ? kGraphUs : 0;
    }
  }
  const HostTimes found = host_times(layer_job(experts, Launch::kCudaGraph, scope), list);
  ASSERT_EQ(found.size(), expected.size());
  for (const auto& [name, time] : expected) EXPECT_NEAR(found.at(name), time, 1e-9) << name;
}

const std::vector<std::string> attention = {"attention.norm",       "attention.qkv",
                                            "attention.rotary",     "attention.core",
                                            "attention.projection", "attention.residual"};
const std::vector<std::string> mlp = {"mlp.norm", "mlp.first", "mlp.activation", "mlp.second",
                                      "mlp.residual"};

TEST(GraphScope, OfADenseLayerIsOneLaunchForEachHalf) {
  const std::string list = "layer.forward";
  expect_graphs(false, {.attention = true}, list, {attention});
  expect_graphs(false, {.mlp = true}, list, {mlp});
  expect_graphs(false, {.attention = true, .mlp = true}, list, {attention, mlp});
  std::vector<std::string> all = attention;
  all.insert(all.end(), mlp.begin(), mlp.end());
  expect_graphs(false, {.layer = true}, list, {all});
  // Without a scope the whole iteration is one graph.
  for (const auto& [name, time] : host_times(layer_job(false, Launch::kCudaGraph, {}), list))
    EXPECT_EQ(time, 0) << name;
}

TEST(GraphScope, OfTheBackwardPassIsTheSame) {
  double launches = 0;
  const GraphScope both = {.attention = true, .mlp = true};
  for (const auto& [name, time] :
       host_times(layer_job(false, Launch::kCudaGraph, both), "layer.backward")) {
    launches += time;
  }
  EXPECT_NEAR(launches, 2 * kGraphUs, 1e-9);
}

TEST(GraphScope, OfAnExpertLayerLeavesWhatDependsOnTheRoutingToTheHost) {
  const std::string list = "expert_layer.forward";
  std::vector<std::string> router = {"mlp.norm", "moe.router", "moe.choose"};
  const std::vector<std::string> shared = {"moe.shared_first", "moe.shared_activation",
                                           "moe.shared_second"};
  expect_graphs(true, {.attention = true}, list, {attention});
  expect_graphs(true, {.router = true}, list, {router, shared});
  router.insert(router.end(), {"moe.assign", "moe.permute"});
  expect_graphs(true, {.attention = true, .router = true, .preprocess = true}, list,
                {attention, router, shared});
}

}  // namespace
}  // namespace headway
