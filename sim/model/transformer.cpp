#include "sim/model/transformer.hpp"

#include <algorithm>
#include <array>
#include <cassert>

namespace headway {

namespace {

double real(std::int64_t number) { return static_cast<double>(number); }

// Parameters of a norm over `width` values.
std::int64_t norm_parameters(const Transformer& model, std::int64_t width) {
  return model.norm == Norm::kLayerNorm ? 2 * width : width;
}

// Weights of the attention matrices, without biases and inner norms: a multiply-add each per token.
std::int64_t attention_weights(const Transformer& model) {
  const std::int64_t hidden = model.hidden_size;
  const std::int64_t heads = model.num_attention_heads;
  if (!model.latent_attention) {
    return hidden * (model.query_size() + 2 * model.key_value_size()) + model.query_size() * hidden;
  }
  const LatentAttention& latent = *model.latent_attention;
  const std::int64_t query = latent.q_lora_rank > 0
                                 ? latent.q_lora_rank * (hidden + heads * latent.qk_head_dim())
                                 : hidden * heads * latent.qk_head_dim();
  const std::int64_t key_value =
      hidden * (latent.kv_lora_rank + latent.qk_rope_head_dim) +
      latent.kv_lora_rank * heads * (latent.qk_nope_head_dim + latent.v_head_dim);
  return query + key_value + heads * latent.v_head_dim * hidden;
}

// The norms of the compressed queries and of the compressed keys and values.
std::int64_t latent_norms(const Transformer& model) {
  if (!model.latent_attention) return 0;
  return model.latent_attention->q_lora_rank + model.latent_attention->kv_lora_rank;
}

std::int64_t attention_biases(const Transformer& model) {
  if (model.latent_attention || (!model.linear_bias && !model.qkv_bias)) return 0;
  const std::int64_t qkv = model.query_size() + 2 * model.key_value_size();
  return model.linear_bias ? qkv + model.hidden_size : qkv;
}

std::int64_t mlp_weights(const Transformer& model, std::int64_t intermediate) {
  return (model.gated_mlp ? 3 : 2) * model.hidden_size * intermediate;
}

std::int64_t mlp_biases(const Transformer& model, std::int64_t intermediate) {
  if (!model.linear_bias) return 0;
  return (model.gated_mlp ? 2 : 1) * intermediate + model.hidden_size;
}

// What a token passes in the MLP of an expert layer, without the router.
std::int64_t active_expert_weights(const Transformer& model) {
  return model.experts.per_token * mlp_weights(model, model.experts.intermediate_size) +
         mlp_weights(model, model.experts.shared_intermediate_size);
}

// Two norms and attention; the MLP comes on top.
std::int64_t attention_parameters(const Transformer& model) {
  return attention_weights(model) + attention_biases(model) + latent_norms(model) +
         2 * norm_parameters(model, model.hidden_size);
}

// An expert layer with `routed` experts, all of them or the top k.
std::int64_t expert_layer_parameters(const Transformer& model, std::int64_t routed) {
  const ExpertLayers& experts = model.experts;
  const std::int64_t expert =
      mlp_weights(model, experts.intermediate_size) + mlp_biases(model, experts.intermediate_size);
  const std::int64_t shared = experts.shared_intermediate_size == 0
                                  ? 0
                                  : mlp_weights(model, experts.shared_intermediate_size) +
                                        mlp_biases(model, experts.shared_intermediate_size) +
                                        (experts.shared_gate ? model.hidden_size : 0);
  const std::int64_t router =
      model.hidden_size * model.num_experts + (experts.router_bias ? model.num_experts : 0);
  return attention_parameters(model) + routed * expert + shared + router;
}

// Pairs of query and key positions of one sequence, counted in full: s^2, or with a window twice
// the pairs that causal attention inside it has, which is s^2 where the window is the sequence.
double attention_pairs(const Transformer& model, std::int64_t sequence_length) {
  const double s = real(sequence_length);
  const double window = std::min(s, real(model.sliding_window.value_or(sequence_length)));
  return window * (2 * s - window);
}

// FLOPs of the forward matrix products of one sequence.
struct ForwardFlops {
  double layers = 0;     // projections and MLPs
  double attention = 0;  // q k^T and probabilities times v
  double logits = 0;
};

ForwardFlops forward_flops(const Transformer& model, std::int64_t sequence_length) {
  const double s = real(sequence_length);
  const std::int64_t predicting = model.num_nextn_predict_layers;
  const std::int64_t expert_layers =
      model.expert_layer_count() + (model.num_experts > 0 ? predicting : 0);
  const std::int64_t layers = model.num_hidden_layers + predicting;
  double weights = real(layers) * real(attention_weights(model));
  weights += real(layers - expert_layers) * real(mlp_weights(model, model.intermediate_size));
  if (expert_layers > 0) weights += real(expert_layers) * real(active_expert_weights(model));
  // A predicting layer first joins two hidden states: a projection from 2 h to h.
  weights += real(predicting) * 2 * real(model.hidden_size) * real(model.hidden_size);

  const std::int64_t value_dim =
      model.latent_attention ? model.latent_attention->v_head_dim : model.head_dim;
  ForwardFlops flops;
  flops.layers = 2 * s * weights;
  flops.attention = real(layers) * 2 * attention_pairs(model, sequence_length) *
                    real(model.num_attention_heads) * (real(model.head_dim) + real(value_dim));
  flops.logits = 2 * s * real(model.hidden_size) * real(model.vocab_size) * real(1 + predicting);
  return flops;
}

// The inner norms that Megatron-LM's formula counts as a multiply-add per value.
double megatron_norm_weights(const Transformer& model) {
  const std::int64_t predicting = model.num_nextn_predict_layers;
  return real(model.num_hidden_layers + predicting) * real(latent_norms(model)) +
         real(predicting) * 3 * real(model.hidden_size);
}

// FLOPs of a training step of one sequence.
double sequence_flops(const Transformer& model, std::int64_t sequence_length,
                      FlopsConvention convention) {
  const double s = real(sequence_length);
  const ForwardFlops forward = forward_flops(model, sequence_length);
  const ParameterCount count = count_parameters(model, sequence_length);
  switch (convention) {
    case FlopsConvention::kHeadway:
    case FlopsConvention::kKorthikanti:
      return 3 * (forward.layers + forward.attention + forward.logits);
    case FlopsConvention::kMegatron:
      return 3 * (forward.layers + forward.attention / 2 + forward.logits) +
             6 * s * megatron_norm_weights(model);
    case FlopsConvention::kPalm:
      return 6 * real(count.active) * s + 3 * forward.attention;
    case FlopsConvention::kSc21:
      return 4 * (forward.layers + forward.attention) + 3 * forward.logits;
    case FlopsConvention::kFoundry:
      return 6 * real(count.active) * s +
             12 * real(model.num_hidden_layers) * real(model.hidden_size) * s * s;
    case FlopsConvention::kTorchtitan:
      return 6 * real(count.active - (model.tie_word_embeddings ? 0 : count.embedding)) * s +
             3 * forward.attention;
  }
  assert(false);
  return 0;
}

// In the order of the enumerators.
constexpr std::array<std::string_view, 7> kConventions = {
    "headway", "megatron", "palm", "sc21", "korthikanti", "foundry", "torchtitan"};
static_assert(kConventions.size() == static_cast<std::size_t>(FlopsConvention::kTorchtitan) + 1);

}  // namespace

bool Transformer::is_expert_layer(std::int64_t layer) const {
  layer = std::min(layer, num_hidden_layers - 1);
  return num_experts > 0 && layer >= experts.first_dense_layers && layer % experts.frequency == 0;
}

std::int64_t Transformer::expert_layer_count() const {
  std::int64_t count = 0;
  for (std::int64_t layer = 0; layer < num_hidden_layers; ++layer) {
    if (is_expert_layer(layer)) ++count;
  }
  return count;
}

ParameterCount count_parameters(const Transformer& model, std::int64_t sequence_length) {
  ParameterCount count;
  count.embedding = model.vocab_size * model.hidden_size;
  if (model.position_embedding == PositionEmbedding::kLearned) {
    const std::int64_t rows = model.max_positions > 0 ? model.max_positions : sequence_length;
    count.position = rows * model.hidden_size;
  }
  count.layer = attention_parameters(model) + mlp_weights(model, model.intermediate_size) +
                mlp_biases(model, model.intermediate_size);
  const std::int64_t expert_layers = model.expert_layer_count();
  std::int64_t active_expert_layer = 0;
  if (expert_layers > 0) {
    count.expert_layer = expert_layer_parameters(model, model.num_experts);
    active_expert_layer = expert_layer_parameters(model, model.experts.per_token);
  }
  count.final_norm = norm_parameters(model, model.hidden_size);
  count.head = model.tie_word_embeddings ? 0 : count.embedding;
  const std::int64_t outside = count.embedding + count.position + count.final_norm + count.head +
                               (model.num_hidden_layers - expert_layers) * count.layer;
  if (model.num_nextn_predict_layers > 0) {
    const bool experts = model.is_expert_layer(model.num_hidden_layers);
    // The projection of two normed hidden states to one, and the norm before the head.
    count.prediction = (experts ? count.expert_layer : count.layer) + 3 * count.final_norm +
                       2 * model.hidden_size * model.hidden_size;
  }
  count.total = outside + expert_layers * count.expert_layer;
  count.active = outside + expert_layers * active_expert_layer;
  return count;
}

std::string_view name(Activation activation) {
  switch (activation) {
    case Activation::kGelu:
      return "gelu";
    case Activation::kSilu:
      return "silu";
    case Activation::kRelu:
      return "relu";
    case Activation::kSquaredRelu:
      return "relu2";
  }
  return "";
}

std::string_view name(PositionEmbedding position) {
  switch (position) {
    case PositionEmbedding::kRope:
      return "rope";
    case PositionEmbedding::kLearned:
      return "learned";
    case PositionEmbedding::kAlibi:
      return "alibi";
    case PositionEmbedding::kNoPosition:
      return "none";
  }
  return "";
}

std::string_view name(FlopsConvention convention) {
  return kConventions.at(static_cast<std::size_t>(convention));
}

std::optional<FlopsConvention> flops_convention_named(std::string_view word) {
  for (std::size_t i = 0; i < kConventions.size(); ++i) {
    if (kConventions.at(i) == word) return static_cast<FlopsConvention>(i);
  }
  return std::nullopt;
}

std::vector<std::string> flops_convention_names() {
  return {kConventions.begin(), kConventions.end()};
}

Flops model_flops(const Transformer& model, std::int64_t sequence_length, std::int64_t sequences,
                  FlopsConvention convention) {
  return {real(sequences) * sequence_flops(model, sequence_length, convention)};
}

}  // namespace headway
