// Parameter counts against the oracles of facts section 1, to the last parameter.
#include <gtest/gtest.h>

#include "sim/model/transformer.hpp"

namespace headway {
namespace {

std::int64_t total(const std::string& preset, std::int64_t sequence_length) {
  return count_parameters(transformer_preset(preset).value(), sequence_length).total;
}

Transformer read(const char* text, bool foreign = false) {
  Problems problems;
  TransformerReading reading =
      read_transformer(JsonNode::parse_text(text, "model.json"), foreign, problems);
  problems.throw_if_any();
  return reading.model;
}

// P = 12 L h^2 (1 + 13/(12 h) + (V + s)/(12 L h)), SC21 eq. 2, and 2 h for the final norm, which
// the equation leaves out (facts 1.4: 174,615,822,336 and 24,576 for GPT-3).
TEST(Parameters, OfGptFollowSc21Equation2AndAFinalNorm) {
  struct Row {
    const char* preset;
    std::int64_t layers, hidden;
  };
  const Row rows[] = {
      {"gpt3-1.7b", 24, 2304},  {"gpt3-3.6b", 30, 3072},   {"gpt3-7.5b", 36, 4096},
      {"gpt3-18b", 40, 6144},   {"gpt3-22b", 48, 6144},    {"gpt3-39b", 48, 8192},
      {"gpt3-76b", 60, 10240},  {"gpt3-145b", 80, 12288},  {"gpt3-175b", 96, 12288},
      {"gpt3-310b", 96, 16384}, {"gpt3-530b", 105, 20480}, {"gpt3-1t", 128, 25600},
  };
  for (const Row& row : rows) {
    const std::int64_t h = row.hidden;
    const std::int64_t equation =
        12 * row.layers * h * h + 13 * row.layers * h + (51200 + 2048) * h;
    EXPECT_EQ(total(row.preset, 2048), equation + 2 * h) << row.preset;
  }
  EXPECT_EQ(total("gpt3-175b", 2048), 174615822336 + 24576);
}

// Facts 1.4, "SC21 table rows": the counts in billions, as published to four decimals.
TEST(Parameters, OfTheSc21TableAreThePublishedOnes) {
  const std::pair<const char*, double> rows[] = {
      {"gpt3-1.7b", 1.6522},   {"gpt3-3.6b", 3.5622},   {"gpt3-7.5b", 7.4678},
      {"gpt3-18b", 18.4497},   {"gpt3-39b", 39.0960},   {"gpt3-76b", 76.0507},
      {"gpt3-145b", 145.6222}, {"gpt3-310b", 310.1305}, {"gpt3-530b", 529.6008},
      {"gpt3-1t", 1008.0387},
  };
  for (const auto& [preset, billions] : rows) {
    // The final norm is 2 h of at most 51,200 parameters.
    EXPECT_NEAR(static_cast<double>(total(preset, 2048)) / 1e9, billions, 1.1e-4) << preset;
  }
}

TEST(Parameters, OfLlamaAreThePublishedOnes) {
  EXPECT_EQ(total("llama2-7b", 4096), 6738415616);
  EXPECT_EQ(total("llama2-70b", 4096), 68976648192);
  EXPECT_EQ(total("llama3-8b", 8192), 8030261248);
  EXPECT_EQ(total("llama3-70b", 8192), 70553706496);
  EXPECT_EQ(total("llama3-405b", 8192), 405853388800);
}

// h d a + 2 h d g + d a h + 3 h f + 2 h per layer, h, and 2 V h (facts 1.3), by hand for 32 layers
// of h 4096, g 8 of d 128, f 14336, V 32000: 32 x 218,112,000 + 4096 + 262,144,000.
TEST(Parameters, OfMistralFollowTheFormula) {
  EXPECT_EQ(total("mistral-7b", 4096), std::int64_t{32} * 218112000 + 4096 + 262144000);
}

// Qwen2 adds biases to queries, keys and values: h + 2 g d per layer.
TEST(Parameters, OfQwenHaveBiasesOfQueriesKeysAndValues) {
  // 28 layers: 3584 (2 x 3584 + 2 x 512) + 3 x 3584 x 18944 + 2 x 3584 + (3584 + 1024)
  const std::int64_t layer =
      std::int64_t{3584} * 8192 + std::int64_t{3} * 3584 * 18944 + 7168 + 4608;
  EXPECT_EQ(total("qwen2-7b", 4096), 28 * layer + 3584 + std::int64_t{2} * 152064 * 3584);
  EXPECT_EQ(total("qwen2.5-7b", 4096), total("qwen2-7b", 4096));
  // Tied: one table. 24 layers of h 896, g 2 of d 64, f 4864.
  const std::int64_t small = 896 * (2 * 896 + 2 * 128) + 3 * 896 * 4864 + 2 * 896 + 896 + 256;
  EXPECT_EQ(total("qwen2.5-0.5b", 4096), 24 * small + 896 + 151936 * 896);
}

TEST(Parameters, AddUpFromTheirParts) {
  for (const PresetName& preset : transformer_presets()) {
    const Transformer model = transformer_preset(preset.name).value();
    const ParameterCount count = count_parameters(model, 2048);
    const std::int64_t experts = model.expert_layer_count();
    EXPECT_EQ(count.total, count.embedding + count.position + count.final_norm + count.head +
                               (model.num_hidden_layers - experts) * count.layer +
                               experts * count.expert_layer)
        << preset.name;
    EXPECT_EQ(count.active == count.total, experts == 0) << preset.name;
    EXPECT_EQ(count.head, model.tie_word_embeddings ? 0 : count.embedding) << preset.name;
  }
}

TEST(Parameters, OfPositionsFollowTheSequenceWhereTheModelGivesNoTable) {
  EXPECT_EQ(total("gpt3-175b", 4096) - total("gpt3-175b", 2048), std::int64_t{2048} * 12288);
  const Transformer gpt2 = read(
      R"({"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024,
          "vocab_size": 50257})",
      true);
  // GPT-2 small: 12 x 768 x (12 x 768 + 13) + (50257 + 1024) x 768 + 2 x 768 = 124,439,808.
  EXPECT_EQ(count_parameters(gpt2, 512).total, 124439808);
  EXPECT_EQ(count_parameters(gpt2, 1024).total, 124439808);
}

constexpr const char* kMixtral = R"({
  "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
  "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 32000, "hidden_act": "silu",
  "num_local_experts": 8, "num_experts_per_tok": 2})";

TEST(Parameters, OfMixtralCountEveryExpertAndTheActiveOnes) {
  const ParameterCount count = count_parameters(read(kMixtral), 4096);
  EXPECT_EQ(count.total, 46702792704);
  EXPECT_EQ(count.active, 12879925248);
}

// Total and active parameters as their publishers round them (the config.json beside each preset's
// source): in billions, to the digit that stands there.
TEST(Parameters, OfMixturesOfExpertsAreThePublishedOnes) {
  struct Row {
    const char* preset;
    std::int64_t total, active;
    double total_published, active_published, digit;
  };
  const Row rows[] = {
      {"mixtral-8x7b", 46702792704, 12879925248, 46.7, 12.9, 0.1},
      {"mixtral-8x22b", 140620634112, 39152031744, 141, 39, 1},
      {"deepseek-moe-16b", 16375728128, 2828650496, 16.4, 2.8, 0.1},
      {"deepseek-v2", 235741434880, 21375800320, 236, 21, 1},
      {"qwen3-235b-a22b", 235093610496, 22190739456, 235, 22, 1},
  };
  for (const Row& row : rows) {
    const ParameterCount count = count_parameters(transformer_preset(row.preset).value(), 4096);
    EXPECT_EQ(count.total, row.total) << row.preset;
    EXPECT_EQ(count.active, row.active) << row.preset;
    EXPECT_NEAR(static_cast<double>(count.total) / 1e9, row.total_published, row.digit / 2)
        << row.preset;
    EXPECT_NEAR(static_cast<double>(count.active) / 1e9, row.active_published, row.digit / 2)
        << row.preset;
  }
}

// Entered as decoder-only stacks of one kind of MLP: near the published 600 G, 1,571 G and 1.2 T.
TEST(Parameters, OfEarlierMixturesOfExpertsAreThoseOfTheirStacks) {
  const auto count = [](const char* preset) {
    return count_parameters(transformer_preset(preset).value(), 1024);
  };
  EXPECT_EQ(count("gshard-600b").total, 619182629888);
  EXPECT_EQ(count("switch-c").total, 1571053346720);
  EXPECT_EQ(count("glam-64b-64e").total, 1153166221312);
  EXPECT_EQ(count("glam-64b-64e").active, 88014331904);
  EXPECT_NEAR(static_cast<double>(count("gshard-600b").total), 600e9, 0.04 * 600e9);
  EXPECT_NEAR(static_cast<double>(count("switch-c").total), 1571e9, 0.5e9);
  EXPECT_NEAR(static_cast<double>(count("glam-64b-64e").total), 1.2e12, 0.05e12);
}

constexpr const char* kDeepSeekV3 = R"({
  "model_type": "deepseek_v3", "topk_method": "noaux_tc",
  "hidden_size": 7168, "num_hidden_layers": 61, "num_attention_heads": 128,
  "num_key_value_heads": 128, "intermediate_size": 18432, "vocab_size": 129280,
  "hidden_act": "silu", "tie_word_embeddings": false,
  "n_routed_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 2048,
  "n_shared_experts": 1, "first_k_dense_replace": 3, "moe_layer_freq": 1, "n_group": 8,
  "topk_group": 4, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
  "qk_rope_head_dim": 64, "v_head_dim": 128, "num_nextn_predict_layers": 1})";

TEST(Parameters, OfDeepSeekV3CountLatentAttentionAndSharedExperts) {
  const Transformer model = read(kDeepSeekV3, true);
  EXPECT_EQ(model.expert_layer_count(), 58);
  const ParameterCount count = count_parameters(model, 4096);
  EXPECT_EQ(count.total, 671026419200);
  EXPECT_EQ(count.active, 37552297472);
  EXPECT_EQ(count.active - count.embedding, 36625618432);
  EXPECT_EQ(count_parameters(transformer_preset("deepseek-v3").value(), 4096).total, count.total);
}

TEST(Parameters, OfDeepSeekV3sPredictionModuleAreWhatItsWeightsHold) {
  // README_WEIGHTS.md: 11.5 B unique parameters, without the embedding and the head that it shares,
  // 0.9 B each; with their copies the files hold 685 B. The layer alone is 11.507 B, the projection
  // of two hidden states 2 x 7168^2, and three norms.
  const ParameterCount count = count_parameters(read(kDeepSeekV3, true), 4096);
  EXPECT_EQ(count.prediction, 11507286272 + 2 * 7168 * 7168 + 3 * 7168);
  EXPECT_NEAR(static_cast<double>(count.prediction) / 1e9, 11.5, 0.12);
  const std::int64_t files = count.total + count.prediction + count.embedding + count.head;
  EXPECT_NEAR(static_cast<double>(files) / 1e9, 685, 0.6);
}

}  // namespace
}  // namespace headway
