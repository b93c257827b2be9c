// Keys that name parts of a layer: what is read of them, what has no effect, what does not go
// together.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/plan/job_text.hpp"

namespace headway {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

// A small mixture of experts with latent attention, `more` of the model, and keys of job and plan.
std::string expert_job(const std::string& more, const std::string& software,
                       const std::string& plan) {
  return R"({"model": {"hidden_size": 512, "num_attention_heads": 8, "num_hidden_layers": 4,
      "intermediate_size": 1024, "vocab_size": 4096, "hidden_act": "silu", "gated_mlp": true,
      "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 128)" +
         more + R"(}, "cluster": {"topology": "dgx-a100", "gpus": 8}, "precision": "bf16",
      "sequence_length": 1024, "global_batch": 32, "software": {"framework": "megatron-core")" +
         software + R"(}, "plan": {"ep": 4, "tp": 2, "sequence_parallel": true)" + plan + "}}";
}

TEST(RecomputeModules, AreReadByTheirMegatronNames) {
  const Said said = read_text(expert_job(
      R"(, "kv_lora_rank": 64, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 32,
         "n_shared_experts": 1)",
      "",
      R"(, "recompute": "selective", "recompute_modules":
          ["core_attn", "layernorm", "mlp", "mla_up_proj", "moe_act", "moe", "shared_experts"])"));
  ASSERT_THAT(said.lines, ElementsAre());
  EXPECT_THAT(names(said.reading.job->plan.recomputed_parts),
              ElementsAre("core_attn", "layernorm", "mlp", "mla_up_proj", "moe_act",
                          "shared_experts", "moe"));
}

TEST(RecomputeModules, ThatTheModelHasNotHaveNoEffect) {
  const Said said = read_text(expert_job(
      "", "", R"(, "recompute": "full", "recompute_keep": ["mla_up_proj", "shared_experts"])"));
  ASSERT_TRUE(said.reading.job.has_value());
  EXPECT_EQ(said.reading.job->plan.kept_parts, LayerParts{});
  EXPECT_THAT(said.reading.job->notes,
              testing::IsSupersetOf({"plan.recompute_keep mla_up_proj has no effect: the model has "
                                     "no latent attention",
                                     "plan.recompute_keep shared_experts has no effect: the model "
                                     "has no shared experts"}));
  const Said dense =
      read_text(kGpt3Job, {{"plan.recompute_modules", R"(["moe_act", "moe"])", "-m"}});
  ASSERT_TRUE(dense.reading.job.has_value());
  EXPECT_EQ(dense.reading.job->plan.recomputed_parts, LayerParts{});
}

TEST(RecomputeModules, OfSharedExpertsDoNotGoWithTheirOverlap) {
  EXPECT_THAT(
      read_text(expert_job(R"(, "n_shared_experts": 1)", "",
                           R"(, "recompute": "selective", "recompute_modules": ["shared_experts"],
                               "moe": {"shared_overlap": true})"))
          .lines,
      ElementsAre("job.json: /plan/recompute_modules: shared_experts do not go with "
                  "plan.moe.shared_overlap: what is computed beside the exchange cannot be run "
                  "again alone; expected one of the two"));
}

TEST(SlidingWindow, DoesNotGoWithARing) {
  const auto says = [](const char* kind) {
    return read_text(expert_job(R"(, "sliding_window": 128)", "",
                                std::string(R"(, "cp": 2, "cp_kind": ")") + kind + "\""))
        .lines;
  };
  EXPECT_THAT(
      says("ring"),
      ElementsAre("job.json: /plan/cp_kind: ring does not go with the model's window of 128 "
                  "tokens; expected ulysses or allgather"));
  EXPECT_THAT(says("allgather"), ElementsAre());
  EXPECT_THAT(says("ulysses"), ElementsAre());
}

TEST(GraphScope, IsReadByItsMegatronNames) {
  const auto scope = [](const std::string& words, const std::string& plan = "") {
    return read_text(
        expert_job("", R"(, "launch": "cuda_graph", "cuda_graph_scope": [)" + words + "]", plan));
  };
  const Said parts = scope(R"("attn", "moe_router", "moe_preprocess")");
  ASSERT_THAT(parts.lines, ElementsAre());
  EXPECT_THAT(names(parts.reading.job->software.graph_scope),
              ElementsAre("attn", "moe_router", "moe_preprocess"));
  EXPECT_THAT(scope(R"("moe_preprocess")").lines,
              ElementsAre("job.json: /software/cuda_graph_scope: moe_preprocess is captured with "
                          "what stands before it; expected moe_router beside it"));
  EXPECT_THAT(scope(R"("layer")").lines,
              ElementsAre(HasSubstr("cuda_graph_scope layer: experts of kind megatron take as many "
                                    "tokens as come; expected attn, moe_router")));
  EXPECT_THAT(scope(R"("layer")", R"(, "moe": {"kind": "deepspeed"})").lines, ElementsAre());
  EXPECT_THAT(scope(R"("moe", "moe_router")", R"(, "moe": {"kind": "deepspeed"})").lines,
              ElementsAre("job.json: /software/cuda_graph_scope: moe and moe_router: the one holds "
                          "the other; expected one of the two"));
  // Nothing that the model has: every kernel is launched alone.
  const Said mamba = scope(R"("mamba")");
  EXPECT_EQ(mamba.reading.job->software.launch, Launch::kEager);
  EXPECT_THAT(mamba.reading.job->notes, Contains(HasSubstr("mamba has no effect")));
}

}  // namespace
}  // namespace headway
