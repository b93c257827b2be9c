#include "sim/program/multi_token_prediction.hpp"

#include <utility>

#include "sim/program/sequence/megatron_sequence.hpp"

namespace headway {

using Split = ProgramBuilder::Split;

namespace {

void pass(std::vector<Step>& steps, const Layer::Parts& parts, int layer) {
  for (const int part : parts) steps.push_back({part, layer});
}

}  // namespace

MultiTokenPrediction::MultiTokenPrediction(ProgramBuilder& builder, const Layer& layer,
                                           Embedding& embedding, const HeadAndLoss& head)
    : builder_(builder), shape_(builder.shape()), layer_(layer) {
  const std::int64_t depth = builder_.job().model.num_nextn_predict_layers;
  for (int k = 0; k < depth; ++k) modules_.push_back(make_module(k, embedding, head));
}

MultiTokenPrediction::Parts MultiTokenPrediction::make_parts(int depth) {
  const Copies saved = Copies::kPerMicroBatch, once = Copies::kScratch;
  Parts parts;
  parts.name = "prediction" + std::to_string(depth);
  parts.tokens = builder_.activation(parts.name + ".tokens", DataType::kInt64, shape_.tokens, 1,
                                     saved, Split::kNone, BufferCategory::kInput);
  BufferFamily& tokens = builder_.program().buffers[static_cast<std::size_t>(parts.tokens)];
  tokens.initial = InitialValue::kTokens;
  tokens.ahead = depth + 1;
  const auto stream = [&](const char* name, Copies copies) {
    return builder_.residual_stream(parts.name + name, shape_.storage, copies);
  };
  parts.words = stream(".words", saved);
  parts.words_gradient = stream(".words_gradient", once);
  parts.hidden_gradient = stream(".hidden_gradient", once);
  parts.words_norm = make_norm(builder_, parts.name + ".words_norm", false, saved);
  parts.hidden_norm = make_norm(builder_, parts.name + ".hidden_norm", false, saved);
  // What they give is joined at once.
  for (const int output : {parts.words_norm.output, parts.hidden_norm.output}) {
    builder_.program().buffers[static_cast<std::size_t>(output)].per_micro_batch = false;
  }
  const auto both = [&](const char* name, Copies copies) {
    return builder_.activation(parts.name + name, shape_.storage, shape_.local_tokens,
                               2 * shape_.hidden, copies,
                               shape_.sequence_parallel ? Split::kRows : Split::kNone);
  };
  parts.joined = both(".joined", saved);
  parts.joined_gradient = both(".joined_gradient", once);
  make_projection(parts);
  return parts;
}

// Split by its rows over tp; its columns of the result are then gathered, and of the tokens each
// rank takes its share (Megatron-LM, eh_proj).
void MultiTokenPrediction::make_projection(Parts& parts) {
  const Copies once = Copies::kScratch;
  const bool fused = builder_.job().software.accumulation == GradientAccumulation::kFused;
  megatron_1d::ColumnParallel& projection = parts.projection;
  projection.name = parts.name + ".projection";
  projection.compute = shape_.head_compute;
  projection.width = 2 * shape_.hidden;
  projection.weight = builder_.matrix(
      projection.name + "_weight",
      {{projection.name + "_weight", shape_.hidden, 2 * shape_.hidden}}, 0, false, fused);
  projection.input = parts.joined;
  projection.input_gradient = parts.joined_gradient;
  const auto whole = [&](const std::string& name, std::int64_t columns, Copies copies) {
    return builder_.activation(name, shape_.storage, shape_.tokens, columns, copies, Split::kNone,
                               BufferCategory::kCommunication);
  };
  const auto part = [&](const char* name, Copies copies) {
    return builder_.activation(projection.name + name, shape_.storage, shape_.tokens,
                               shape_.hidden / shape_.tp, copies, Split::kColumns);
  };
  const Copies gradient = shape_.splits_backward ? Copies::kPerMicroBatch : once;
  if (splits_columns()) {
    projection.output = part("_output", once);
    parts.gathered = layer_.hidden();
    parts.gathered_gradient = layer_.hidden_gradient();
  } else {
    projection.output = layer_.hidden();
  }
  projection.output_gradient =
      splits_columns() ? part("_output_gradient", gradient) : layer_.hidden_gradient();
  if (!shape_.sequence_parallel) return;
  parts.gathered = whole(projection.name + "_output_whole", shape_.hidden, once);
  parts.gathered_gradient = whole(projection.name + "_output_gradient_whole", shape_.hidden, once);
  projection.input_whole = whole(projection.name + "_input_whole", 2 * shape_.hidden, once);
  projection.input_gradient_whole =
      whole(projection.name + "_input_gradient_whole", 2 * shape_.hidden, once);
}

void MultiTokenPrediction::columns(OperationList& list, const std::string& name, KernelKind kind,
                                   std::vector<BufferRef> reads,
                                   std::vector<BufferRef> writes) const {
  Kernel kernel;
  kernel.kind = kind;
  kernel.rows = shape_.local_tokens;
  kernel.columns = 2 * shape_.hidden;
  kernel.type = kernel.output = shape_.storage;
  list.add(name, kernel, std::move(reads), std::move(writes));
}

// From the hidden states before, at the place -1, to those of the module's layer.
void MultiTokenPrediction::join(OperationList& list, const Parts& parts) const {
  norm_forward(builder_, list, parts.words_norm, {parts.words});
  norm_forward(builder_, list, parts.hidden_norm, {layer_.hidden(), -1});
  columns(list, parts.name + ".join", KernelKind::kJoinColumns,
          {{parts.words_norm.output}, {parts.hidden_norm.output}}, {{parts.joined}});
  megatron_1d::forward(builder_, list, parts.projection);
  if (!splits_columns()) return;
  Collective gather;
  gather.kind = CollectiveKind::kAllGather;
  gather.elements = shape_.tokens * shape_.hidden;
  gather.type = shape_.storage;
  list.add(parts.projection.name + "_gather_columns", gather, {{parts.projection.output}},
           {{parts.gathered}}, Cause::kTensorParallel);
  list.last().group = builder_.tensor_group();
  if (!shape_.sequence_parallel) return;
  Kernel split;
  split.kind = KernelKind::kSplitSequence;
  split.rows = shape_.local_tokens;
  split.columns = shape_.hidden;
  split.type = split.output = shape_.storage;
  list.add(parts.projection.name + "_split_tokens", split, {{parts.gathered}}, {{layer_.hidden()}});
}

void MultiTokenPrediction::join_backward(OperationList& list, const Parts& parts,
                                         bool whole) const {
  const megatron_1d::ColumnParallel& projection = parts.projection;
  if (shape_.sequence_parallel) {
    megatron_sequence::gather(builder_, list, projection.name + "_gradient_gather",
                              {layer_.hidden_gradient()}, {parts.gathered_gradient}, shape_.hidden);
  }
  if (splits_columns()) {
    Kernel split;
    split.kind = KernelKind::kSplitSequence;
    split.rows = shape_.tokens;
    split.columns = shape_.hidden / shape_.tp;
    split.type = split.output = shape_.storage;
    list.add(projection.name + "_split_columns", split, {{parts.gathered_gradient}},
             {{projection.output_gradient}});
  }
  std::vector<int> after;
  if (whole) {
    after = megatron_1d::backward(builder_, list, projection);
  } else {
    megatron_1d::backward_input(builder_, list, projection);
  }
  columns(list, parts.name + ".join_backward", KernelKind::kSplitColumns, {{parts.joined_gradient}},
          {{parts.words_norm.output_gradient}, {parts.hidden_norm.output_gradient}});
  list.last().after = std::move(after);
  norm_backward(builder_, list, parts.hidden_norm, {layer_.hidden(), -1}, {parts.hidden_gradient},
                {});
  Kernel add;
  add.kind = KernelKind::kGradientAdd;
  add.rows = shape_.local_tokens;
  add.columns = shape_.hidden;
  add.type = add.output = shape_.storage;
  const BufferRef before{layer_.hidden_gradient(), -1};
  list.add(parts.name + ".hidden_gradient_add", add, {before, {parts.hidden_gradient}}, {before});
  norm_backward(builder_, list, parts.words_norm, {parts.words}, {parts.words_gradient}, {});
}

MultiTokenPrediction::Module MultiTokenPrediction::make_module(int depth, Embedding& embedding,
                                                               const HeadAndLoss& head) {
  const Parts parts = make_parts(depth);
  const auto layers = static_cast<int>(shape_.layers);
  const std::int64_t modules = builder_.job().model.num_nextn_predict_layers;
  Module module;
  module.layer = layers + 1 + 2 * depth;
  OperationList embed(parts.name + ".embed");
  embedding.look_up(embed, parts.name + ".", {parts.tokens}, {parts.words});
  module.embed = builder_.add_template(embed);
  OperationList forward(parts.name + ".join");
  join(forward, parts);
  module.join = builder_.add_template(forward);
  // The last module's gradient of the table comes first; the tied head's comes before it.
  const bool begins = depth + 1 == modules && !builder_.job().model.tie_word_embeddings;
  const auto backward = [&](const char* name, bool whole) {
    OperationList list(parts.name + name);
    join_backward(list, parts, whole);
    embedding.add_gradient(list, parts.name + ".", {parts.tokens}, {parts.words_gradient}, !begins);
    return builder_.add_template(list);
  };
  module.backward = backward(".backward", true);
  module.head = std::make_unique<HeadAndLoss>(
      builder_, layer_, head,
      PredictionHead{parts.name, depth + 1, kPredictionWeight / static_cast<double>(modules)});
  inputs_.push_back({parts.tokens});
  inputs_.push_back({module.head->targets()});
  if (!shape_.splits_backward) return module;
  module.backward_input = backward(".backward_input", false);
  OperationList weight(parts.name + ".backward_weight");
  megatron_1d::backward_weight(builder_, weight, parts.projection,
                               megatron_1d::gather_again(builder_, weight, parts.projection));
  module.backward_weight = builder_.add_template(weight);
  return module;
}

std::vector<int> MultiTokenPrediction::layers() const {
  std::vector<int> numbers;
  for (const Module& module : modules_) numbers.push_back(module.layer);
  return numbers;
}

std::vector<Step> MultiTokenPrediction::forward(bool converts) const {
  std::vector<Step> steps;
  for (const Module& module : modules_) {
    if (converts) steps.push_back({layer_.quantise_weights(module.layer), module.layer});
    steps.push_back({module.embed, module.layer});
    steps.push_back({module.join, module.layer});
    pass(steps, layer_.forward(module.layer), module.layer);
  }
  for (const Module& module : modules_) steps.push_back({module.head->forward(), module.layer + 1});
  return steps;
}

std::vector<Step> MultiTokenPrediction::backward(bool whole, bool again) const {
  std::vector<Step> steps;
  for (const Module& module : modules_) {
    steps.push_back(
        {whole ? module.head->backward() : module.head->backward_input(), module.layer + 1});
  }
  for (auto module = modules_.rbegin(); module != modules_.rend(); ++module) {
    const int layer = module->layer;
    if (again) {
      steps.push_back({module->join, layer});
      pass(steps, layer_.forward_again(layer), layer);
    }
    pass(steps, whole ? layer_.backward(layer) : layer_.backward_input(layer), layer);
    steps.push_back({whole ? module->backward : module->backward_input, layer});
  }
  return steps;
}

std::vector<Step> MultiTokenPrediction::backward_weight() const {
  std::vector<Step> steps;
  for (const Module& module : modules_) {
    steps.push_back({module.head->backward_weight(), module.layer + 1});
  }
  for (auto module = modules_.rbegin(); module != modules_.rend(); ++module) {
    steps.push_back({layer_.backward_weight(module->layer), module->layer});
    steps.push_back({module->backward_weight, module->layer});
  }
  return steps;
}

}  // namespace headway
