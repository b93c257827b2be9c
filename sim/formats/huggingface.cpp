#include "sim/formats/huggingface.hpp"

#include <string_view>
#include <utility>

#include "sim/core/json_writer.hpp"

namespace headway {

namespace {

void write_experts(const Transformer& model, JsonWriter& writer) {
  const ExpertLayers& experts = model.experts;
  writer.field("num_experts", model.num_experts)
      .field("num_experts_per_tok", experts.per_token)
      .field("moe_intermediate_size", experts.intermediate_size)
      .field("shared_expert_intermediate_size", experts.shared_intermediate_size)
      .field("first_k_dense_replace", experts.first_dense_layers)
      .field("moe_layer_freq", experts.frequency)
      .field("n_group", experts.groups)
      .field("topk_group", experts.groups_per_token);
}

void write_attention(const Transformer& model, JsonWriter& writer) {
  writer.field("num_attention_heads", model.num_attention_heads)
      .field("num_key_value_heads", model.num_key_value_heads);
  if (!model.latent_attention) {
    writer.field("head_dim", model.head_dim);
  } else {
    const LatentAttention& latent = *model.latent_attention;
    if (latent.q_lora_rank > 0) writer.field("q_lora_rank", latent.q_lora_rank);
    writer.field("kv_lora_rank", latent.kv_lora_rank)
        .field("qk_nope_head_dim", latent.qk_nope_head_dim)
        .field("qk_rope_head_dim", latent.qk_rope_head_dim)
        .field("v_head_dim", latent.v_head_dim);
  }
  if (model.sliding_window) writer.field("sliding_window", *model.sliding_window);
}

std::vector<std::string> left_out(const Transformer& model) {
  std::vector<std::string> names;
  const bool usual_bias = model.norm == Norm::kLayerNorm;  // what an inline model is read with
  if (model.linear_bias != usual_bias) {
    names.emplace_back(model.linear_bias ? "biases of the linear layers"
                                         : "that the linear layers have no biases");
  }
  if (model.qkv_bias && !model.linear_bias) {
    names.emplace_back("biases of queries, keys and values");
  }
  if (model.position_embedding == PositionEmbedding::kLearned && model.max_positions > 0) {
    names.emplace_back("rows of the position table (the job's sequence length is taken)");
  }
  if (model.num_experts > 0 && model.experts.router_bias) {
    names.emplace_back("biases of the router");
  }
  if (model.num_experts > 0 && model.experts.shared_gate) {
    names.emplace_back("gate of the shared experts");
  }
  return names;
}

}  // namespace

InlineModel inline_model(const Transformer& model, int indent) {
  JsonWriter writer(indent);
  writer.begin_object()
      .field("hidden_size", model.hidden_size)
      .field("num_hidden_layers", model.num_hidden_layers);
  write_attention(model, writer);
  writer.field("intermediate_size", model.intermediate_size)
      .field("vocab_size", model.vocab_size)
      .field("hidden_act", name(model.activation))
      .field("gated_mlp", model.gated_mlp)
      .field("tie_word_embeddings", model.tie_word_embeddings)
      .field("position_embedding", name(model.position_embedding))
      .field("norm", std::string_view(model.norm == Norm::kRmsNorm ? "rmsnorm" : "layernorm"));
  if (model.num_experts > 0) write_experts(model, writer);
  if (model.num_nextn_predict_layers > 0) {
    writer.field("num_nextn_predict_layers", model.num_nextn_predict_layers);
  }
  writer.end_object();
  return {writer.text(), left_out(model)};
}

HuggingFaceImport import_huggingface(const std::string& path) {
  Problems problems;
  TransformerReading reading = read_transformer(JsonNode::parse_file(path), true, problems);
  problems.throw_if_any();
  InlineModel inlined = inline_model(reading.model);
  return {std::move(reading.model), std::move(inlined.json), std::move(reading.ignored),
          std::move(inlined.left_out)};
}

}  // namespace headway
