#include "sim/program/layer.hpp"

#include <utility>

#include "sim/program/tensor/grid_2_5d.hpp"
#include "sim/program/tensor/grid_2d.hpp"
#include "sim/program/tensor/overlapped_1d.hpp"

namespace headway {

using Split = ProgramBuilder::Split;

Layer::Layer(ProgramBuilder& builder) : builder_(builder), shape_(builder.shape()) {
  hidden_ = builder_.residual_stream("hidden", shape_.storage, Copies::kPerLayerAndMicroBatch);
  hidden_gradient_ =
      builder_.residual_stream("hidden_gradient", shape_.storage, Copies::kPerLayerAndMicroBatch);
  make_attention_buffers();
  make_residual_stream();
  if (shape_.quantisation != nullptr) quantise_attention();
  const std::int64_t expert_layers = builder_.job().model.expert_layer_count();
  if (expert_layers < shape_.layers) {
    make_mlp_buffers();
    if (shape_.quantisation != nullptr) quantise_mlp();
    dense_ = make_templates("layer", Mlp::kDense);
  }
  if (expert_layers > 0) {
    experts_.emplace(builder_, mlp_norm_, mlp_output_);
    with_experts_ = make_templates("expert_layer", Mlp::kExperts);
  }
}

Layer::Templates Layer::make_templates(const std::string& name, Mlp mlp) {
  Templates made;
  OperationList forward(name + ".forward");
  attention_forward(forward);
  mlp_forward(forward, mlp);
  made.forward = made.forward_again = builder_.add_parts(forward);
  const LayerParts& kept = builder_.job().plan.kept_parts;
  if (kept != LayerParts{}) {
    OperationList again(name + ".forward_again");
    attention_forward(again, kept);
    mlp_forward(again, mlp, kept);
    made.forward_again = builder_.add_parts(again);
  }

  OperationList backward(name + ".backward");
  mlp_backward(backward, mlp, Backward::kWhole);
  attention_backward(backward, Backward::kWhole);
  made.backward = builder_.add_parts(backward);
  if (shape_.quantisation != nullptr) convert_weights(name, mlp, made);
  if (!shape_.splits_backward) return made;

  OperationList input(name + ".backward_input");
  mlp_backward(input, mlp, Backward::kInput);
  attention_backward(input, Backward::kInput);
  made.backward_input = builder_.add_parts(input);
  OperationList weights(name + ".backward_weight");
  weights_backward(weights, mlp);
  made.backward_weight = builder_.add_template(weights);
  return made;
}

void Layer::quantise_attention() {
  if (!latent_) {
    qkv_.quantised.emplace(builder_, qkv_.name, qkv_.weight, QuantisedLinear::Shared::kInput);
  }
  projection_.quantised.emplace(builder_, projection_.name, projection_.weight,
                                QuantisedLinear::Shared::kGradient);
}

void Layer::quantise_mlp() {
  first_.quantised.emplace(builder_, first_.name, first_.weight, QuantisedLinear::Shared::kInput);
  second_.quantised.emplace(builder_, second_.name, second_.weight,
                            QuantisedLinear::Shared::kGradient);
}

void Layer::convert_weights(const std::string& name, Mlp mlp, Templates& made) {
  OperationList weights(name + ".quantise_weights");
  const auto convert = [&](const QuantisedLinear& linear) {
    linear.quantise_weight(weights);
    for (const int family : linear.kept()) made.kept.push_back(family);
    for (const int family : linear.histories()) made.histories.push_back(family);
  };
  if (latent_) {
    latent_->each_quantised(convert);
  } else {
    convert(*qkv_.quantised);
  }
  convert(*projection_.quantised);
  if (mlp == Mlp::kExperts) {
    experts_->each_quantised(convert);
  } else {
    convert(*first_.quantised);
    convert(*second_.quantised);
  }
  if (!weights.empty()) made.quantise_weights = builder_.add_template(weights);
}

ParameterId Layer::bias(const std::string& name,
                        const std::vector<ProgramBuilder::PartShape>& parts, bool sharded) {
  // A bias after a row-parallel matrix is added to this rank's tokens only.
  return builder_.vector(name, parts, sharded, true, !sharded, InitialValue::kZero);
}

void Layer::make_projections() {
  const Transformer& model = builder_.job().model;
  const Copies saved = Copies::kPerLayerAndMicroBatch;
  const bool accumulates = builder_.job().software.accumulation == GradientAccumulation::kFused;
  qkv_.name = "attention.qkv";
  qkv_.compute = shape_.compute;
  using Shapes = std::vector<ProgramBuilder::PartShape>;
  const auto parts = [&](const std::string& what, std::int64_t columns) {
    return std::pair<Shapes, Shapes>{
        {{"attention.query_" + what, model.query_size(), columns}},
        {{"attention.key_" + what, model.key_value_size(), columns},
         {"attention.value_" + what, model.key_value_size(), columns}}};
  };
  const bool biased = model.linear_bias || model.qkv_bias;
  auto [weights, key_value_weights] = parts("weight", shape_.hidden);
  auto [biases, key_value_biases] = parts("bias", 1);
  // Where several ranks hold the same keys and values, these have parameters of their own beneath
  // the queries'.
  if (shape_.key_value_copies > 1) {
    qkv_.more_rows =
        builder_.key_value_matrix("attention.key_value_weight", key_value_weights, accumulates);
    if (biased) {
      key_value_bias_ = builder_.key_value_vector("attention.key_value_bias", key_value_biases,
                                                  InitialValue::kZero);
    }
  } else {
    weights.insert(weights.end(), key_value_weights.begin(), key_value_weights.end());
    biases.insert(biases.end(), key_value_biases.begin(), key_value_biases.end());
  }
  qkv_.weight = split_matrix("attention.qkv_weight", weights, 0);
  if (biased) qkv_bias_ = bias("attention.qkv_bias", biases, true);
  qkv_.input = attention_norm_.output;
  qkv_.input_gradient = attention_norm_.output_gradient;
  qkv_.output = builder_.activation("attention.qkv_output", shape_.storage, shape_.block_tokens,
                                    shape_.qkv_columns, saved, Split::kBlock);
  qkv_.output_gradient =
      builder_.activation("attention.qkv_output_gradient", shape_.storage, shape_.block_tokens,
                          shape_.qkv_columns, gradient_copies(), Split::kBlock);
}

void Layer::make_attention_buffers() {
  const Transformer& model = builder_.job().model;
  const Software& software = builder_.job().software;
  const Copies saved = Copies::kPerLayerAndMicroBatch;
  attention_norm_ = make_norm(builder_, "attention.norm", true, saved);

  if (model.latent_attention) {
    latent_.emplace(builder_, attention_norm_);
    qkv_.output = latent_->qkv();
    qkv_.output_gradient = latent_->qkv_gradient();
  } else {
    make_projections();
  }

  context_ = builder_.activation("attention.context", shape_.storage, shape_.block_tokens,
                                 shape_.context_columns, saved, Split::kBlock);
  if (shape_.splits_backward && recomputed().core_attention) {
    context_again_ =
        builder_.activation("attention.context_again", shape_.storage, shape_.block_tokens,
                            shape_.context_columns, Copies::kScratch, Split::kBlock);
  }
  context_gradient_ =
      builder_.activation("attention.context_gradient", shape_.storage, shape_.block_tokens,
                          shape_.context_columns, Copies::kScratch, Split::kBlock);
  if (software.attention == AttentionKernel::kUnfused) {
    const std::int64_t rows = shape_.core_sequences * shape_.core_heads * shape_.core_sequence;
    const auto scores = [&](const char* name, DataType type) {
      core_saved_.push_back({builder_.activation(std::string("attention.") + name, type, rows,
                                                 shape_.core_sequence, saved, Split::kBlock)});
    };
    scores("probabilities", shape_.storage);
    if (shape_.dropout) {
      scores("probabilities_mask", DataType::kBool);
      scores("dropped_probabilities", shape_.storage);
    }
    // An eager softmax of 16-bit scores works in fp32 and keeps its result so.
    if (!software.fused_kernels && shape_.logits_are_narrow) {
      scores("wide_probabilities", DataType::kFp32);
    }
  } else {
    core_saved_.push_back({builder_.activation("attention.core_statistics", shape_.statistics,
                                               shape_.core_sequences * shape_.core_sequence,
                                               shape_.core_heads, saved, Split::kBlock)});
  }

  if (shape_.cp > 1) spread_ = std::make_unique<SpreadAttention>(builder_, core_saved_);

  // Eager rotary embeddings do not work in place: queries and keys are kept before and after.
  // Spread attention keeps its own copies.
  if (model.position_embedding == PositionEmbedding::kRope && !software.fused_rotary &&
      shape_.logits_are_narrow && !latent_ && !spread_) {
    rotated_ = builder_.activation("attention.rotated", shape_.storage, shape_.block_tokens,
                                   (shape_.heads + shape_.key_value_heads) * shape_.head_dim, saved,
                                   Split::kBlock);
  }

  projection_.name = "attention.projection";
  projection_.compute = shape_.compute;
  projection_.weight = split_matrix("attention.projection_weight",
                                    {{"attention.projection_weight", shape_.hidden,
                                      model.num_attention_heads * shape_.value_head_dim}},
                                    1);
  projection_.input = context_;
  projection_.input_gradient = context_gradient_;
  projection_.output =
      builder_.residual_stream("attention.projection_output", shape_.storage, Copies::kScratch);
  attention_residual_ = make_residual("attention", projection_.output);
  if (model.linear_bias) {
    attention_residual_.bias =
        bias("attention.projection_bias", {{"attention.projection_bias", shape_.hidden, 1}}, false);
  }
  if (!latent_) make_whole_buffer(qkv_);
  make_whole_buffer(projection_);
  middle_ = builder_.residual_stream("attention.residual", shape_.storage, saved);
  middle_gradient_ =
      builder_.residual_stream("attention.residual_gradient", shape_.storage, gradient_copies());
}

// What a dense MLP and experts have in common.
void Layer::make_residual_stream() {
  mlp_norm_ = make_norm(builder_, "mlp.norm", true, Copies::kPerLayerAndMicroBatch);
  mlp_output_ = builder_.residual_stream("mlp.second_output", shape_.storage, Copies::kScratch);
  mlp_residual_ = make_residual("mlp", mlp_output_);
}

void Layer::make_mlp_buffers() {
  const Transformer& model = builder_.job().model;
  const Copies saved = Copies::kPerLayerAndMicroBatch;

  const std::int64_t width = model.intermediate_size;
  std::vector<ProgramBuilder::PartShape> weights, biases;
  if (model.gated_mlp) {
    weights = {{"mlp.gate_weight", width, shape_.hidden}, {"mlp.up_weight", width, shape_.hidden}};
    biases = {{"mlp.gate_bias", width, 1}, {"mlp.up_bias", width, 1}};
  } else {
    weights = {{"mlp.up_weight", width, shape_.hidden}};
    biases = {{"mlp.up_bias", width, 1}};
  }
  const std::int64_t columns = shape_.intermediate * (model.gated_mlp ? 2 : 1);
  first_.name = "mlp.first";
  first_.compute = shape_.compute;
  first_.weight = split_matrix("mlp.first_weight", weights, 0);
  if (model.linear_bias) first_bias_ = bias("mlp.first_bias", biases, true);
  first_.input = mlp_norm_.output;
  first_.input_gradient = mlp_norm_.output_gradient;
  first_.output = builder_.activation("mlp.first_output", shape_.storage, shape_.block_tokens,
                                      columns, saved, Split::kBlock);
  first_.output_gradient =
      builder_.activation("mlp.first_output_gradient", shape_.storage, shape_.block_tokens, columns,
                          gradient_copies(), Split::kBlock);

  activation_ = builder_.activation("mlp.activation", shape_.storage, shape_.block_tokens,
                                    shape_.intermediate, saved, Split::kBlock);
  activation_gradient_ =
      builder_.activation("mlp.activation_gradient", shape_.storage, shape_.block_tokens,
                          shape_.intermediate, Copies::kScratch, Split::kBlock);

  second_.name = "mlp.second";
  second_.compute = shape_.compute;
  second_.weight =
      split_matrix("mlp.second_weight", {{"mlp.down_weight", shape_.hidden, width}}, 1);
  second_.input = activation_;
  second_.input_gradient = activation_gradient_;
  second_.output = mlp_output_;
  if (model.linear_bias) {
    mlp_residual_.bias = bias("mlp.second_bias", {{"mlp.down_bias", shape_.hidden, 1}}, false);
  }

  make_whole_buffer(first_);
  make_whole_buffer(second_);
}

// Buffers of all tokens, alive only around the matrix that needs them.
int Layer::whole(const std::string& name, Copies copies) {
  return builder_.activation(name, shape_.storage, shape_.tokens, shape_.hidden, copies,
                             Split::kNone, BufferCategory::kCommunication);
}

ParameterId Layer::split_matrix(const std::string& name,
                                const std::vector<ProgramBuilder::PartShape>& parts,
                                int dimension) {
  switch (builder_.job().plan.tp_kind) {
    case TensorKind::k2d:
      return builder_.square_matrix(name, parts, "");
    case TensorKind::k2_5d:
      return grid_2_5d::matrix(builder_, name, parts);
    default:
      break;
  }
  const bool accumulates = builder_.job().software.accumulation == GradientAccumulation::kFused;
  return builder_.matrix(name, parts, dimension, true, accumulates, shape_.weight);
}

void Layer::make_whole_buffer(megatron_1d::ColumnParallel& linear) {
  if (squares()) return grid_2d::make_buffers(builder_, linear);
  if (!shape_.sequence_parallel) return;
  if (rings()) overlapped_1d::make_buffers(builder_, linear);
  linear.input_whole = whole(linear.name + "_input_whole", Copies::kScratch);
  linear.input_gradient_whole = whole(linear.name + "_input_gradient_whole", Copies::kScratch);
}

void Layer::make_whole_buffer(megatron_1d::RowParallel& linear) {
  if (squares()) return grid_2d::make_buffers(builder_, linear);
  if (!shape_.sequence_parallel) return;
  if (rings()) overlapped_1d::make_buffers(builder_, linear, gradient_copies());
  linear.output_whole = whole(linear.name + "_output_whole", Copies::kScratch);
  linear.output_gradient_whole = whole(linear.name + "_output_gradient_whole", gradient_copies());
}

Layer::Residual Layer::make_residual(const std::string& half, int branch) {
  Residual residual;
  residual.name = half;
  residual.branch = branch;
  if (!shape_.dropout) return residual;
  residual.mask =
      builder_.residual_stream(half + ".mask", DataType::kBool, Copies::kPerLayerAndMicroBatch);
  if (!builder_.job().software.fused_kernels) {
    residual.dropped =
        builder_.residual_stream(half + ".dropped", shape_.storage, Copies::kScratch);
  }
  residual.branch_gradient =
      builder_.residual_stream(half + ".branch_gradient", shape_.storage, gradient_copies());
  return residual;
}

Kernel Layer::kernel(KernelKind kind, std::int64_t rows, std::int64_t columns, bool fused,
                     bool bias) const {
  Kernel result;
  result.kind = kind;
  result.rows = rows;
  result.columns = columns;
  result.type = result.output = shape_.storage;
  result.fused = fused;
  result.bias = bias;
  return result;
}

Kernel Layer::rotary(KernelKind kind) const {
  Kernel result =
      kernel(kind, shape_.block_tokens, (shape_.heads + shape_.key_value_heads) * shape_.head_dim,
             builder_.job().software.fused_rotary);
  result.head_dim = shape_.head_dim;
  return result;
}

// -- Forward
// ----------------------------------------------------------------------------------------

int Layer::attention_graph() const {
  const Software& software = builder_.job().software;
  const bool captured = software.graph_scope.layer || software.graph_scope.attention;
  return software.launch == Launch::kCudaGraph && captured ? kAttentionGraph : -1;
}

int Layer::mlp_graph(Mlp mlp) const {
  const Software& software = builder_.job().software;
  const GraphScope& scope = software.graph_scope;
  if (software.launch != Launch::kCudaGraph) return -1;
  if (scope.layer) return kAttentionGraph;
  return (mlp == Mlp::kDense ? scope.mlp : scope.experts) ? kMlpGraph : -1;
}

void Layer::capture_norm(OperationList& list, Mlp mlp, int first) const {
  const Software& software = builder_.job().software;
  const bool captured = software.launch == Launch::kCudaGraph && software.graph_scope.router;
  if (captured && mlp == Mlp::kExperts) list.capture(first, kMlpGraph);
}

void Layer::attention_forward(OperationList& list, const LayerParts& kept) {
  const int first = list.size();
  if (!kept.norms) norm_forward(builder_, list, attention_norm_, {hidden_});
  projections_forward(list, kept);
  if (spread_) {
    spread_->forward(list, qkv_.output, context_, kept.core_attention);
  } else if (!kept.core_attention) {
    attention_core(list, "attention.core", context_);
  }
  megatron_1d::forward(builder_, list, projection_);
  residual_forward(list, attention_residual_, {hidden_}, {middle_});
  if (const int graph = attention_graph(); graph >= 0) list.capture(first, graph);
}

std::vector<ParameterId> Layer::qkv_biases() const {
  if (key_value_bias_ == kNoParameter) return {qkv_bias_};
  return {qkv_bias_, key_value_bias_};
}

void Layer::projections_forward(OperationList& list, const LayerParts& kept) {
  if (latent_) return latent_->forward(list, kept.up_projections);
  megatron_1d::forward(builder_, list, qkv_);
  if (qkv_bias_ != kNoParameter) {
    std::vector<BufferRef> reads = {{qkv_.output}};
    for (const ParameterId id : qkv_biases()) reads.push_back({builder_.parameter(id).family});
    list.add("attention.qkv_bias",
             kernel(KernelKind::kBiasAdd, shape_.block_tokens, shape_.qkv_columns, true),
             std::move(reads), {{qkv_.output}});
  }
  if (builder_.job().model.position_embedding == PositionEmbedding::kRope) {
    std::vector<BufferRef> writes = {{qkv_.output}};
    if (rotated_ >= 0) writes.push_back({rotated_});
    list.add("attention.rotary", rotary(KernelKind::kRotaryForward), {{qkv_.output}},
             std::move(writes));
  }
}

// What of the way to the core's operands runs again: in a recomputed part of latent attention.
void Layer::projections_again(OperationList& list) {
  if (!latent_ || !recomputed().up_projections) return;
  if (recomputed().norms) norm_forward(builder_, list, attention_norm_, {hidden_});
  latent_->up_forward(list);
}

void Layer::attention_core(OperationList& list, const std::string& name, int context) {
  std::vector<BufferRef> writes = {{context}};
  writes.insert(writes.end(), core_saved_.begin(), core_saved_.end());
  list.add(name, core_shape(builder_, false), {{qkv_.output}}, std::move(writes));
}

void Layer::attention_core_again(OperationList& list, int context) {
  if (spread_) return spread_->again(list, context);
  attention_core(list, "attention.core_again", context);
}

void Layer::mlp_forward(OperationList& list, Mlp mlp, const LayerParts& kept) {
  const int first = list.size();
  if (!kept.norms) norm_forward(builder_, list, mlp_norm_, {middle_});
  capture_norm(list, mlp, first);
  if (mlp == Mlp::kDense ? kept.mlp : kept.experts) return;
  if (mlp == Mlp::kExperts) {
    experts_->forward(list, kept);
  } else {
    megatron_1d::forward(builder_, list, first_);
    activation_forward(list);
    megatron_1d::forward(builder_, list, second_);
  }
  residual_forward(list, mlp_residual_, {middle_}, {hidden_, 1});
  if (const int graph = mlp_graph(mlp); graph >= 0) list.capture(first, graph);
}

void Layer::activation_forward(OperationList& list) {
  const Transformer& model = builder_.job().model;
  const bool fused = builder_.job().software.fused_kernels;
  const bool gelu = !model.gated_mlp && model.activation == Activation::kGelu;
  const bool in_kernel = gelu && fused && first_bias_ != kNoParameter;
  std::vector<BufferRef> reads = {{first_.output}};
  if (first_bias_ != kNoParameter) {
    const int bias = builder_.parameter(first_bias_).family;
    if (in_kernel) {
      reads.push_back({bias});
    } else {
      const std::int64_t columns = builder_.parameter(first_bias_).rows;
      list.add("mlp.first_bias", kernel(KernelKind::kBiasAdd, shape_.block_tokens, columns, true),
               {{first_.output}, {bias}}, {{first_.output}});
    }
  }
  const KernelKind kind = model.gated_mlp ? KernelKind::kSwigluForward
                          : gelu          ? KernelKind::kGeluForward
                                          : KernelKind::kReluForward;
  list.add("mlp.activation",
           kernel(kind, shape_.block_tokens, shape_.intermediate, fused, in_kernel),
           std::move(reads), {{activation_}});
}

void Layer::residual_forward(OperationList& list, const Residual& residual, BufferRef input,
                             BufferRef output) {
  const std::int64_t rows = shape_.local_tokens, columns = shape_.hidden;
  const bool fused = builder_.job().software.fused_kernels;
  const bool biased = residual.bias != kNoParameter;
  BufferRef branch{residual.branch};
  const BufferRef bias{biased ? builder_.parameter(residual.bias).family : -1};
  if (fused) {
    std::vector<BufferRef> reads = {branch};
    if (biased) reads.push_back(bias);
    reads.push_back(input);
    std::vector<BufferRef> writes = {output};
    if (shape_.dropout) writes.push_back({residual.mask});
    list.add(residual.name + ".residual",
             kernel(shape_.dropout ? KernelKind::kBiasDropoutAddForward : KernelKind::kResidualAdd,
                    rows, columns, true, biased),
             std::move(reads), std::move(writes));
    return;
  }
  if (biased) {
    list.add(residual.name + ".bias", kernel(KernelKind::kBiasAdd, rows, columns, false),
             {branch, bias}, {branch});
  }
  if (shape_.dropout) {
    list.add(residual.name + ".dropout", kernel(KernelKind::kDropoutForward, rows, columns, false),
             {branch}, {{residual.dropped}, {residual.mask}});
    branch = {residual.dropped};
  }
  list.add(residual.name + ".residual", kernel(KernelKind::kResidualAdd, rows, columns, false),
           {branch, input}, {output});
}

// -- Backward
// ---------------------------------------------------------------------------------------

void Layer::matrix_backward(OperationList& list, const megatron_1d::RowParallel& linear,
                            Backward part) {
  if (part == Backward::kWhole) {
    megatron_1d::backward(builder_, list, linear);
  } else {
    megatron_1d::backward_input(builder_, list, linear);
  }
}

std::vector<int> Layer::matrix_backward(OperationList& list,
                                        const megatron_1d::ColumnParallel& linear, Backward part) {
  if (part == Backward::kWhole) return megatron_1d::backward(builder_, list, linear);
  megatron_1d::backward_input(builder_, list, linear);
  return {};
}

void Layer::weights_backward(OperationList& list, Mlp mlp) {
  const auto half = [&](megatron_1d::RowParallel row, const Residual& residual,
                        BufferRef output_gradient, const megatron_1d::ColumnParallel& column) {
    row.output_gradient = branch_gradient(residual, output_gradient);
    const int gathered = megatron_1d::gather_again(builder_, list, column);
    megatron_1d::backward_weight(builder_, list, row);
    megatron_1d::backward_weight(builder_, list, column, gathered);
  };
  const BufferRef output_gradient{hidden_gradient_, 1};
  if (mlp == Mlp::kExperts) {
    experts_->backward_weight(list, branch_gradient(mlp_residual_, output_gradient));
  } else {
    half(second_, mlp_residual_, output_gradient, first_);
  }
  if (!latent_) return half(projection_, attention_residual_, {middle_gradient_}, qkv_);
  megatron_1d::RowParallel projection = projection_;
  projection.output_gradient = branch_gradient(attention_residual_, {middle_gradient_});
  megatron_1d::backward_weight(builder_, list, projection);
  latent_->backward_weight(list);
}

void Layer::mlp_backward(OperationList& list, Mlp mlp, Backward part) {
  const int first = list.size();
  const BufferRef output_gradient{hidden_gradient_, 1};
  if (recomputed().norms) norm_forward(builder_, list, mlp_norm_, {middle_});
  if (recomputed().mlp && mlp == Mlp::kDense) {
    // The framework runs the whole part again, its last product too.
    megatron_1d::forward(builder_, list, first_);
    activation_forward(list);
    megatron_1d::forward(builder_, list, second_);
  }
  if (recomputed().experts && mlp == Mlp::kExperts) experts_->forward(list, {});
  const BufferRef branch = residual_backward(list, mlp_residual_, output_gradient);
  std::vector<int> gathered;
  if (mlp == Mlp::kExperts) {
    experts_->backward(list, branch, part == Backward::kWhole);
  } else {
    megatron_1d::RowParallel second = second_;
    second.output_gradient = branch;
    matrix_backward(list, second, part);
    activation_backward(list);
    gathered = matrix_backward(list, first_, part);
  }
  const int norm = list.size();
  norm_backward(builder_, list, mlp_norm_, {middle_}, {middle_gradient_}, gathered);
  add_paths(list, "mlp.residual_backward", {middle_gradient_}, output_gradient);
  capture_norm(list, mlp, norm);
  if (const int graph = mlp_graph(mlp); graph >= 0) list.capture(first, graph);
}

void Layer::activation_backward(OperationList& list) {
  const Transformer& model = builder_.job().model;
  const bool fused = builder_.job().software.fused_kernels;
  const bool gelu = !model.gated_mlp && model.activation == Activation::kGelu;
  const bool biased = first_bias_ != kNoParameter;
  const bool in_kernel = gelu && fused && biased;
  std::vector<BufferRef> reads = {{activation_gradient_}, {first_.output}};
  std::vector<BufferRef> writes = {{first_.output_gradient}};
  if (in_kernel) {
    const Parameter& bias = builder_.parameter(first_bias_);
    reads.push_back({bias.family});
    reads.push_back({bias.gradient});
    writes.push_back({bias.gradient});
  }
  const KernelKind kind = model.gated_mlp ? KernelKind::kSwigluBackward
                          : gelu          ? KernelKind::kGeluBackward
                                          : KernelKind::kReluBackward;
  list.add("mlp.activation_backward",
           kernel(kind, shape_.block_tokens, shape_.intermediate, fused, in_kernel),
           std::move(reads), std::move(writes));
  if (biased && !in_kernel) {
    const Parameter& bias = builder_.parameter(first_bias_);
    list.add("mlp.first_bias_backward",
             kernel(KernelKind::kBiasBackward, shape_.block_tokens, bias.rows, true),
             {{first_.output_gradient}, {bias.gradient}}, {{bias.gradient}});
  }
}

void Layer::attention_backward(OperationList& list, Backward part) {
  const int first = list.size();
  megatron_1d::RowParallel projection = projection_;
  projection.output_gradient = residual_backward(list, attention_residual_, {middle_gradient_});
  if (spread_) spread_->begin_backward(list);
  matrix_backward(list, projection, part);

  projections_again(list);
  const int context = context_again_ >= 0 ? context_again_ : context_;
  if (recomputed().core_attention) {
    attention_core_again(list, context);
  }
  attention_core_backward(list, context);
  projections_backward(list, part);
  add_paths(list, "attention.residual_backward", {hidden_gradient_}, {middle_gradient_});
  if (const int graph = attention_graph(); graph >= 0) list.capture(first, graph);
}

void Layer::projections_backward(OperationList& list, Backward part) {
  if (latent_) {
    if (recomputed().norms && !recomputed().up_projections) {
      norm_forward(builder_, list, attention_norm_, {hidden_});
    }
    latent_->backward(list, part == Backward::kWhole);
    norm_backward(builder_, list, attention_norm_, {hidden_}, {hidden_gradient_}, {});
    return;
  }
  if (builder_.job().model.position_embedding == PositionEmbedding::kRope) {
    list.add("attention.rotary_backward", rotary(KernelKind::kRotaryBackward),
             {{qkv_.output_gradient}}, {{qkv_.output_gradient}});
  }
  if (qkv_bias_ != kNoParameter) {
    std::vector<BufferRef> reads = {{qkv_.output_gradient}}, gradients;
    for (const ParameterId id : qkv_biases())
      gradients.push_back({builder_.parameter(id).gradient});
    reads.insert(reads.end(), gradients.begin(), gradients.end());
    list.add("attention.qkv_bias_backward",
             kernel(KernelKind::kBiasBackward, shape_.block_tokens, shape_.qkv_columns, true),
             std::move(reads), std::move(gradients));
  }
  if (recomputed().norms) norm_forward(builder_, list, attention_norm_, {hidden_});
  const std::vector<int> gathered = matrix_backward(list, qkv_, part);
  norm_backward(builder_, list, attention_norm_, {hidden_}, {hidden_gradient_}, gathered);
}

void Layer::attention_core_backward(OperationList& list, int context) {
  if (spread_) {
    return spread_->backward(list, {context_gradient_}, context, qkv_.output_gradient);
  }
  std::vector<BufferRef> reads = {{context_gradient_}, {qkv_.output}, {context}};
  reads.insert(reads.end(), core_saved_.begin(), core_saved_.end());
  if (rotated_ >= 0) reads.push_back({rotated_});
  list.add("attention.core_backward", core_shape(builder_, true), std::move(reads),
           {{qkv_.output_gradient}});
}

BufferRef Layer::residual_backward(OperationList& list, const Residual& residual,
                                   BufferRef output_gradient) {
  const std::int64_t rows = shape_.local_tokens, columns = shape_.hidden;
  const bool fused = builder_.job().software.fused_kernels;
  const bool biased = residual.bias != kNoParameter;
  const BufferRef bias{biased ? builder_.parameter(residual.bias).gradient : -1};
  const BufferRef gradient = branch_gradient(residual, output_gradient);
  if (shape_.dropout) {
    const bool in_kernel = fused && biased;
    std::vector<BufferRef> reads = {output_gradient, {residual.mask}};
    std::vector<BufferRef> writes = {gradient};
    if (in_kernel) {
      reads.push_back(bias);
      writes.push_back(bias);
    }
    list.add(residual.name + ".dropout_backward",
             kernel(in_kernel ? KernelKind::kBiasDropoutAddBackward : KernelKind::kDropoutBackward,
                    rows, columns, fused, in_kernel),
             std::move(reads), std::move(writes));
    if (in_kernel) return gradient;
  }
  if (biased) {
    list.add(residual.name + ".bias_backward",
             kernel(KernelKind::kBiasBackward, rows, columns, fused), {gradient, bias}, {bias});
  }
  return gradient;
}

void Layer::add_paths(OperationList& list, const std::string& name, BufferRef gradient,
                      BufferRef other) {
  list.add(name, kernel(KernelKind::kGradientAdd, shape_.local_tokens, shape_.hidden, true),
           {gradient, other}, {gradient});
}

}  // namespace headway
