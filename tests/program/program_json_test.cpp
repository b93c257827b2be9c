#include "sim/program/program_json.hpp"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "sim/core/error.hpp"
#include "sim/program/training_step.hpp"
#include "tests/program/small_job.hpp"
#include "tests/program/tiny_program.hpp"

namespace headway {
namespace {

Program read(const std::string& text) {
  return read_program(JsonNode::parse_text(text, "program.json"));
}

std::string replaced(std::string text, const std::string& what, const std::string& with) {
  const auto at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return text.replace(at, what.size(), with);
}

std::string faults(const std::string& text) {
  try {
    read(text);
  } catch (const InvalidInput& error) {
    return error.what();
  }
  return "";
}

void expect_equal(const Program& a, const Program& b) {
  EXPECT_EQ(a.grid.axes(), b.grid.axes());
  EXPECT_EQ(a.grid.folded(), b.grid.folded());
  EXPECT_EQ(a.expert_loads, b.expert_loads);
  EXPECT_EQ(a.streams, b.streams);
  EXPECT_EQ(a.groups, b.groups);
  EXPECT_TRUE(a.buffers == b.buffers);
  EXPECT_TRUE(a.ports == b.ports);
  EXPECT_TRUE(a.templates == b.templates);
  EXPECT_TRUE(a.kinds == b.kinds);
  EXPECT_EQ(a.micro_batches, b.micro_batches);
  EXPECT_EQ(a.sequences_per_micro_batch, b.sequences_per_micro_batch);
  EXPECT_EQ(a.sequence_length, b.sequence_length);
  EXPECT_EQ(a.vocab_size, b.vocab_size);
  EXPECT_EQ(a.data_axis, b.data_axis);
  EXPECT_EQ(a.dropout, b.dropout);
  EXPECT_EQ(a.learning_rate, b.learning_rate);
  EXPECT_EQ(a.clip_norm, b.clip_norm);
  EXPECT_EQ(a.steps_overlap, b.steps_overlap);
  EXPECT_EQ(a.updates_every_micro_batch, b.updates_every_micro_batch);
}

// Two stages with everything that a Program can hold set to something unusual.
Program rich() {
  Program program = tiny::two_stages();
  program.sequences_per_micro_batch = 4;
  program.sequence_length = 2048;
  program.vocab_size = 50257;
  program.data_axis = "replica";
  program.dropout = 0.1;
  program.learning_rate = 1.5e-4;
  program.clip_norm = 1;
  program.steps_overlap = true;
  program.updates_every_micro_batch = true;
  program.groups.push_back({"embedding", {"pp"}, {0, 1}});
  program.ports = {{"bucket", true, false}, {"arrived", false, true}};
  BufferFamily& weight = program.buffers[tiny::kWeight];
  weight.initial = InitialValue::kNormal;
  weight.initial_scale = 0.006;
  weight.parts = {{"attention.query", 64, 128, 0, 0}, {"attention.bias", 1, 128, -1, -1}};
  program.buffers[tiny::kHidden].row_group = 0;
  program.buffers[tiny::kHidden].column_group = 1;
  BufferFamily master = tiny::buffer("master", BufferCategory::kOptimizer, 100);
  master.initial = InitialValue::kMirror;
  master.mirrors = {{tiny::kWeight, 0}, {tiny::kWeight, 1}};
  master.row_group = 0;
  program.buffers.push_back(master);
  std::vector<TemplateOperation>& layer = program.templates[tiny::kLayer].operations;
  layer[0].operation = Gemm{.role = GemmRole::kWeightGradient,
                            .m = 8,
                            .n = 16,
                            .k = 32,
                            .type = DataType::kFp8,
                            .output = DataType::kFp32,
                            .bias = true,
                            .accumulate = true};
  layer[1].operation = Attention{.backward = true,
                                 .batch = 2,
                                 .heads = 8,
                                 .kv_heads = 2,
                                 .sequence_q = 128,
                                 .sequence_kv = 256,
                                 .head_dim = 64,
                                 .head_dim_v = 32,
                                 .causal = false,
                                 .dropout = true,
                                 .kernel = AttentionKernel::kUnfused};
  layer[1].after = {0};
  layer[1].joins = {1};
  layer[1].releases = {{0, 0}};
  TemplateOperation host = tiny::kernel("host", {}, {});
  host.operation = HostWork{HostKind::kSynchronise};
  host.cause = Cause::kHost;
  host.host_waits = true;
  layer.push_back(host);
  program.templates[tiny::kLoss].operations[0].operation =
      Kernel{.kind = KernelKind::kRotaryBackward,
             .rows = 5,
             .columns = 6,
             .fused = false,
             .bias = true,
             .scale = 0.125,
             .head_dim = 3};
  std::get<Collective>(program.templates[tiny::kUpdate].operations[0].operation).reduce =
      ReduceOperator::kAverage;
  program.kinds[0].order.clear();  // its ports would be released for each micro-batch
  program.kinds[1].order.clear();
  program.kinds[0].order = {{0, 0}, {1, 0}, {2, 0}, {3, 0}, {4, -1}};
  program.kinds[1].order = {{0, 0}, {1, 0}, {2, 0}, {3, 0}, {4, -1}};
  return program;
}

TEST(ProgramJson, ReadsBackEqual) {
  for (const Program& program : {tiny::two_layers_on_one_rank(), tiny::two_stages(), rich()}) {
    check(program, "before");
    const std::string text = to_json(program);
    const Program back = read(text);
    expect_equal(program, back);
    EXPECT_EQ(to_json(back), text);
  }
}

TEST(ProgramJson, RandomProgramsReadBackEqual) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const Program program = tiny::RandomProgram(seed).make();
    expect_equal(program, read(to_json(program)));
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
  }
}

TEST(ProgramJson, IsTextThatPeopleRead) {
  EXPECT_EQ(to_json(tiny::two_layers_on_one_rank()), R"({
  "format": "headway-program-1",
  "micro_batches": 2,
  "sequences_per_micro_batch": 1,
  "sequence_length": 0,
  "vocab_size": 0,
  "data_axis": "dp",
  "dropout": 0,
  "learning_rate": 0,
  "clip_norm": 0,
  "grid": [
    {"axis": "dp", "size": 2},
    {"axis": "pp", "size": 1}
  ],
  "streams": ["compute", "pp"],
  "groups": [
    {"name": "dp", "axes": ["dp"]}
  ],
  "ports": [],
  "buffers": [
    {"name": "weight", "category": "parameter", "type": "bool", "rows": 1, "columns": 100, "per_layer": true, "initial": "one"},
    {"name": "hidden", "category": "activation", "type": "bool", "rows": 1, "columns": 10, "per_layer": true, "per_micro_batch": true},
    {"name": "scratch", "category": "activation", "type": "bool", "rows": 1, "columns": 3},
    {"name": "gradient", "category": "activation", "type": "bool", "rows": 1, "columns": 7, "per_micro_batch": true}
  ],
  "templates": [
    {
      "name": "start",
      "operations": [
        {"name": "embed", "kernel": {"kind": "copy", "rows": 0, "columns": 0, "type": "bf16", "output": "bf16"}, "cause": "compute", "stream": "compute", "writes": ["hidden"]}
      ]
    },
    {
      "name": "layer",
      "operations": [
        {"name": "up", "kernel": {"kind": "copy", "rows": 0, "columns": 0, "type": "bf16", "output": "bf16"}, "cause": "compute", "stream": "compute", "reads": ["hidden", "weight"], "writes": ["scratch"]},
        {"name": "down", "kernel": {"kind": "copy", "rows": 0, "columns": 0, "type": "bf16", "output": "bf16"}, "cause": "compute", "stream": "compute", "reads": ["scratch"], "writes": ["hidden[+1]"]}
      ]
    },
    {
      "name": "loss",
      "operations": [
        {"name": "loss", "kernel": {"kind": "copy", "rows": 0, "columns": 0, "type": "bf16", "output": "bf16"}, "cause": "compute", "stream": "compute", "reads": ["hidden"], "writes": ["gradient"]}
      ]
    },
    {
      "name": "backward",
      "operations": [
        {"name": "back", "kernel": {"kind": "copy", "rows": 0, "columns": 0, "type": "bf16", "output": "bf16"}, "cause": "compute", "stream": "compute", "reads": ["gradient", "hidden", "weight"], "writes": ["gradient"]}
      ]
    }
  ],
  "kinds": [
    {
      "name": "pipeline rank 0",
      "stages": [0],
      "persistent": ["weight[0]", "weight[1]"],
      "passes": [
        {"name": "0F", "stage": 0, "steps": ["start[0]", "layer[0]", "layer[1]"]},
        {"name": "0B", "stage": 0, "steps": ["loss[2]", "backward[1]", "backward[0]"]}
      ],
      "order": [
        "0F0 0F1 0B0 0B1"
      ]
    }
  ]
}
)");
}

TEST(ProgramJson, AnOrderIsPassesWithTheirMicroBatches) {
  const std::string text = to_json(tiny::two_stages());
  EXPECT_NE(text.find("\"0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1 update\""),
            std::string::npos);
}

TEST(ProgramJson, UnknownNamesAreFaultsWithTheNearestKnownOne) {
  std::string text = to_json(tiny::two_stages());
  text = replaced(text, "\"writes\": [\"scratch\"]", "\"writes\": [\"scrach\"]");
  text = replaced(text, "\"stream\": \"pp\"", "\"stream\": \"p2p\"");
  text = replaced(text, "0SEND_F0", "0SEND_G0");
  text = replaced(text, "layer[0]", "layer[zero]");
  EXPECT_EQ(
      faults(text),
      R"(program.json: /templates/1/operations/0/writes/0: "scrach" is no buffer of this program; did you mean "scratch"?
program.json: /templates/4/operations/0/stream: "p2p" is no stream of this program; did you mean "pp"?
program.json: /kinds/0/passes/0/steps/1: "layer[zero]" has no integer between its brackets
program.json: /kinds/0/order/0: "0SEND_G0" is no pass of this kind, nor one with a micro-batch)");
}

TEST(ProgramJson, WrongValuesAreFaultsAtTheirPointer) {
  std::string text = to_json(tiny::two_stages());
  text = replaced(text, "\"micro_batches\": 2", "\"micro_batches\": 0");
  text = replaced(text, "\"category\": \"activation\"", "\"category\": \"activations\"");
  text = replaced(text, "\"rows\": 1", "\"row\": 1");
  text = replaced(text, "\"cause\": \"compute\"", "\"cause\": 3");
  EXPECT_EQ(
      faults(text),
      R"(program.json: /micro_batches: 0 is not allowed; expected an integer from 1 up to 1048576
program.json: /buffers/0/rows: missing; expected an integer from 0 up to 1152921504606846976
program.json: /buffers/0/row: unknown key "row"; did you mean "rows"?
program.json: /buffers/1/category: "activations" is not allowed; expected "parameter", "gradient", "optimizer", "activation", "communication" or "input"; did you mean "activation"?
program.json: /templates/0/operations/0/cause: 3 is not allowed; expected "compute", "tp", "cp", "ep", "pp", "dp", "optimizer", "host" or "other")");
}

TEST(ProgramJson, WhatCheckFindsIsReportedToo) {
  const std::string text =
      replaced(to_json(tiny::two_stages()), "0F0 0SEND_F0 0F1 0SEND_F1", "0F0 0SEND_F0 0F1");
  EXPECT_EQ(faults(text),
            "program.json: /kinds/1/order: 1RECV_F1 (issue 4): receives \"hidden\" of layer 1, "
            "micro-batch 1 (10 x bool) from pp 0 to pp 1, but the other end has no such send");
}

TEST(ProgramJson, AnotherFormatIsRefused) {
  const std::string text = replaced(to_json(tiny::two_stages()), "headway-program-1", "trace");
  EXPECT_EQ(faults(text),
            "program.json: /format: \"trace\" is not known; expected \"headway-program-1\"");
}

TEST(ProgramJson, HoldsExpertsAndLatentAttention) {
  Job job = spread(small_llama(), 2, 1, 2);
  job.plan.sequence_parallel = true;
  job.plan.ep = 2;
  job.plan.edp = 2;
  job.plan.moe.capacity_factor = 1.25;
  job.plan.moe.loads = {{1.5, 0.5, 1.25, 0.75}};
  job.model.num_experts = 4;
  job.model.experts.per_token = 2;
  job.model.experts.intermediate_size = 16;
  job.model.experts.shared_intermediate_size = 8;
  job.model.experts.first_dense_layers = 1;
  job.model.latent_attention = LatentAttention{8, 6, 2, 2, 4};
  Program program = lower(job);
  for (Template& list : program.templates) {
    for (TemplateOperation& operation : list.operations) {
      if (auto* collective = std::get_if<Collective>(&operation.operation)) {
        if (collective->kind == CollectiveKind::kAllToAll) collective->network_elements = 7;
      }
    }
  }
  EXPECT_EQ(program.grid.folded().size(), 3U);
  EXPECT_EQ(program.expert_loads, (std::vector<std::vector<double>>{{1.25, 0.5, 1.25, 0.75}}));
  expect_equal(read(to_json(program)), program);
}

}  // namespace
}  // namespace headway
