#include "sim/search/framework_reach.hpp"

#include <algorithm>

#include "sim/plan/plan_legality.hpp"
#include "sim/program/schedule.hpp"

namespace headway {

namespace {

FrameworkReach everything() {
  FrameworkReach reach;
  for (const Schedule& schedule : schedules()) {
    // PipeDream's delayed weights are another algorithm, not another way to compute the same step.
    if (schedule.lowered && schedule.name != "pipedream") reach.schedules.push_back(schedule.name);
  }
  reach.dp_kinds = {"ddp",  "zero1", "distributed_optimizer", "zero2", "zero3", "fsdp",
                    "hsdp", "zero++"};
  reach.tp_overlaps = {"none", "bulk", "ring"};
  reach.source = "every rule of sim/program";
  return reach;
}

std::vector<FrameworkReach> make_table() {
  return {
      {{"megatron-2021"},
       {"1f1b", "interleaved"},
       {"ddp"},
       true,
       true,
       true,
       "Megatron-LM 2.x arguments.py: --num-layers-per-virtual-pipeline-stage"},
      {{"megatron-2022", "megatron-2023", "megatron-2024"},
       {"1f1b", "interleaved"},
       {"ddp", "distributed_optimizer"},
       true,
       true,
       true,
       "Megatron-LM arguments.py: --use-distributed-optimizer, "
       "--account-for-embedding-in-pipeline-split, --account-for-loss-in-pipeline-split"},
      {{"megatron-core"},
       {"1f1b", "interleaved"},
       {"ddp", "distributed_optimizer"},
       true,
       true,
       false,
       "Megatron-LM core 0.13 arguments.py: --pipeline-model-parallel-layout, --tp-comm-overlap",
       {"none", "ring"}},
      {{"megatron-deepspeed", "megatron-deepspeed-2022"},
       {"1f1b"},
       {"zero1", "zero2", "zero3"},
       true,
       true,
       false,
       "DeepSpeed runtime/pipe (1F1B; ZeRO 2 and 3 without a pipeline)"},
      {{"deepspeed", "xtuner"},
       {"1f1b"},
       {"zero1", "zero2", "zero3", "zero++"},
       false,
       false,
       false,
       "DeepSpeed's zero_optimization stages"},
      {{"llm-foundry", "fms-fsdp", "dfa"},
       {"1f1b"},
       {"fsdp", "hsdp"},
       false,
       false,
       false,
       "FSDP is their only parallelism (dfa: beside its own sequence parallelism)"},
      {{"torchtitan"},
       {"1f1b", "gpipe", "interleaved", "looped-bfs", "zb-v", "dualpipe-v"},
       {"fsdp", "hsdp"},
       true,
       true,
       false,
       "torchtitan's pipeline_parallel_schedule, enable_async_tensor_parallel; "
       "torch.distributed.pipelining.schedules",
       {"none", "ring"}},
      {{"internevo"},
       {"1f1b", "interleaved"},
       {"zero1"},
       true,
       true,
       false,
       "InternEvo's parallel configuration"},
      {{"aa-scaling"}, {"1f1b"}, {"zero1"}, true, true, false, "arXiv 2311.05610"},
  };
}

bool holds(const std::vector<std::string>& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// Megatron-core's arguments: every stage alike, or alike when the embedding counts as a layer of
// the first and the loss as one of the last.
bool divides_evenly(const ParallelPlan& plan, std::int64_t layers) {
  const auto stages = static_cast<std::int64_t>(plan.stage_layers.size());
  if (layers % stages != 0 && (layers + 2) % stages != 0) return false;
  return plan.stage_layers == divided_layers(layers, stages);
}

}  // namespace

const FrameworkReach& framework_reach(std::string_view framework) {
  static const std::vector<FrameworkReach> table = make_table();
  static const FrameworkReach all = everything();
  for (const FrameworkReach& reach : table) {
    if (holds(reach.frameworks, framework)) return reach;
  }
  return all;
}

std::string launch_refusal(const FrameworkReach& reach, const Job& job) {
  if (reach.frameworks.empty()) return "";
  const ParallelPlan& plan = job.plan;
  const std::string& who = job.software.framework;
  if (plan.tp > 1 && !reach.tensor_parallel) return who + " has no tensor parallelism";
  if (plan.pp > 1 && !reach.pipeline_parallel) return who + " has no pipeline parallelism";
  if (plan.pp > 1 && !holds(reach.schedules, plan.schedule)) {
    return who + " has no schedule " + plan.schedule;
  }
  if (plan.dp > 1 && !holds(reach.dp_kinds, name(plan.dp_kind))) {
    return who + " has no dp_kind " + std::string(name(plan.dp_kind));
  }
  if (plan.tp > 1 && !holds(reach.tp_overlaps, name(plan.tp_overlap))) {
    return who + " has no tp_overlap " + std::string(name(plan.tp_overlap));
  }
  const std::int64_t layers = job.model.num_hidden_layers;
  if (reach.even_stages && plan.pp > 1 && !divides_evenly(plan, layers)) {
    return who + " splits " + std::to_string(layers) + " layers over " +
           std::to_string(plan.stage_layers.size()) + " virtual stages only evenly";
  }
  return "";
}

}  // namespace headway
