#include "sim/formats/huggingface.hpp"

#include <gmock/gmock.h>

#include <filesystem>

#include "sim/core/file.hpp"

namespace headway {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// A file that lives as long as the test.
class ConfigFile {
 public:
  explicit ConfigFile(std::string_view content)
      : path_(testing::TempDir() + "headway_" +
              testing::UnitTest::GetInstance()->current_test_info()->name() + ".json") {
    write_file(path_, content);
  }
  ~ConfigFile() { std::filesystem::remove(path_); }
  ConfigFile(const ConfigFile&) = delete;
  ConfigFile& operator=(const ConfigFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

Transformer read_inline(const std::string& text) {
  Problems problems;
  Transformer model = read_transformer(JsonNode::parse_text(text, "inline"), false, problems).model;
  problems.throw_if_any();
  return model;
}

TEST(HuggingFace, ImportsLlamaAndListsWhatItIgnores) {
  const ConfigFile file(R"({
    "architectures": ["LlamaForCausalLM"], "attention_bias": false, "bos_token_id": 128000,
    "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
    "intermediate_size": 14336, "max_position_embeddings": 8192, "model_type": "llama",
    "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
    "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "tie_word_embeddings": false,
    "torch_dtype": "bfloat16", "vocab_size": 128256})");
  const HuggingFaceImport imported = import_huggingface(file.path());
  EXPECT_EQ(imported.model_json,
            "{\n"
            "  \"hidden_size\": 4096,\n"
            "  \"num_hidden_layers\": 32,\n"
            "  \"num_attention_heads\": 32,\n"
            "  \"num_key_value_heads\": 8,\n"
            "  \"head_dim\": 128,\n"
            "  \"intermediate_size\": 14336,\n"
            "  \"vocab_size\": 128256,\n"
            "  \"hidden_act\": \"silu\",\n"
            "  \"gated_mlp\": true,\n"
            "  \"tie_word_embeddings\": false,\n"
            "  \"position_embedding\": \"rope\",\n"
            "  \"norm\": \"rmsnorm\"\n"
            "}\n");
  EXPECT_THAT(imported.ignored, ElementsAre("architectures", "bos_token_id", "initializer_range",
                                            "rms_norm_eps", "rope_theta", "torch_dtype"));
  EXPECT_THAT(imported.left_out, IsEmpty());
}

TEST(HuggingFace, SaysWhatAnInlineModelCannotState) {
  EXPECT_THAT(inline_model(transformer_preset("qwen2-7b").value()).left_out,
              ElementsAre("biases of queries, keys and values"));
  const ConfigFile file(R"({"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12,
                            "n_positions": 1024, "vocab_size": 50257})");
  EXPECT_THAT(import_huggingface(file.path()).left_out,
              ElementsAre("rows of the position table (the job's sequence length is taken)"));
}

// Every preset, written inline and read back, is the same model where nothing is said to be left
// out.
TEST(HuggingFace, RoundsThePresetsThroughTheInlineForm) {
  for (const PresetName& preset : transformer_presets()) {
    Transformer model = transformer_preset(preset.name).value();
    const InlineModel written = inline_model(model);
    Transformer back = read_inline(written.json);
    back.name = model.name;
    back.max_positions = model.max_positions;
    if (!written.left_out.empty()) {
      EXPECT_THAT(written.left_out, ElementsAre(testing::AnyOf("biases of queries, keys and values",
                                                               "biases of the router")));
      model.qkv_bias = model.experts.router_bias = false;
    }
    EXPECT_EQ(back, model) << preset.name;
  }
}

TEST(HuggingFace, RoundsExpertsAndLatentAttentionThroughTheInlineForm) {
  const ConfigFile file(R"({
    "model_type": "deepseek_v3", "topk_method": "noaux_tc", "hidden_size": 7168,
    "num_hidden_layers": 61, "num_attention_heads": 128, "num_key_value_heads": 128,
    "intermediate_size": 18432, "vocab_size": 129280, "hidden_act": "silu",
    "n_routed_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 2048,
    "n_shared_experts": 1, "first_k_dense_replace": 3, "moe_layer_freq": 1, "n_group": 8,
    "topk_group": 4, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64, "v_head_dim": 128, "num_nextn_predict_layers": 1})");
  HuggingFaceImport imported = import_huggingface(file.path());
  EXPECT_THAT(imported.left_out, ElementsAre("biases of the router"));
  EXPECT_THAT(imported.ignored, IsEmpty());
  imported.model.name = "inline";
  imported.model.experts.router_bias = false;
  EXPECT_EQ(read_inline(imported.model_json), imported.model);
}

TEST(HuggingFace, ReportsEveryProblemOfTheFileWithItsPath) {
  const ConfigFile file(R"({"model_type": "llama", "hidden_size": -1, "num_hidden_layers": "x",
                            "num_attention_heads": 8, "vocab_size": 10, "intermediate_size": 4})");
  try {
    import_huggingface(file.path());
    FAIL() << "expected InvalidInput";
  } catch (const InvalidInput& error) {
    EXPECT_EQ(error.problems().size(), 2U);
    EXPECT_THAT(error.what(), HasSubstr(file.path() + ": /hidden_size: -1 is not allowed"));
    EXPECT_THAT(error.what(), HasSubstr("/num_hidden_layers: \"x\" is not allowed"));
  }
  EXPECT_THROW(import_huggingface("no/config.json"), InvalidInput);
}

}  // namespace
}  // namespace headway
