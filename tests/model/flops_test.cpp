// FLOPs of a training step in each reporter's convention, against the oracles of facts section 1.4.
#include <gtest/gtest.h>

#include "sim/model/transformer.hpp"

namespace headway {
namespace {

double step_flops(const std::string& preset, std::int64_t sequence_length, std::int64_t sequences,
                  FlopsConvention convention) {
  return model_flops(transformer_preset(preset).value(), sequence_length, sequences, convention)
      .count;
}

double per_token(const std::string& preset, std::int64_t sequence_length,
                 FlopsConvention convention) {
  return step_flops(preset, sequence_length, 1, convention) / static_cast<double>(sequence_length);
}

// Oracles are given to seven digits.
#define EXPECT_SEVEN_DIGITS(value, oracle) EXPECT_NEAR(value, oracle, 0.6e-6 * (oracle))

// F = 96 B s L h^2 (1 + s/(6h) + V/(16 L h)), eq. 3; B of the table.
TEST(ModelFlops, OfTheSc21TableAreThePublishedOnes) {
  struct Row {
    const char* preset;
    std::int64_t batch;
    double flops;
  };
  const Row rows[] = {
      {"gpt3-1.7b", 512, 1.546683e16},  {"gpt3-3.6b", 512, 3.265550e16},
      {"gpt3-7.5b", 512, 6.718456e16},  {"gpt3-18b", 1024, 3.248397e17},
      {"gpt3-39b", 1536, 1.021226e18},  {"gpt3-76b", 1792, 2.302047e18},
      {"gpt3-145b", 2304, 5.641682e18}, {"gpt3-310b", 2160, 1.119401e19},
      {"gpt3-530b", 2520, 2.221594e19}, {"gpt3-1t", 3072, 5.139051e19},
  };
  for (const Row& row : rows) {
    EXPECT_SEVEN_DIGITS(step_flops(row.preset, 2048, row.batch, FlopsConvention::kSc21), row.flops)
        << row.preset;
  }
}

TEST(ModelFlops, OfGpt3DifferByConvention) {
  const auto of = [](FlopsConvention convention) {
    return step_flops("gpt3-175b", 2048, 1, convention);
  };
  EXPECT_SEVEN_DIGITS(of(FlopsConvention::kSc21), 2.936830e15);
  EXPECT_SEVEN_DIGITS(of(FlopsConvention::kKorthikanti), 2.204555e15);
  EXPECT_SEVEN_DIGITS(of(FlopsConvention::kHeadway), 2.204555e15);
  EXPECT_SEVEN_DIGITS(of(FlopsConvention::kMegatron), 2.174868e15);
  EXPECT_SEVEN_DIGITS(of(FlopsConvention::kPalm) / 2048, 1.076686e12);
  EXPECT_SEVEN_DIGITS(step_flops("gpt3-175b", 2048, 1536, FlopsConvention::kSc21), 4.510971e18);
  EXPECT_SEVEN_DIGITS(step_flops("gpt3-175b", 2048, 1536, FlopsConvention::kHeadway), 3.386197e18);
  EXPECT_SEVEN_DIGITS(step_flops("gpt3-175b", 2048, 1536, FlopsConvention::kMegatron), 3.340598e18);
}

// MFU = F / (GPUs x 312 TFLOP/s x s) of arXiv 2205.05198, table 5, as facts 1.4 computes it.
TEST(ModelFlops, GiveTheUtilisationOfKorthikantiTable5) {
  struct Row {
    const char* preset;
    std::int64_t batch;
    double gpus, seconds, mfu;
  };
  const Row rows[] = {{"gpt3-22b", 4, 8, 1.10, 0.4165},
                      {"gpt3-175b", 64, 64, 13.75, 0.5139},
                      {"gpt3-530b", 280, 280, 37.83, 0.5605},
                      {"gpt3-1t", 512, 512, 71.49, 0.5627}};
  for (const Row& row : rows) {
    const double flops = step_flops(row.preset, 2048, row.batch, FlopsConvention::kHeadway);
    EXPECT_NEAR(flops / (row.gpus * 312e12 * row.seconds), row.mfu, 0.5e-4) << row.preset;
  }
}

// Facts 1.4, "Per-token training FLOPs": Megatron | torchtitan.
TEST(ModelFlops, PerTokenAreTheOnesOfMegatronAndTorchtitan) {
  struct Row {
    const char* preset;
    std::int64_t sequence_length;
    double megatron, torchtitan, six_n;
  };
  const Row rows[] = {
      {"llama2-7b", 4096, 4.286369e10, 4.608651e10, 4.043049e10},
      {"llama3-8b", 8192, 5.147040e10, 5.791445e10, 4.818157e10},
      {"llama3-70b", 8192, 4.492225e11, 4.814427e11, 4.233222e11},
      {"llama3-405b", 8192, 2.523956e12, 2.625449e12, 2.435120e12},
  };
  for (const Row& row : rows) {
    const std::int64_t s = row.sequence_length;
    EXPECT_SEVEN_DIGITS(per_token(row.preset, s, FlopsConvention::kMegatron), row.megatron);
    EXPECT_SEVEN_DIGITS(per_token(row.preset, s, FlopsConvention::kTorchtitan), row.torchtitan);
    const ParameterCount count = count_parameters(transformer_preset(row.preset).value(), s);
    EXPECT_SEVEN_DIGITS(6 * static_cast<double>(count.total), row.six_n);
    // PaLM: 6 N and 12 L H Q T on top; where heads make up the hidden size, llm-foundry's is the
    // same.
    EXPECT_DOUBLE_EQ(per_token(row.preset, s, FlopsConvention::kPalm),
                     per_token(row.preset, s, FlopsConvention::kFoundry));
  }
}

Transformer read(const char* text) {
  Problems problems;
  TransformerReading reading =
      read_transformer(JsonNode::parse_text(text, "model.json"), false, problems);
  problems.throw_if_any();
  return reading.model;
}

TEST(ModelFlops, OfMixtralCountTheActiveExperts) {
  const Transformer mixtral = read(R"({
      "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
      "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 32000,
      "hidden_act": "silu", "num_local_experts": 8, "num_experts_per_tok": 2})");
  EXPECT_SEVEN_DIGITS(model_flops(mixtral, 4096, 1, FlopsConvention::kMegatron).count / 4096,
                      7.970646e10);
}

TEST(ModelFlops, OfDeepSeekV3CountLatentAttentionAndPrediction) {
  Transformer model = read(R"({
      "hidden_size": 7168, "num_hidden_layers": 61, "num_attention_heads": 128,
      "intermediate_size": 18432, "vocab_size": 129280, "hidden_act": "silu",
      "num_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 2048,
      "n_shared_experts": 1, "first_k_dense_replace": 3, "q_lora_rank": 1536,
      "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128})");
  EXPECT_SEVEN_DIGITS(model_flops(model, 4096, 1, FlopsConvention::kMegatron).count / 4096,
                      2.498121e11);
  model.num_nextn_predict_layers = 1;
  EXPECT_SEVEN_DIGITS(model_flops(model, 4096, 1, FlopsConvention::kMegatron).count / 4096,
                      2.599930e11);
}

// A window of the whole sequence changes nothing; a narrow one costs w (2 s - w) pairs, twice those
// that causal attention inside it has.
TEST(ModelFlops, OfAWindowAreTwiceItsCausalPairs) {
  Transformer model = transformer_preset("llama2-7b").value();
  const double whole = model_flops(model, 4096, 1).count;
  model.sliding_window = 4096;
  EXPECT_EQ(model_flops(model, 4096, 1).count, whole);
  model.sliding_window = 1024;
  const double pairs = 4096.0 * 4096.0 - 1024.0 * (2 * 4096.0 - 1024.0);
  EXPECT_DOUBLE_EQ(whole - model_flops(model, 4096, 1).count, 3 * 32 * 4 * pairs * 4096);
}

TEST(FlopsConvention, IsFoundByItsName) {
  for (const std::string& word : flops_convention_names()) {
    EXPECT_EQ(name(flops_convention_named(word).value()), word);
  }
  EXPECT_EQ(flops_convention_named("megatron"), FlopsConvention::kMegatron);
  EXPECT_EQ(flops_convention_named("torchtitan"), FlopsConvention::kTorchtitan);
  EXPECT_EQ(flops_convention_named("calm"), std::nullopt);
}

}  // namespace
}  // namespace headway
