// A decoder-only transformer: the shape of a Hugging Face config.json. Presets are such files in
// sim/model/presets. Counts are exact integers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/core/json_reader.hpp"
#include "sim/core/units.hpp"

namespace headway {

enum class Activation : std::uint8_t { kGelu, kSilu, kRelu, kSquaredRelu };
enum class PositionEmbedding : std::uint8_t { kRope, kLearned, kAlibi, kNone };
enum class Norm : std::uint8_t { kRmsNorm, kLayerNorm };

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
  bool gated_mlp = true;           // three MLP matrices instead of two
  bool tie_word_embeddings = false;
  bool linear_bias = false;        // attention and MLP matrices have biases
  bool qkv_bias = false;           // only the qkv projection has one (Qwen2)
  PositionEmbedding position_embedding = PositionEmbedding::kRope;
  Norm norm = Norm::kRmsNorm;
  std::optional<std::int64_t> sliding_window;
  std::int64_t num_experts = 0;    // 0: dense. Experts are read, and refused until they are built.

  std::int64_t query_size() const { return num_attention_heads * head_dim; }
  std::int64_t key_value_size() const { return num_key_value_heads * head_dim; }
};

// Parameters, to the last one. `sequence_length` sizes a learned position table whose model gives none.
struct ParameterCount {
  std::int64_t embedding = 0;   // word table
  std::int64_t position = 0;    // learned positions
  std::int64_t layer = 0;       // one layer
  std::int64_t final_norm = 0;
  std::int64_t head = 0;        // 0 where tied
  std::int64_t total = 0;
};
ParameterCount count_parameters(const Transformer& model, std::int64_t sequence_length);

// The conventions in which reporters count the model FLOPs of a training step (facts 1.2).
enum class FlopsConvention : std::uint8_t { kHeadway, kMegatron, kPalm, kSc21, kKorthikanti, kFoundry };
std::optional<FlopsConvention> flops_convention_named(std::string_view);
// FLOPs of forward and backward of `sequences` sequences; kSc21 counts full recomputation too.
Flops model_flops(const Transformer& model, std::int64_t sequence_length, std::int64_t sequences,
                  FlopsConvention convention = FlopsConvention::kHeadway);

// How a reader treats keys it does not know: an inline model refuses them, a Hugging Face file may
// hold any other key of its own, which are then listed in `ignored`.
struct TransformerReading {
  Transformer model;
  std::vector<std::string> ignored;
};
// Reads `node` (an inline model or a config.json; GPT-2 keys too where `foreign`). Problems are added.
TransformerReading read_transformer(const JsonNode& node, bool foreign, Problems& problems);

// The preset's model, or nothing. Names in sorted order.
std::optional<Transformer> transformer_preset(const std::string& name);
struct PresetName {
  std::string name;
  std::string source;
};
std::vector<PresetName> transformer_presets();

}  // namespace headway
