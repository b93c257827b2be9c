// Reading of models: inline, Hugging Face, presets; what is taken where a key is absent; bad input.
#include <gmock/gmock.h>

#include "sim/model/transformer.hpp"
#include "tests/support/folders.hpp"

namespace headway {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TransformerReading read(std::string_view text, bool foreign = false) {
  Problems problems;
  TransformerReading reading =
      read_transformer(JsonNode::parse_text(text, "model.json"), foreign, problems);
  problems.throw_if_any();
  return reading;
}

std::string refusal(std::string_view text, bool foreign = false) {
  try {
    read(text, foreign);
  } catch (const InvalidInput& error) {
    return error.what();
  }
  return "accepted";
}

// A good inline model with more keys, or with other values, spliced in.
std::string inline_model(const std::string& more) {
  return R"({"hidden_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 16,
             "vocab_size": 50000, "intermediate_size": 4096)" +
         more + "}";
}

TEST(TransformerReader, TakesGptDefaultsWithAPlainMlp) {
  const Transformer model = read(inline_model(R"(, "gated_mlp": false)")).model;
  EXPECT_EQ(model.name, "inline");
  EXPECT_EQ(model.norm, Norm::kLayerNorm);
  EXPECT_EQ(model.position_embedding, PositionEmbedding::kLearned);
  EXPECT_EQ(model.activation, Activation::kGelu);
  EXPECT_TRUE(model.tie_word_embeddings);
  EXPECT_TRUE(model.linear_bias);
  EXPECT_EQ(model.num_key_value_heads, 16);
  EXPECT_EQ(model.head_dim, 64);
  EXPECT_EQ(model.max_positions, 0);
  EXPECT_EQ(model.num_experts, 0);
}

TEST(TransformerReader, TakesLlamaDefaultsWithAGatedMlp) {
  const Transformer model = read(inline_model(R"(, "gated_mlp": true)")).model;
  EXPECT_EQ(model.norm, Norm::kRmsNorm);
  EXPECT_EQ(model.position_embedding, PositionEmbedding::kRope);
  EXPECT_EQ(model.activation, Activation::kSilu);
  EXPECT_FALSE(model.tie_word_embeddings);
  EXPECT_FALSE(model.linear_bias);
}

TEST(TransformerReader, DecidesByTheActivationWhetherTheMlpIsGated) {
  EXPECT_FALSE(read(inline_model(R"(, "hidden_act": "gelu")")).model.gated_mlp);
  EXPECT_TRUE(read(inline_model(R"(, "hidden_act": "silu")")).model.gated_mlp);
  EXPECT_TRUE(read(inline_model(R"(, "hidden_act": "geglu")")).model.gated_mlp);
  const Transformer both =
      read(inline_model(R"(, "hidden_act": "relu2", "gated_mlp": true)")).model;
  EXPECT_TRUE(both.gated_mlp);
  EXPECT_EQ(both.activation, Activation::kSquaredRelu);
}

TEST(TransformerReader, PrefersWhatIsGivenToItsDefaults) {
  const Transformer model =
      read(inline_model(R"(, "gated_mlp": false, "norm": "rmsnorm", "position_embedding": "alibi",
                          "tie_word_embeddings": false, "num_key_value_heads": 4, "head_dim": 128,
                          "sliding_window": 512)"))
          .model;
  EXPECT_EQ(model.norm, Norm::kRmsNorm);
  EXPECT_EQ(model.position_embedding, PositionEmbedding::kAlibi);
  EXPECT_FALSE(model.tie_word_embeddings);
  EXPECT_FALSE(model.linear_bias);
  EXPECT_EQ(model.query_size(), 2048);
  EXPECT_EQ(model.key_value_size(), 512);
  EXPECT_EQ(model.sliding_window, 512);
}

TEST(TransformerReader, TakesFourTimesTheHiddenSizeForAPlainMlpOnly) {
  const char* plain = R"({"hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2,
                          "vocab_size": 100, "hidden_act": "gelu"})";
  EXPECT_EQ(read(plain).model.intermediate_size, 256);
  EXPECT_THAT(refusal(R"({"hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2,
                          "vocab_size": 100, "hidden_act": "silu"})"),
              HasSubstr("/intermediate_size: missing"));
}

TEST(TransformerReader, ReadsExpertsUnderEachOfTheirNames) {
  for (const char* key : {"num_experts", "num_local_experts", "n_routed_experts"}) {
    const Transformer model =
        read(inline_model(R"(, "hidden_act": "silu", "num_experts_per_tok": 2, "n_group": 4,
                            "topk_group": 2, "first_k_dense_replace": 1, "moe_layer_freq": 2, ")" +
                          std::string(key) + "\": 8"))
            .model;
    EXPECT_EQ(model.num_experts, 8);
    EXPECT_EQ(model.experts.per_token, 2);
    EXPECT_EQ(model.experts.intermediate_size, 4096);
    EXPECT_EQ(model.experts.shared_intermediate_size, 0);
    EXPECT_EQ(model.experts.groups, 4);
    EXPECT_EQ(model.experts.groups_per_token, 2);
    // Of the layers 0 to 3 only 2 is past the first and even.
    EXPECT_EQ(model.expert_layer_count(), 1);
    EXPECT_TRUE(model.is_expert_layer(2));
  }
}

TEST(TransformerReader, AddsUpTheSharedExperts) {
  const auto shared = [](const std::string& keys) {
    return read(inline_model(R"(, "hidden_act": "silu", "num_experts": 8, "num_experts_per_tok": 2,
                                "moe_intermediate_size": 512, )" +
                             keys))
        .model.experts.shared_intermediate_size;
  };
  EXPECT_EQ(shared(R"("n_shared_experts": 2)"), 1024);
  EXPECT_EQ(shared(R"("shared_expert_intermediate_size": 3072)"), 3072);
  EXPECT_EQ(shared(R"("n_shared_experts": 1, "shared_expert_intermediate_size": 3072)"), 3072);
  EXPECT_EQ(shared(R"("n_shared_experts": 0)"), 0);
}

TEST(TransformerReader, ReadsLatentAttention) {
  const Transformer model =
      read(inline_model(R"(, "hidden_act": "silu", "kv_lora_rank": 512, "qk_nope_head_dim": 128,
                          "qk_rope_head_dim": 64, "v_head_dim": 128, "head_dim": 7)"))
          .model;
  ASSERT_TRUE(model.latent_attention.has_value());
  EXPECT_EQ(model.latent_attention->q_lora_rank, 0);
  EXPECT_EQ(model.head_dim, 192);
}

TEST(TransformerReader, RefusesUnknownKeysInlineAndNamesTheNearest) {
  EXPECT_EQ(refusal(inline_model(R"(, "hidden_act": "gelu", "vocab_sizes": 1)")),
            "model.json: /vocab_sizes: unknown key \"vocab_sizes\"; did you mean \"vocab_size\"?");
  EXPECT_THAT(refusal(inline_model(R"(, "hidden_act": "gelu", "n_embd": 64)")),
              HasSubstr("/n_embd: unknown key"));
  EXPECT_THAT(refusal(inline_model(R"(, "hidden_act": "gelu", "model_type": "gpt2")")),
              HasSubstr("/model_type: unknown key"));
}

TEST(TransformerReader, ReportsEverythingThatIsMissingAtOnce) {
  EXPECT_EQ(refusal("{}"),
            "model.json: /hidden_size: missing; expected an integer from 1 up to 1048576\n"
            "model.json: /num_hidden_layers: missing; expected an integer from 1 up to 16384\n"
            "model.json: /num_attention_heads: missing; expected an integer from 1 up to 65536\n"
            "model.json: /vocab_size: missing; expected an integer from 1 up to 16777216\n"
            "model.json: /hidden_act: missing; expected an activation such as \"gelu\" or "
            "\"silu\", or gated_mlp\n"
            "model.json: /intermediate_size: missing; expected the width of the MLP (a gated one "
            "has no usual width)");
}

TEST(TransformerReader, RefusesSizesOutOfRange) {
  for (const char* value : {"0", "-1", "2147483648", "1.5", "8.0", "\"64\""}) {
    const std::string text = R"({"hidden_size": )" + std::string(value) +
                             R"(, "num_hidden_layers": 1, "num_attention_heads": 1,
                                 "vocab_size": 100, "hidden_act": "gelu"})";
    EXPECT_EQ(refusal(text), "model.json: /hidden_size: " + std::string(value) +
                                 " is not allowed; expected an integer from 1 up to 1048576");
  }
}

TEST(TransformerReader, RefusesSizesThatDoNotDivide) {
  EXPECT_EQ(refusal(inline_model(R"(, "hidden_act": "gelu", "num_key_value_heads": 5)")),
            "model.json: /num_key_value_heads: 5 does not divide the 16 attention heads");
  EXPECT_EQ(refusal(R"({"hidden_size": 100, "num_hidden_layers": 1, "num_attention_heads": 3,
                        "vocab_size": 100, "hidden_act": "gelu"})"),
            "model.json: /num_attention_heads: 3 does not divide hidden_size 100; state head_dim");
  // Beside another problem too.
  EXPECT_THAT(refusal(R"({"hidden_size": 100, "num_hidden_layers": 1, "num_attention_heads": 3,
                          "vocab_size": 0, "hidden_act": "gelu"})"),
              HasSubstr("3 does not divide hidden_size 100"));
  const std::string experts = R"(, "hidden_act": "silu", "num_experts": 8)";
  EXPECT_EQ(refusal(inline_model(experts)),
            "model.json: /num_experts_per_tok: missing; a model with experts needs it");
  EXPECT_THAT(refusal(inline_model(experts + R"(, "num_experts_per_tok": 9)")),
              HasSubstr("9 is not allowed; expected an integer from 1 up to the 8 experts"));
  EXPECT_THAT(refusal(inline_model(experts + R"(, "num_experts_per_tok": 2, "n_group": 3)")),
              HasSubstr("/n_group: 3 does not divide the 8 experts"));
  EXPECT_THAT(refusal(inline_model(experts +
                                   R"(, "num_experts_per_tok": 2, "n_group": 2, "topk_group": 4)")),
              HasSubstr("/topk_group: 4 is more than the 2 groups"));
  EXPECT_THAT(
      refusal(inline_model(experts + R"(, "num_experts_per_tok": 2, "n_routed_experts": 4)")),
      HasSubstr("/n_routed_experts: 4 contradicts num_experts 8"));
  EXPECT_THAT(refusal(inline_model(R"(, "hidden_act": "silu", "q_lora_rank": 16)")),
              HasSubstr("/kv_lora_rank: missing; latent attention needs it"));
}

TEST(TransformerReader, RefusesAModelWhoseCountsWouldOverflow) {
  EXPECT_THAT(refusal(R"({"hidden_size": 1048576, "num_hidden_layers": 16384,
                          "num_attention_heads": 1, "vocab_size": 100, "hidden_act": "silu",
                          "intermediate_size": 4194304})"),
              HasSubstr("over 1e17 parameters"));
}

TEST(TransformerReader, RefusesMisspeltWords) {
  EXPECT_THAT(refusal(inline_model(R"(, "hidden_act": "sillu")")),
              HasSubstr("did you mean \"silu\"?"));
  EXPECT_THAT(refusal(inline_model(R"(, "hidden_act": "gelu", "norm": "rms")")),
              HasSubstr("expected \"rmsnorm\" or \"layernorm\""));
  EXPECT_THAT(refusal("[]"), HasSubstr("[] is not an object"));
}

// A file as Hugging Face holds it (Qwen2-7B, some keys of its own).
TEST(TransformerReader, ListsTheKeysOfAHuggingFaceFileThatItIgnores) {
  const TransformerReading reading = read(
      R"({"architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "hidden_act": "silu",
          "hidden_size": 3584, "intermediate_size": 18944, "max_position_embeddings": 131072,
          "model_type": "qwen2", "num_attention_heads": 28, "num_hidden_layers": 28,
          "num_key_value_heads": 4, "rms_norm_eps": 1e-06, "sliding_window": 131072,
          "tie_word_embeddings": false, "use_sliding_window": false, "vocab_size": 152064})",
      true);
  EXPECT_THAT(reading.ignored, ElementsAre("architectures", "attention_dropout", "rms_norm_eps"));
  Transformer preset = transformer_preset("qwen2-7b").value();
  preset.name = "model.json";
  EXPECT_EQ(reading.model, preset);
  EXPECT_TRUE(reading.model.qkv_bias);
  EXPECT_FALSE(reading.model.sliding_window.has_value());
}

TEST(TransformerReader, ReadsTheKeysOfGpt2) {
  const TransformerReading reading =
      read(R"({"model_type": "gpt2", "activation_function": "gelu_new", "n_embd": 1600,
               "n_layer": 48, "n_head": 25, "n_positions": 1024, "n_inner": null, "n_ctx": 1024,
               "vocab_size": 50257})",
           true);
  EXPECT_THAT(reading.ignored, ElementsAre("n_ctx"));
  EXPECT_EQ(reading.model.hidden_size, 1600);
  EXPECT_EQ(reading.model.num_hidden_layers, 48);
  EXPECT_EQ(reading.model.num_attention_heads, 25);
  EXPECT_EQ(reading.model.intermediate_size, 6400);
  EXPECT_EQ(reading.model.max_positions, 1024);
  EXPECT_EQ(reading.model.position_embedding, PositionEmbedding::kLearned);
  EXPECT_TRUE(reading.model.tie_word_embeddings);
  EXPECT_TRUE(reading.model.linear_bias);
}

TEST(TransformerReader, ReadsWhatAnUnknownFamilyStates) {
  const TransformerReading reading =
      read(R"({"model_type": "something", "hidden_act": "gelu", "hidden_size": 64,
               "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100,
               "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": true})",
           true);
  EXPECT_EQ(reading.model.norm, Norm::kRmsNorm);
  EXPECT_EQ(reading.model.position_embedding, PositionEmbedding::kRope);
  EXPECT_THAT(reading.ignored, ElementsAre("model_type"));
}

TEST(TransformerPresets, AreAllReadableAndSayWhereTheyComeFrom) {
  const std::vector<PresetName> presets = transformer_presets();
  EXPECT_GE(presets.size(), 27U);
  for (const PresetName& preset : presets) {
    EXPECT_FALSE(preset.source.empty()) << preset.name;
    const auto model = transformer_preset(preset.name);
    ASSERT_TRUE(model.has_value()) << preset.name;
    EXPECT_EQ(model->name, preset.name);
  }
  EXPECT_TRUE(std::is_sorted(presets.begin(), presets.end(),
                             [](const auto& a, const auto& b) { return a.name < b.name; }));
  EXPECT_EQ(transformer_preset("gpt4"), std::nullopt);
  EXPECT_EQ(transformer_preset("../../plan/job"), std::nullopt);
}

// A preset holds no key that its reader would pass over in silence.
TEST(TransformerPresets, HaveNoKeyWithoutMeaning) {
  for (const PresetName& preset : transformer_presets()) {
    const std::string path = source_dir() + "/sim/model/presets/" + preset.name + ".json";
    Problems problems;
    EXPECT_THAT(read_transformer(JsonNode::parse_file(path), true, problems).ignored,
                ElementsAre("source"))
        << preset.name;
    EXPECT_TRUE(problems.empty());
  }
}

}  // namespace
}  // namespace headway
