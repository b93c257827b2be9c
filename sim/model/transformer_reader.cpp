// Reading of models: inline ones, Hugging Face files and the shipped presets, through one path that
// differs only in which keys it knows and in what it does with the others.
#include <algorithm>
#include <array>
#include <utility>

#include "sim/core/shipped_files.hpp"
#include "sim/model/transformer.hpp"

namespace headway {

namespace {

constexpr std::string_view kPresetFolder = "sim/model/presets/";

// Far beyond any model, and small enough that no product of two overflows.
constexpr std::int64_t kMostHidden = 1 << 20;
constexpr std::int64_t kMostLayers = 1 << 14;
constexpr std::int64_t kMostHeads = 1 << 16;
constexpr std::int64_t kMostIntermediate = 1 << 22;
constexpr std::int64_t kMostVocabulary = 1 << 24;
constexpr std::int64_t kMostPositions = 1 << 30;
constexpr std::int64_t kMostExperts = 1 << 16;
// Counts of parameters, and a few times as many bytes, stay exact in 64 bits.
constexpr double kMostParameters = 1e17;

// hidden_act as Hugging Face spells it; whether it means a gated MLP where `gated_mlp` is absent.
struct ActivationName {
  std::string_view name;
  Activation activation;
  bool gated;
};
constexpr std::array<ActivationName, 13> kActivations = {{
    {"gelu", Activation::kGelu, false},
    {"gelu_new", Activation::kGelu, false},
    {"gelu_fast", Activation::kGelu, false},
    {"gelu_pytorch_tanh", Activation::kGelu, false},
    {"quick_gelu", Activation::kGelu, false},
    {"geglu", Activation::kGelu, true},
    {"silu", Activation::kSilu, true},
    {"swish", Activation::kSilu, true},
    {"swiglu", Activation::kSilu, true},
    {"relu", Activation::kRelu, false},
    {"relu2", Activation::kSquaredRelu, false},
    {"relu_squared", Activation::kSquaredRelu, false},
    {"squared_relu", Activation::kSquaredRelu, false},
}};

// What a Hugging Face file leaves to the code of its model_type (transformers, modeling_*.py).
struct Family {
  std::string_view model_type;
  bool gated;
  bool tied;
  bool linear_bias;
  bool qkv_bias;
  Norm norm;
  PositionEmbedding position;
};
constexpr std::array<Family, 14> kFamilies = {{
    {"gpt2", false, true, true, false, Norm::kLayerNorm, PositionEmbedding::kLearned},
    {"gpt_neox", false, false, true, false, Norm::kLayerNorm, PositionEmbedding::kRope},
    {"llama", true, false, false, false, Norm::kRmsNorm, PositionEmbedding::kRope},
    {"mistral", true, false, false, false, Norm::kRmsNorm, PositionEmbedding::kRope},
    {"mixtral", true, false, false, false, Norm::kRmsNorm, PositionEmbedding::kRope},
    {"qwen2", true, false, false, true, Norm::kRmsNorm, PositionEmbedding::kRope},
    {"qwen2_moe", true, false, false, true, Norm::kRmsNorm, PositionEmbedding::kRope},
    {"gemma", true, true, false, false, Norm::kRmsNorm, PositionEmbedding::kRope},
    {"qwen3_moe", true, false, false, false, Norm::kRmsNorm, PositionEmbedding::kRope},
    {"deepseek", true, false, false, false, Norm::kRmsNorm, PositionEmbedding::kRope},
    {"deepseek_v2", true, false, false, false, Norm::kRmsNorm, PositionEmbedding::kRope},
    {"deepseek_v3", true, false, false, false, Norm::kRmsNorm, PositionEmbedding::kRope},
    {"starcoder2", false, true, true, false, Norm::kLayerNorm, PositionEmbedding::kRope},
    {"nemotron", false, false, false, false, Norm::kLayerNorm, PositionEmbedding::kRope},
}};

const Family* find_family(std::string_view model_type) {
  for (const Family& family : kFamilies) {
    if (family.model_type == model_type) return &family;
  }
  return nullptr;
}

class TransformerReader {
 public:
  TransformerReader(const JsonNode& node, bool foreign, Problems& problems)
      : reader_(node, problems), foreign_(foreign) {}

  Transformer read() {
    if (foreign_) read_family();
    read_shape();
    read_activation();
    read_kinds();
    read_latent_attention();
    read_experts();
    return model_;
  }

  ObjectReader& reader() { return reader_; }
  // Keys whose value the model cannot hold in full.
  const std::vector<std::string>& partly() const { return partly_; }
  bool known_family() const { return family_ != nullptr; }

 private:
  // The key, or in a Hugging Face file its GPT-2 spelling.
  std::string spelling(std::string_view key, std::string_view gpt2) const {
    return std::string(foreign_ && !reader_.has(key) && reader_.has(gpt2) ? gpt2 : key);
  }

  void read_family() {
    const auto model_type = reader_.string("model_type");
    if (!model_type) return;
    family_ = find_family(*model_type);
  }

  void read_shape() {
    const std::size_t before = reader_.problems().size();
    model_.hidden_size =
        reader_.require_integer(spelling("hidden_size", "n_embd"), {.min = 1, .max = kMostHidden});
    model_.num_hidden_layers = reader_.require_integer(spelling("num_hidden_layers", "n_layer"),
                                                       {.min = 1, .max = kMostLayers});
    model_.num_attention_heads = reader_.require_integer(spelling("num_attention_heads", "n_head"),
                                                         {.min = 1, .max = kMostHeads});
    shape_known_ = reader_.problems().size() == before;
    model_.vocab_size = reader_.require_integer("vocab_size", {.min = 1, .max = kMostVocabulary});
    model_.num_key_value_heads =
        reader_.integer("num_key_value_heads", {.min = 1, .max = kMostHeads})
            .value_or(model_.num_attention_heads);
    if (shape_known_ && model_.num_attention_heads % model_.num_key_value_heads != 0) {
      reader_.problem("num_key_value_heads",
                      std::to_string(model_.num_key_value_heads) + " does not divide the " +
                          std::to_string(model_.num_attention_heads) + " attention heads");
    }
    read_window();
    if (foreign_) {
      model_.max_positions = reader_
                                 .integer(spelling("max_position_embeddings", "n_positions"),
                                          {.min = 1, .max = kMostPositions})
                                 .value_or(0);
    }
  }

  void read_window() {
    model_.sliding_window = reader_.integer("sliding_window", {.min = 1, .max = kMostPositions});
    // Qwen2 states a window and switches it off.
    if (foreign_ && !reader_.boolean("use_sliding_window").value_or(true)) {
      model_.sliding_window.reset();
    }
  }

  void read_activation() {
    const std::string key = spelling("hidden_act", "activation_function");
    std::vector<std::string> names;
    for (const ActivationName& entry : kActivations) names.emplace_back(entry.name);
    const auto word = reader_.choice(key, names);
    const auto gated = reader_.boolean("gated_mlp");
    if (word) {
      const auto* entry =
          std::find_if(kActivations.begin(), kActivations.end(),
                       [&](const ActivationName& known) { return known.name == *word; });
      model_.activation = entry->activation;
      model_.gated_mlp = gated.value_or(family_ != nullptr ? family_->gated : entry->gated);
    } else {
      if (!gated && family_ == nullptr && !reader_.has(key)) {
        reader_.problem(
            "hidden_act",
            "missing; expected an activation such as \"gelu\" or \"silu\", or gated_mlp");
      }
      model_.gated_mlp = gated.value_or(family_ == nullptr || family_->gated);
      model_.activation = model_.gated_mlp ? Activation::kSilu : Activation::kGelu;
    }
    read_intermediate_size();
  }

  void read_intermediate_size() {
    const std::string key = spelling("intermediate_size", "n_inner");
    const auto size = reader_.integer(key, {.min = 1, .max = kMostIntermediate});
    if (foreign_) reader_.any("n_inner");  // GPT-2 writes null for 4 h
    if (!size && model_.gated_mlp && !reader_.has(key)) {
      reader_.problem(key,
                      "missing; expected the width of the MLP (a gated one has no usual width)");
    }
    model_.intermediate_size = size.value_or(4 * model_.hidden_size);
  }

  // Norm, positions, tying and biases: as given, else of the family, else by the kind of MLP.
  void read_kinds() {
    const bool gated = model_.gated_mlp;
    Norm norm = family_ != nullptr ? family_->norm : gated ? Norm::kRmsNorm : Norm::kLayerNorm;
    PositionEmbedding position = gated ? PositionEmbedding::kRope : PositionEmbedding::kLearned;
    if (foreign_ && family_ == nullptr) {
      if (reader_.any("rms_norm_eps")) norm = Norm::kRmsNorm;
      if (reader_.any("layer_norm_eps") || reader_.any("layer_norm_epsilon")) {
        norm = Norm::kLayerNorm;
      }
      if (reader_.any("rope_theta")) position = PositionEmbedding::kRope;
    }
    if (family_ != nullptr) position = family_->position;
    if (const auto word = reader_.choice("norm", {"rmsnorm", "layernorm"})) {
      norm = *word == "rmsnorm" ? Norm::kRmsNorm : Norm::kLayerNorm;
    }
    if (const auto word =
            reader_.choice("position_embedding", {"rope", "learned", "alibi", "none"})) {
      position = *word == "rope"      ? PositionEmbedding::kRope
                 : *word == "learned" ? PositionEmbedding::kLearned
                 : *word == "alibi"   ? PositionEmbedding::kAlibi
                                      : PositionEmbedding::kNoPosition;
    }
    model_.norm = norm;
    model_.position_embedding = position;
    model_.tie_word_embeddings = reader_.boolean("tie_word_embeddings")
                                     .value_or(family_ != nullptr ? family_->tied : !gated);
    read_biases();
  }

  // GPT models, those with LayerNorm, have biases throughout (arXiv 2104.04473, equation 2).
  void read_biases() {
    model_.linear_bias =
        family_ != nullptr ? family_->linear_bias : model_.norm == Norm::kLayerNorm;
    model_.qkv_bias = family_ != nullptr && family_->qkv_bias;
    if (!foreign_) return;
    const auto attention = reader_.boolean("attention_bias");
    const auto mlp = reader_.boolean("mlp_bias");
    if (attention) {
      model_.linear_bias = *attention && mlp.value_or(model_.linear_bias);
      model_.qkv_bias = *attention;
      if (*attention && !model_.linear_bias) {
        partly_.emplace_back("attention_bias");  // the output projection's is left out
      }
    }
  }

  void read_latent_attention() {
    LatentAttention latent;
    const auto dimension = [&](std::string_view key) {
      return reader_.integer(key, {.min = 1, .max = kMostHidden}).value_or(0);
    };
    latent.q_lora_rank = dimension("q_lora_rank");
    latent.kv_lora_rank = dimension("kv_lora_rank");
    latent.qk_nope_head_dim = dimension("qk_nope_head_dim");
    latent.qk_rope_head_dim = dimension("qk_rope_head_dim");
    latent.v_head_dim = dimension("v_head_dim");
    const bool asked = reader_.has("q_lora_rank") || reader_.has("kv_lora_rank");
    const auto head_dim = reader_.integer("head_dim", {.min = 1, .max = kMostHidden});
    if (!asked) {
      set_head_dim(head_dim);
      return;
    }
    for (const std::string_view key :
         {"kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"}) {
      if (!reader_.has(key)) reader_.problem(key, "missing; latent attention needs it");
    }
    model_.latent_attention = latent;
    model_.head_dim = latent.qk_head_dim();
  }

  void set_head_dim(std::optional<std::int64_t> given) {
    if (!given && shape_known_ && model_.hidden_size % model_.num_attention_heads != 0) {
      reader_.problem("num_attention_heads",
                      std::to_string(model_.num_attention_heads) + " does not divide hidden_size " +
                          std::to_string(model_.hidden_size) + "; state head_dim");
    }
    model_.head_dim =
        given.value_or(std::max<std::int64_t>(1, model_.hidden_size / model_.num_attention_heads));
  }

  // Under whichever of its names the count of experts stands.
  std::int64_t read_expert_count() {
    std::int64_t count = 0;
    std::string_view counted_by;
    for (const std::string_view key : {"num_experts", "num_local_experts", "n_routed_experts"}) {
      const auto found = reader_.integer(key, {.min = 0, .max = kMostExperts});
      if (!found) continue;
      if (!counted_by.empty() && *found != count) {
        reader_.problem(key, std::to_string(*found) + " contradicts " + std::string(counted_by) +
                                 " " + std::to_string(count));
      }
      count = *found;
      counted_by = key;
    }
    return count;
  }

  void read_experts() {
    model_.num_experts = read_expert_count();
    ExpertLayers& experts = model_.experts;
    const auto per_token = reader_.integer("num_experts_per_tok", {.min = 0, .max = kMostExperts});
    experts.intermediate_size =
        reader_.integer("moe_intermediate_size", {.min = 1, .max = kMostIntermediate})
            .value_or(model_.intermediate_size);
    const auto shared_size =
        reader_.integer("shared_expert_intermediate_size", {.min = 0, .max = kMostIntermediate});
    const std::int64_t shared_count =
        reader_.integer("n_shared_experts", {.min = 0, .max = kMostExperts})
            .value_or(shared_size ? 1 : 0);
    experts.shared_intermediate_size =
        shared_count * shared_size.value_or(experts.intermediate_size);
    experts.first_dense_layers =
        reader_.integer("first_k_dense_replace", {.min = 0, .max = kMostLayers}).value_or(0);
    experts.frequency =
        reader_.integer("moe_layer_freq", {.min = 1, .max = kMostLayers}).value_or(1);
    experts.groups = reader_.integer("n_group", {.min = 1, .max = kMostExperts}).value_or(1);
    experts.groups_per_token =
        reader_.integer("topk_group", {.min = 1, .max = kMostExperts}).value_or(experts.groups);
    model_.num_nextn_predict_layers =
        reader_.integer("num_nextn_predict_layers", {.min = 0, .max = kMostLayers}).value_or(0);
    if (foreign_) {
      experts.router_bias = reader_.string("topk_method").value_or("") == "noaux_tc";
      experts.shared_gate = family_ != nullptr && family_->model_type == "qwen2_moe";
    }
    if (model_.num_experts > 0) check_experts(per_token);
  }

  void check_experts(std::optional<std::int64_t> per_token) {
    ExpertLayers& experts = model_.experts;
    if (!per_token && !reader_.has("num_experts_per_tok")) {
      reader_.problem("num_experts_per_tok", "missing; a model with experts needs it");
    }
    experts.per_token = per_token.value_or(1);
    if (experts.per_token < 1 || experts.per_token > model_.num_experts) {
      reader_.problem("num_experts_per_tok", std::to_string(experts.per_token) +
                                                 " is not allowed; expected an integer from 1 up "
                                                 "to the " +
                                                 std::to_string(model_.num_experts) + " experts");
    }
    if (model_.num_experts % experts.groups != 0) {
      reader_.problem("n_group", std::to_string(experts.groups) + " does not divide the " +
                                     std::to_string(model_.num_experts) + " experts");
    }
    if (experts.groups_per_token > experts.groups) {
      reader_.problem("topk_group", std::to_string(experts.groups_per_token) +
                                        " is more than the " + std::to_string(experts.groups) +
                                        " groups");
    }
  }

  ObjectReader reader_;
  bool foreign_;
  const Family* family_ = nullptr;
  bool shape_known_ = true;  // what is missing has its own problem, and nothing follows from it
  std::vector<std::string> partly_;
  Transformer model_;
};

// In doubles, since the sum may be beyond 64 bits.
void check_size(const Transformer& model, ObjectReader& reader) {
  const auto real = [](std::int64_t number) { return static_cast<double>(number); };
  const double hidden = real(model.hidden_size);
  const double widths = 4 * real(model.num_attention_heads) * real(model.head_dim) +
                        3 * (real(model.intermediate_size) +
                             real(std::max<std::int64_t>(1, model.num_experts)) *
                                 real(model.experts.intermediate_size) +
                             real(model.experts.shared_intermediate_size));
  const double total =
      hidden * (real(model.num_hidden_layers) * widths + 2 * real(model.vocab_size));
  if (total > kMostParameters) {
    reader.problem("", "the model would have over 1e17 parameters; its sizes cannot all be right");
  }
}

}  // namespace

TransformerReading read_transformer(const JsonNode& node, bool foreign, Problems& problems) {
  TransformerReader transformer(node, foreign, problems);
  TransformerReading reading;
  reading.model = transformer.read();
  reading.model.name = foreign ? node.file() : "inline";
  check_size(reading.model, transformer.reader());
  if (!foreign) {
    transformer.reader().finish();
    return reading;
  }
  reading.ignored = transformer.reader().unasked();
  const std::vector<std::string>& partly = transformer.partly();
  reading.ignored.insert(reading.ignored.end(), partly.begin(), partly.end());
  if (!transformer.known_family() && transformer.reader().has("model_type")) {
    reading.ignored.emplace_back("model_type");
  }
  std::sort(reading.ignored.begin(), reading.ignored.end());
  return reading;
}

std::optional<Transformer> transformer_preset(const std::string& name) {
  const std::string path = std::string(kPresetFolder) + name + ".json";
  const ShippedFile* file = find_shipped_file(path);
  if (file == nullptr) return std::nullopt;
  Problems problems;
  TransformerReading reading =
      read_transformer(JsonNode::parse_text(file->content, path), true, problems);
  problems.throw_if_any();
  reading.model.name = name;
  return reading.model;
}

std::vector<PresetName> transformer_presets() {
  std::vector<PresetName> presets;
  for (const std::string_view name : shipped_names(kPresetFolder)) {
    const std::string path = std::string(kPresetFolder) + std::string(name) + ".json";
    Problems problems;
    ObjectReader reader(JsonNode::parse_text(find_shipped_file(path)->content, path), problems);
    presets.push_back({std::string(name), reader.require_string("source")});
    problems.throw_if_any();
  }
  std::sort(presets.begin(), presets.end(),
            [](const PresetName& a, const PresetName& b) { return a.name < b.name; });
  return presets;
}

}  // namespace headway
