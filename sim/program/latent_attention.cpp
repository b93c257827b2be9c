#include "sim/program/latent_attention.hpp"

#include <utility>

#include "sim/program/sequence/megatron_sequence.hpp"

namespace headway {

using Split = ProgramBuilder::Split;

LatentProjections::LatentProjections(ProgramBuilder& builder, const NormPart& input)
    : builder_(builder), shape_(builder.shape()), input_(input) {
  make_query();
  make_key_value();
  qkv_ = builder_.activation("attention.qkv_output", shape_.storage, shape_.tokens,
                             shape_.qkv_columns, Copies::kPerLayerAndMicroBatch, Split::kColumns);
  qkv_gradient_ =
      builder_.activation("attention.qkv_output_gradient", shape_.storage, shape_.tokens,
                          shape_.qkv_columns, Copies::kScratch, Split::kColumns);
  if (shape_.quantisation != nullptr) quantise();
}

// The narrow matrices read one input: it is converted once.
void LatentProjections::quantise() {
  const QuantisedLinear* first = nullptr;
  const auto narrow = [&](own_tokens::Linear& down) {
    down.quantised.emplace(
        builder_, down.name, down.weight,
        QuantisedLinear::Operands{.rows = shape_.local_tokens, .same_input = first});
    if (first == nullptr) first = &*down.quantised;
  };
  const auto wide = [&](megatron_1d::ColumnParallel& up) {
    up.quantised.emplace(builder_, up.name, up.weight, QuantisedLinear::Shared::kInput);
  };
  if (query_) narrow(query_->down);
  narrow(key_value_.down);
  narrow(rope_);
  wide(query_ ? query_->up : direct_);
  wide(key_value_.up);
}

void LatentProjections::each_quantised(const std::function<void(QuantisedLinear&)>& each) {
  if (query_) each(*query_->down.quantised);
  each(*key_value_.down.quantised);
  each(*rope_.quantised);
  each(*(query_ ? query_->up : direct_).quantised);
  each(*key_value_.up.quantised);
}

own_tokens::Linear LatentProjections::make_down(const std::string& name, std::int64_t columns,
                                                Copies copies) {
  const bool fused = builder_.job().software.accumulation == GradientAccumulation::kFused;
  const Split split = shape_.sequence_parallel ? Split::kRows : Split::kNone;
  own_tokens::Linear down;
  down.name = "attention." + name;
  down.weight = builder_.own_tokens_matrix(down.name + "_weight",
                                           {{down.name + "_weight", columns, shape_.hidden}}, true,
                                           fused, shape_.weight);
  down.result = shape_.storage;
  down.input = input_.output;
  down.output = builder_.activation(down.name + "_output", shape_.storage, shape_.local_tokens,
                                    columns, copies, split);
  down.output_gradient =
      builder_.activation(down.name + "_output_gradient", shape_.storage, shape_.local_tokens,
                          columns, gradient_copies(), split);
  return down;
}

// From `columns` values of a token to `rows`, of all heads.
megatron_1d::ColumnParallel LatentProjections::make_up(const std::string& name, std::int64_t rows,
                                                       std::int64_t columns) {
  const bool fused = builder_.job().software.accumulation == GradientAccumulation::kFused;
  megatron_1d::ColumnParallel up;
  up.name = "attention." + name;
  up.compute = shape_.compute;
  up.width = columns;
  up.weight = builder_.matrix(up.name + "_weight", {{up.name + "_weight", rows, columns}}, 0, true,
                              fused, shape_.weight);
  up.output = builder_.activation(up.name + "_output", shape_.storage, shape_.tokens,
                                  rows / shape_.tp, Copies::kScratch, Split::kColumns);
  up.output_gradient =
      builder_.activation(up.name + "_output_gradient", shape_.storage, shape_.tokens,
                          rows / shape_.tp, gradient_copies(), Split::kColumns);
  if (!shape_.sequence_parallel) return up;
  const auto whole = [&](const std::string& buffer) {
    return builder_.activation(buffer, shape_.storage, shape_.tokens, columns, Copies::kScratch,
                               Split::kNone, BufferCategory::kCommunication);
  };
  up.input_whole = whole(up.name + "_input_whole");
  up.input_gradient_whole = whole(up.name + "_input_gradient_whole");
  return up;
}

void LatentProjections::make_query() {
  const Transformer& model = builder_.job().model;
  const LatentAttention& latent = *model.latent_attention;
  const std::int64_t rows = model.num_attention_heads * latent.qk_head_dim();
  if (latent.q_lora_rank == 0) {
    direct_ = make_up("query", rows, shape_.hidden);
    direct_.input = input_.output;
    direct_.input_gradient = builder_.residual_stream("attention.query_input_gradient",
                                                      shape_.storage, Copies::kScratch);
    return;
  }
  query_ = make_way("query", latent.q_lora_rank, rows);
}

LatentProjections::Way LatentProjections::make_way(const std::string& name, std::int64_t rank,
                                                   std::int64_t rows) {
  const Copies saved = Copies::kPerLayerAndMicroBatch;
  Way way;
  way.down = make_down(name + "_down", rank, saved);
  way.down.input_gradient = builder_.residual_stream("attention." + name + "_input_gradient",
                                                     shape_.storage, Copies::kScratch);
  way.norm = make_norm(builder_, "attention." + name + "_norm", true, saved, rank);
  way.up = make_up(name + "_up", rows, rank);
  way.up.input = way.norm.output;
  way.up.input_gradient = way.norm.output_gradient;
  return way;
}

void LatentProjections::make_key_value() {
  const Transformer& model = builder_.job().model;
  const LatentAttention& latent = *model.latent_attention;
  key_value_ = make_way("key_value", latent.kv_lora_rank,
                        model.num_attention_heads * (latent.qk_nope_head_dim + latent.v_head_dim));
  // Whatever runs the way up again needs it.
  const Copies once = Copies::kScratch;
  const Copies whole_copies =
      shape_.recomputed.up_projections ? Copies::kPerLayerAndMicroBatch : once;
  rope_ = make_down("key_rope", latent.qk_rope_head_dim,
                    shape_.sequence_parallel ? once : whole_copies);
  rope_.input_gradient = input_.output_gradient;  // the first part of it; the others are added
  rope_whole_ = rope_.output;
  rope_gradient_whole_ = rope_.output_gradient;
  if (!shape_.sequence_parallel) return;
  const auto whole = [&](const char* name, Copies copies) {
    return builder_.activation(name, shape_.storage, shape_.tokens, latent.qk_rope_head_dim, copies,
                               Split::kNone, BufferCategory::kCommunication);
  };
  rope_whole_ = whole("attention.key_rope_whole", whole_copies);
  rope_gradient_whole_ = whole("attention.key_rope_gradient_whole", once);
}

Kernel LatentProjections::heads(KernelKind kind) const {
  const LatentAttention& latent = *builder_.job().model.latent_attention;
  Kernel kernel;
  kernel.kind = kind;
  kernel.rows = shape_.tokens;
  kernel.columns = shape_.heads;
  kernel.head_dim = latent.qk_rope_head_dim;
  kernel.plain_dim = latent.qk_nope_head_dim;
  kernel.value_dim = latent.v_head_dim;
  kernel.type = kernel.output = shape_.storage;
  return kernel;
}

void LatentProjections::up_forward(OperationList& list, const Way& way) {
  norm_forward(builder_, list, way.norm, {way.down.output});
  megatron_1d::forward(builder_, list, way.up);
}

void LatentProjections::up_forward(OperationList& list) {
  if (query_) {
    up_forward(list, *query_);
  } else {
    megatron_1d::forward(builder_, list, direct_);
  }
  up_forward(list, key_value_);
  list.add("attention.heads", heads(KernelKind::kLatentForward),
           {{query_ ? query_->up.output : direct_.output}, {key_value_.up.output}, {rope_whole_}},
           {{qkv_}});
}

void LatentProjections::forward(OperationList& list, bool keeps_up) {
  if (query_) own_tokens::forward(builder_, list, query_->down);
  own_tokens::forward(builder_, list, key_value_.down);
  own_tokens::forward(builder_, list, rope_);
  if (shape_.sequence_parallel) {
    megatron_sequence::gather(builder_, list, "attention.key_rope_gather", {rope_.output},
                              {rope_whole_},
                              builder_.job().model.latent_attention->qk_rope_head_dim);
  }
  if (!keeps_up) up_forward(list);
}

std::vector<int> LatentProjections::up_backward(OperationList& list,
                                                const megatron_1d::ColumnParallel& up,
                                                bool weights) {
  if (weights) return megatron_1d::backward(builder_, list, up);
  megatron_1d::backward_input(builder_, list, up);
  return {};
}

void LatentProjections::way_backward(OperationList& list, const Way& way, bool weights) {
  const std::vector<int> after = up_backward(list, way.up, weights);
  norm_backward(builder_, list, way.norm, {way.down.output}, {way.down.output_gradient}, after);
  own_tokens::backward_input(builder_, list, way.down);
  if (weights) own_tokens::backward_weight(builder_, list, way.down);
}

// Each rank of a tensor-parallel group has summed over its own heads.
void LatentProjections::rope_gradient(OperationList& list) {
  const std::int64_t columns = builder_.job().model.latent_attention->qk_rope_head_dim;
  if (shape_.sequence_parallel) {
    megatron_sequence::scatter(builder_, list, "attention.key_rope_scatter", {rope_gradient_whole_},
                               {rope_.output_gradient}, columns);
  } else {
    megatron_1d::all_reduce(builder_, list, "attention.key_rope_all_reduce",
                            {{rope_.output_gradient}}, shape_.tokens * columns, shape_.storage);
  }
}

void LatentProjections::add(OperationList& list, const std::string& name, int part,
                            const std::vector<int>& after) {
  Kernel kernel;
  kernel.kind = KernelKind::kGradientAdd;
  kernel.rows = shape_.local_tokens;
  kernel.columns = shape_.hidden;
  kernel.type = kernel.output = shape_.storage;
  list.add("attention." + name, kernel, {{input_.output_gradient}, {part}},
           {{input_.output_gradient}});
  list.last().after = after;
}

void LatentProjections::backward(OperationList& list, bool weights) {
  list.add("attention.heads_backward", heads(KernelKind::kLatentBackward), {{qkv_gradient_}},
           {{query_ ? query_->up.output_gradient : direct_.output_gradient},
            {key_value_.up.output_gradient},
            {rope_gradient_whole_}});
  rope_gradient(list);
  own_tokens::backward_input(builder_, list, rope_);
  if (weights) own_tokens::backward_weight(builder_, list, rope_);
  way_backward(list, key_value_, weights);
  add(list, "key_value_gradient_add", key_value_.down.input_gradient, {});
  if (query_) {
    way_backward(list, *query_, weights);
    add(list, "query_gradient_add", query_->down.input_gradient, {});
  } else {
    const std::vector<int> after = up_backward(list, direct_, weights);
    add(list, "query_gradient_add", direct_.input_gradient, after);
  }
}

void LatentProjections::backward_weight(OperationList& list) {
  const auto up = [&](const megatron_1d::ColumnParallel& linear) {
    megatron_1d::backward_weight(builder_, list, linear,
                                 megatron_1d::gather_again(builder_, list, linear));
  };
  own_tokens::backward_weight(builder_, list, rope_);
  up(key_value_.up);
  own_tokens::backward_weight(builder_, list, key_value_.down);
  up(query_ ? query_->up : direct_);
  if (query_) own_tokens::backward_weight(builder_, list, query_->down);
}

}  // namespace headway
