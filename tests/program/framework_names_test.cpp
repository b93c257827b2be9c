// What frameworks call the parallelisms of tensors and sequences, in Headway's plans (README.md has
// the same table), and what of each a layer's forward pass, or the head's, then exchanges.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "sim/program/training_step.hpp"
#include "tests/program/template_text.hpp"

namespace headway {
namespace {

Program lowered(const std::string& plan) {
  const std::string text =
      R"({"model": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 8,
                    "num_key_value_heads": 4, "intermediate_size": 64, "vocab_size": 512,
                    "hidden_act": "silu", "gated_mlp": true},
          "cluster": {"topology": "dgx-a100", "gpus": 4}, "sequence_length": 16,
          "global_batch": 4, "plan": {)" +
      plan + "}}";
  Problems problems;
  const JobReading reading = read_job(JsonNode::parse_text(text, "job"), {}, problems);
  problems.throw_if_any();
  EXPECT_TRUE(reading.not_built.empty());
  return lower(*reading.job);
}

std::map<std::string, int> exchanges(const Program& program, const std::string& list) {
  std::map<std::string, int> count;
  for (const TemplateOperation& operation : template_named(program, list).operations) {
    const auto* collective = std::get_if<Collective>(&operation.operation);
    if (collective != nullptr) ++count[std::string(name(collective->kind))];
  }
  return count;
}

using Exchanges = std::map<std::string, int>;
constexpr const char* kLayer = "layer.forward";
constexpr const char* kHead = "head.forward";

struct Row {
  const char* words;
  const char* plan;
  const char* list;
  Exchanges exchanges;
};

TEST(FrameworkNames, StandForPlans) {
  const Exchanges gathers = {{"all_gather", 2}, {"reduce_scatter", 2}};
  const Exchanges hops = {{"shift", 12}};  // three round a ring of four, for each of four matrices
  const char* const sequence = R"("tp": 4, "sequence_parallel": true)";
  const char* const rings = R"("tp": 4, "sequence_parallel": true, "tp_overlap": "ring")";
  for (const Row& row : {
           // ColossalAI, shardformer/layer/linear.py: these two share the tensor-parallel group.
           Row{"ColossalAI sequence_parallelism_mode split_gather", sequence, kLayer, gathers},
           {"ColossalAI sequence_parallelism_mode ring", rings, kLayer, hops},
           {"ColossalAI sequence_parallelism_mode all_to_all",
            R"("cp": 4, "cp_kind": "ulysses")",
            kLayer,
            {{"all_to_all", 4}}},
           {"ColossalAI sequence_parallelism_mode ring_attn",
            R"("cp": 4, "cp_kind": "ring")",
            kLayer,
            {{"shift", 3}}},
           // torch.distributed.tensor.parallel
           {"PyTorch ColwiseParallel, RowwiseParallel", R"("tp": 4)", kLayer, {{"all_reduce", 2}}},
           {"PyTorch SequenceParallel", sequence, kLayer, gathers},
           {"PyTorch loss_parallel", R"("tp": 4)", kHead, {{"all_reduce", 2}}},
           {"PyTorch async tensor parallelism (_micro_pipeline_tp)", rings, kLayer, hops},
           // Megatron-LM and Transformer Engine
           {"Megatron-LM --tp-comm-overlap", rings, kLayer, hops},
           {"Megatron-LM --cp-comm-type p2p", R"("cp": 4)", kLayer, {{"shift", 3}}},
           {"Megatron-LM --cp-comm-type all_gather",
            R"("cp": 4, "cp_kind": "allgather")",
            kLayer,
            {{"all_gather", 2}}},
           {"Megatron-LM --cp-comm-type a2a",
            R"("cp": 4, "cp_kind": "ulysses")",
            kLayer,
            {{"all_to_all", 4}}},
           {"Megatron-LM --cp-comm-type a2a+p2p",
            R"("cp": 4, "cp_kind": "ulysses+ring", "ulysses_degree": 2)",
            kLayer,
            {{"all_to_all", 4}, {"shift", 1}}},
           {"DeepSpeed DistributedAttention (Ulysses)",
            R"("cp": 4, "cp_kind": "ulysses")",
            kLayer,
            {{"all_to_all", 4}}},
       }) {
    EXPECT_EQ(exchanges(lowered(row.plan), row.list), row.exchanges) << row.words;
  }
}

}  // namespace
}  // namespace headway
