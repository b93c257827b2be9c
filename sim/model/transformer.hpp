// A decoder-only transformer: the shape of a Hugging Face config.json. Presets are such files in
// sim/model/presets. Counts are exact integers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/core/json_reader.hpp"
#include "sim/core/units.hpp"

namespace headway {

enum class Activation : std::uint8_t { kGelu, kSilu, kRelu, kSquaredRelu };
enum class PositionEmbedding : std::uint8_t { kRope, kLearned, kAlibi, kNoPosition };
std::string_view name(Activation activation);       // "gelu", as a config.json spells it
std::string_view name(PositionEmbedding position);  // "rope"
enum class Norm : std::uint8_t { kRmsNorm, kLayerNorm };

// Multi-head latent attention (DeepSeek-V2): queries, keys and values pass through a narrow
// projection.
struct LatentAttention {
  std::int64_t q_lora_rank = 0;  // 0: queries are not compressed
  std::int64_t kv_lora_rank = 0;
  std::int64_t qk_nope_head_dim = 0;
  std::int64_t qk_rope_head_dim = 0;
  std::int64_t v_head_dim = 0;

  std::int64_t qk_head_dim() const { return qk_nope_head_dim + qk_rope_head_dim; }
  friend bool operator==(const LatentAttention&, const LatentAttention&) = default;
};

// The expert layers of a mixture of experts; meaningful where num_experts > 0.
struct ExpertLayers {
  std::int64_t per_token = 0;                     // top-k
  std::int64_t intermediate_size = 0;             // of one routed expert
  std::int64_t shared_intermediate_size = 0;      // of all shared experts together
  std::int64_t first_dense_layers = 0;            // the first so many layers have a dense MLP
  std::int64_t frequency = 1;                     // of the others, those whose index it divides
  std::int64_t groups = 1, groups_per_token = 1;  // node-limited routing
  bool router_bias = false;  // one per expert, moved by the balance (DeepSeek-V3's "noaux_tc")
  bool shared_gate = false;  // the shared experts' output has a gate [h -> 1] (Qwen2-MoE)
  friend bool operator==(const ExpertLayers&, const ExpertLayers&) = default;
};

struct Transformer {
  std::string name;  // preset or file, "inline" otherwise
  std::int64_t hidden_size = 0;
  std::int64_t num_hidden_layers = 0;
  std::int64_t num_attention_heads = 0;
  std::int64_t num_key_value_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t vocab_size = 0;
  std::int64_t max_positions = 0;  // rows of a learned position table; 0: the job's sequence length
  Activation activation = Activation::kSilu;
  bool gated_mlp = true;  // three MLP matrices instead of two
  bool tie_word_embeddings = false;
  bool linear_bias = false;  // attention and MLP matrices have biases
  bool qkv_bias = false;     // only the qkv projection has one (Qwen2)
  PositionEmbedding position_embedding = PositionEmbedding::kRope;
  Norm norm = Norm::kRmsNorm;
  std::optional<std::int64_t> sliding_window;
  std::int64_t num_experts = 0;  // 0: dense. Experts are read, and refused until they are built.
  ExpertLayers experts;
  std::optional<LatentAttention> latent_attention;  // head_dim is then that of queries and keys
  std::int64_t num_nextn_predict_layers = 0;        // multi-token prediction

  // Layers behind the last are those of multi-token prediction: as the last one.
  bool is_expert_layer(std::int64_t layer) const;
  std::int64_t expert_layer_count() const;

  std::int64_t query_size() const { return num_attention_heads * head_dim; }
  std::int64_t key_value_size() const { return num_key_value_heads * head_dim; }
  friend bool operator==(const Transformer&, const Transformer&) = default;
};

// Parameters, to the last one, without multi-token prediction. `sequence_length` sizes a learned
// position table whose model gives none.
struct ParameterCount {
  std::int64_t embedding = 0;     // word table
  std::int64_t position = 0;      // learned positions
  std::int64_t layer = 0;         // one layer (of a mixture of experts: one with a dense MLP)
  std::int64_t expert_layer = 0;  // one layer with experts; 0 where there is none
  std::int64_t final_norm = 0;
  std::int64_t head = 0;  // 0 where tied
  // One module of multi-token prediction, without the word table and the head, which it shares.
  std::int64_t prediction = 0;
  std::int64_t total = 0;
  std::int64_t active = 0;  // those a token passes: of the routed experts only the top k
};
ParameterCount count_parameters(const Transformer& model, std::int64_t sequence_length);

// The conventions in which reporters count the model FLOPs of a training step. All but kSc21 leave
// recomputation out; all but kMegatron count attention in full, without causal halving.
enum class FlopsConvention : std::uint8_t {
  kHeadway,   // three times the forward matrix products
  kMegatron,  // attention halved; norms of latent attention and of multi-token prediction counted
  kPalm,      // 6 N per token, N with embeddings, and attention (arXiv 2204.02311, appendix B)
  kSc21,      // full recomputation: layers four times, logits three times (arXiv 2104.04473, eq. 3)
  kKorthikanti,  // as kHeadway (arXiv 2205.05198, appendix A)
  kFoundry,      // 6 N per token and 12 L d_model s (llm-foundry)
  kTorchtitan,   // 6 (N - N_embedding) per token and attention
};
std::string_view name(FlopsConvention convention);  // "headway"
std::optional<FlopsConvention> flops_convention_named(std::string_view);
std::vector<std::string> flops_convention_names();
// FLOPs of forward and backward of `sequences` sequences.
Flops model_flops(const Transformer& model, std::int64_t sequence_length, std::int64_t sequences,
                  FlopsConvention convention = FlopsConvention::kHeadway);

// How a reader treats keys it does not know: an inline model refuses them, a Hugging Face file may
// hold any other key of its own, which are then listed in `ignored`.
struct TransformerReading {
  Transformer model;
  std::vector<std::string> ignored;
};
// Reads `node` (an inline model or a config.json; GPT-2 keys too where `foreign`). Problems are
// added.
TransformerReading read_transformer(const JsonNode& node, bool foreign, Problems& problems);

// The preset's model, or nothing. Names in sorted order.
std::optional<Transformer> transformer_preset(const std::string& name);
struct PresetName {
  std::string name;
  std::string source;
};
std::vector<PresetName> transformer_presets();

}  // namespace headway
