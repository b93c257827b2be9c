#include "sim/program/pipeline_vocabulary.hpp"

#include <utility>

namespace headway {

using Split = ProgramBuilder::Split;

PipelineVocabulary::PipelineVocabulary(ProgramBuilder& builder, const Layer& layer)
    : builder_(builder), shape_(builder.shape()) {
  group_ = builder_.group({"tp", "pp"});
  columns_ = shape_.padded_vocabulary / (shape_.tp * shape_.pp);
  if (!interlaced()) {
    stream_ = builder_.stream("vocabulary");
    const auto port = [&](const char* name) {
      return builder_.port({std::string("vocabulary.") + name, false, true});
    };
    input_port_ = port("input");
    scored_port_ = port("scored");
    if (!one_barrier()) gradient_port_ = port("gradient");
    embedded_port_ = port("embedded");
    spread_port_ = port("spread");
    embedded_ports_ = {{embedded_port_}};
    scored_ports_ = {{one_barrier() ? scored_port_ : gradient_port_}};
  }
  make_parameters();
  make_buffers(layer);
  make_embedding();
  make_first_stage(layer);
  make_last_stage(layer);
  const int last = shape_.pp - 1;
  send_input_ = broadcast("vocabulary.send_input", norm_.output, last, true, input_port_);
  receive_input_ = broadcast("vocabulary.receive_input", norm_.output, last, false, input_port_);
  score_ = interlaced() ? make_interlaced_score(false) : make_score(false);
  score_last_ = interlaced() ? make_interlaced_score(true) : make_score(true);
  if (!interlaced()) weigh_ = make_weigh();
  send_spread_ = broadcast("vocabulary.send_gradient", embedded_gradient_, 0, true, spread_port_);
  receive_spread_ =
      broadcast("vocabulary.receive_gradient", embedded_gradient_, 0, false, spread_port_);
  make_spread();
  if (interlaced()) return;
  OperationList drain("vocabulary.drain");
  drain.add("await", HostWork{HostKind::kAwait}, {}, {}, Cause::kPipelineParallel);
  drain.last().joins = {stream_};
  drain_ = builder_.add_template(drain);
}

VocabularyOrder PipelineVocabulary::order(int rank) const {
  if (interlaced()) return interlaced_order(rank, shape_.schedule);
  return vocabulary_parallel_order(one_barrier() ? 1 : 2, rank, shape_.schedule);
}

void PipelineVocabulary::make_parameters() {
  const Transformer& model = builder_.job().model;
  const std::vector<std::string> axes = {"tp", "pp"};
  word_ = builder_.matrix("embedding.word_weight",
                          {{"embedding.word_weight", shape_.padded_vocabulary, shape_.hidden}}, 0,
                          false, false, {}, axes);
  if (model.position_embedding == PositionEmbedding::kLearned) {
    const std::int64_t positions = model.max_positions > 0 ? model.max_positions : shape_.sequence;
    position_ =
        builder_.matrix("embedding.position_weight",
                        {{"embedding.position_weight", positions, shape_.hidden}}, -1, false, true);
  }
  norm_ = make_norm(builder_, "head.norm", false, Copies::kPerMicroBatch);
  head_.name = "head";
  head_.compute = shape_.head_compute;
  head_.weight =
      model.tie_word_embeddings
          ? word_
          : builder_.matrix(
                "head.weight", {{"head.weight", shape_.padded_vocabulary, shape_.hidden}}, 0, false,
                builder_.job().software.accumulation == GradientAccumulation::kFused, {}, axes);
}

int PipelineVocabulary::per_micro_batch(const std::string& name, DataType type,
                                        std::int64_t columns) {
  return builder_.activation(name, type, shape_.tokens, columns, Copies::kPerMicroBatch);
}

void PipelineVocabulary::make_buffers(const Layer& layer) {
  const auto input = [&](const char* name, InitialValue initial) {
    const int buffer =
        builder_.activation(name, DataType::kInt64, shape_.tokens, 1, Copies::kPerMicroBatch,
                            Split::kNone, BufferCategory::kInput);
    builder_.program().buffers[static_cast<std::size_t>(buffer)].initial = initial;
    return buffer;
  };
  tokens_ = input("tokens", InitialValue::kTokens);
  targets_ = input("targets", InitialValue::kTargets);
  embedded_ = layer.hidden();
  embedded_gradient_ = layer.hidden_gradient();
  if (shape_.dropout) {
    embedded_ = per_micro_batch("embedding.undropped", shape_.storage, shape_.hidden);
    embedded_gradient_ =
        per_micro_batch("embedding.undropped_gradient", shape_.storage, shape_.hidden);
    mask_ = per_micro_batch("embedding.mask", DataType::kBool, shape_.hidden);
  }

  // Of several micro-batches at once: what is exchanged is waited for an interval later.
  norm_.output_gradient = per_micro_batch("head.input_gradient", shape_.storage, shape_.hidden);
  if (one_barrier()) {
    target_rows_ = per_micro_batch("head.target_rows", shape_.storage, shape_.hidden);
  }
  const auto shard = [&](const char* name, DataType type, Copies copies) {
    const int buffer = builder_.activation(name, type, shape_.tokens, columns_, copies);
    builder_.program().buffers[static_cast<std::size_t>(buffer)].column_group = group_;
    return buffer;
  };
  const DataType wide = widened() ? shape_.statistics : shape_.storage;
  exponentials_ = shard("head.exponentials", wide, Copies::kPerMicroBatch);
  head_.input = norm_.output;
  head_.output = head_.output_gradient = exponentials_;
  if (widened()) {
    head_.output = shard("head.logits", shape_.storage, Copies::kScratch);
    head_.output_gradient = shard("head.logits_gradient", shape_.storage, Copies::kScratch);
  }
  const auto per_token = [&](const char* name) {
    return per_micro_batch(name, shape_.statistics, 1);
  };
  if (!interlaced()) own_maximum_ = per_token("loss.own_maximum");
  maximum_ = per_token("loss.maximum");
  predicted_ = per_token("loss.predicted");
  sums_ = per_token("loss.sums");
  divisor_ = interlaced() ? sums_ : per_token("loss.divisor");
  loss_ = per_token("loss.tokens");
  total_ = builder_.scalar("loss.total");
}

Kernel PipelineVocabulary::kernel(KernelKind kind, std::int64_t columns, DataType type) const {
  Kernel result;
  result.kind = kind;
  result.rows = shape_.tokens;
  result.columns = columns;
  result.type = result.output = type;
  result.fused = builder_.job().software.fused_loss;
  return result;
}

Kernel PipelineVocabulary::logits_kernel(KernelKind kind) const {
  return kernel(kind, columns_, widened() ? shape_.statistics : shape_.storage);
}

std::vector<PortRef> PipelineVocabulary::waited(int port) const {
  return port >= 0 ? std::vector<PortRef>{{port}} : std::vector<PortRef>{};
}

void PipelineVocabulary::exchange(OperationList& list, const std::string& name, Operation operation,
                                  std::vector<BufferRef> reads, std::vector<BufferRef> writes) {
  const bool collective = std::holds_alternative<Collective>(operation);
  list.add(name, std::move(operation), std::move(reads), std::move(writes),
           collective ? Cause::kPipelineParallel : Cause::kCompute);
  TemplateOperation& added = list.last();
  added.stream = stream_;
  if (collective) added.group = group_;
  if (stream_ != 0) added.joins = {0};
}

void PipelineVocabulary::all_reduce(OperationList& list, const std::string& name, int buffer,
                                    std::int64_t elements, DataType type, ReduceOperator reduce) {
  Collective collective;
  collective.reduce = reduce;
  collective.elements = elements;
  collective.type = type;
  exchange(list, name, collective, {{buffer}}, {{buffer}});
}

int PipelineVocabulary::broadcast(const std::string& name, int buffer, int root, bool is_root,
                                  int port) {
  OperationList list(name);
  Collective collective;
  collective.kind = CollectiveKind::kBroadcast;
  collective.root = root;
  collective.elements = shape_.tokens * shape_.hidden;
  collective.type = shape_.storage;
  // The root keeps what it has.
  const std::vector<BufferRef> sent = {{buffer}}, none;
  exchange(list, "broadcast", collective, is_root ? sent : none, is_root ? none : sent);
  list.last().group = builder_.group({"pp"});
  // Whoever receives is ready before its compute needs it.
  if (!is_root) list.last().joins.clear();
  if (port >= 0) list.last().releases = {{port}};
  return builder_.add_template(list);
}

// -- Embedding
// --------------------------------------------------------------------------------------

void PipelineVocabulary::make_embedding() {
  OperationList list("vocabulary.embed");
  list.add("data", HostWork{HostKind::kAwait}, {}, {{tokens_}, {targets_}}, Cause::kHost);
  list.add("embedding.word", kernel(KernelKind::kEmbeddingForward, shape_.hidden, shape_.storage),
           {{tokens_}, {builder_.parameter(word_).family}}, {{embedded_}});
  all_reduce(list, "embedding.word_all_reduce", embedded_, shape_.tokens * shape_.hidden,
             shape_.storage);
  list.last().releases = waited(embedded_port_);
  embed_ = builder_.add_template(list);
}

void PipelineVocabulary::make_first_stage(const Layer& layer) {
  OperationList forward("embedding.forward"), backward("embedding.backward");
  const auto rows = [&](KernelKind kind) { return kernel(kind, shape_.hidden, shape_.storage); };
  if (position_ != kNoParameter) {
    forward.add("embedding.position", rows(KernelKind::kPositionForward),
                {{embedded_}, {builder_.parameter(position_).family}}, {{embedded_}});
  }
  if (shape_.dropout) {
    forward.add("embedding.dropout", rows(KernelKind::kDropoutForward), {{embedded_}},
                {{layer.hidden()}, {mask_}});
    backward.add("embedding.dropout_backward", rows(KernelKind::kDropoutBackward),
                 {{layer.hidden_gradient()}, {mask_}}, {{embedded_gradient_}});
  }
  if (position_ != kNoParameter) {
    const int gradient = builder_.parameter(position_).gradient;
    backward.add("embedding.position_backward", rows(KernelKind::kPositionBackward),
                 {{embedded_gradient_}, {gradient}}, {{gradient}});
  }
  if (!forward.empty()) first_forward_ = builder_.add_template(forward);
  if (!backward.empty()) first_backward_ = builder_.add_template(backward);
}

void PipelineVocabulary::make_spread() {
  OperationList list("vocabulary.spread");
  const Parameter& word = builder_.parameter(word_);
  Kernel zero = kernel(KernelKind::kZero, shape_.hidden, shape_.storage);
  zero.rows = word.rows;
  list.add("embedding.word_zero", zero, {}, {{word.scratch}});
  list.add("embedding.word_backward",
           kernel(KernelKind::kEmbeddingBackward, shape_.hidden, shape_.storage),
           {{tokens_}, {embedded_gradient_}, {word.scratch}}, {{word.scratch}});
  list.last().awaits = waited(spread_port_);
  megatron_1d::accumulate(builder_, list, "embedding.word_accumulate", word, true);
  spread_ = builder_.add_template(list);
}

// -- Head
// -------------------------------------------------------------------------------------------

void PipelineVocabulary::make_last_stage(const Layer& layer) {
  OperationList forward("head.forward"), backward("head.backward");
  norm_forward(builder_, forward, norm_, {layer.hidden()});
  norm_backward(builder_, backward, norm_, {layer.hidden()}, {layer.hidden_gradient()}, {});
  last_forward_ = builder_.add_template(forward);
  last_backward_ = builder_.add_template(backward);
}

void PipelineVocabulary::logits(OperationList& list, const std::vector<PortRef>& awaits) {
  megatron_1d::forward(builder_, list, head_);
  list.last().awaits = awaits;
  if (!widened()) return;
  Kernel cast = logits_kernel(KernelKind::kCast);
  cast.type = shape_.storage;
  list.add("loss.cast", cast, {{head_.output}}, {{exponentials_}});
}

int PipelineVocabulary::make_score(bool last) {
  OperationList list(last ? "vocabulary.score_last" : "vocabulary.score");
  logits(list, last ? std::vector<PortRef>{} : waited(input_port_));
  list.add("loss.maximum", logits_kernel(KernelKind::kCrossEntropyMaximum), {{exponentials_}},
           {{own_maximum_}});
  list.add("loss.sums", logits_kernel(KernelKind::kCrossEntropySums),
           {{exponentials_}, {own_maximum_}, {targets_}}, {{predicted_}, {sums_}, {exponentials_}});
  if (one_barrier()) products_for_input(list);
  correct_sums(list);
  if (one_barrier()) {
    Kernel corrected =
        kernel(KernelKind::kCrossEntropyInputGradient, shape_.hidden, shape_.storage);
    corrected.scale = shape_.loss_scale;
    exchange(list, "head.input_gradient", corrected,
             {{norm_.output_gradient}, {target_rows_}, {divisor_}}, {{norm_.output_gradient}});
    all_reduce(list, "head.input_gradient_all_reduce", norm_.output_gradient,
               shape_.tokens * shape_.hidden, shape_.storage);
  }
  list.last().releases = waited(scored_port_);
  if (last) sum_loss(list);
  return builder_.add_template(list);
}

// With the local exponentials: their product with the shard, and the targets' rows of it.
void PipelineVocabulary::products_for_input(OperationList& list) {
  if (widened()) {
    Kernel cast = logits_kernel(KernelKind::kCast);
    cast.output = shape_.storage;
    list.add("head.cast_exponentials", cast, {{exponentials_}}, {{head_.output}});
  }
  input_gradient(list);
  list.last().reads.front() = {widened() ? head_.output : exponentials_};
  list.add("head.target_rows", kernel(KernelKind::kEmbeddingForward, shape_.hidden, shape_.storage),
           {{targets_}, {builder_.parameter(head_.weight).family}}, {{target_rows_}});
}

void PipelineVocabulary::correct_sums(OperationList& list) {
  const std::int64_t tokens = shape_.tokens;
  exchange(list, "loss.maximum_copy", per_token(KernelKind::kCopy), {{own_maximum_}}, {{maximum_}});
  all_reduce(list, "loss.maximum_all_reduce", maximum_, tokens, shape_.statistics,
             ReduceOperator::kMaximum);
  all_reduce(list, "loss.predicted_all_reduce", predicted_, tokens, shape_.statistics);
  exchange(list, "loss.sums_shift", per_token(KernelKind::kCrossEntropyShift),
           {{sums_}, {own_maximum_}, {maximum_}}, {{sums_}});
  all_reduce(list, "loss.sums_all_reduce", sums_, tokens, shape_.statistics);
  // What this rank's exponentials, relative to its own maximum, are divided by.
  exchange(list, "loss.divisor", per_token(KernelKind::kCrossEntropyShift),
           {{sums_}, {maximum_}, {own_maximum_}}, {{divisor_}});
}

void PipelineVocabulary::sum_loss(OperationList& list) {
  exchange(list, "loss.tokens", per_token(KernelKind::kCrossEntropyLoss),
           {{predicted_}, {sums_}, {maximum_}}, {{loss_}});
  Kernel sum = per_token(KernelKind::kLossSum);
  sum.output = DataType::kFp64;
  exchange(list, "loss.sum", sum, {{loss_}, {total_}}, {{total_}});
}

void PipelineVocabulary::logits_gradient(OperationList& list, int sums) {
  Kernel gradient = logits_kernel(KernelKind::kCrossEntropyBackward);
  gradient.scale = shape_.loss_scale;
  list.add("loss.backward", gradient, {{exponentials_}, {sums}, {targets_}}, {{exponentials_}});
  if (!widened()) return;
  Kernel cast = logits_kernel(KernelKind::kCast);
  cast.output = shape_.storage;
  list.add("loss.cast_backward", cast, {{exponentials_}}, {{head_.output_gradient}});
}

void PipelineVocabulary::input_gradient(OperationList& list) {
  Gemm product;
  product.role = GemmRole::kInputGradient;
  product.m = shape_.tokens;
  product.n = columns_;
  product.k = shape_.hidden;
  product.type = shape_.head_compute;
  product.output = shape_.storage;
  list.add("head_dgrad", product,
           {{head_.output_gradient}, {builder_.parameter(head_.weight).family}},
           {{norm_.output_gradient}});
}

int PipelineVocabulary::make_weigh() {
  OperationList list("vocabulary.weigh");
  logits_gradient(list, divisor_);
  list.at(0).awaits = waited(scored_port_);
  if (!one_barrier()) {
    input_gradient(list);
    all_reduce(list, "head.input_gradient_all_reduce", norm_.output_gradient,
               shape_.tokens * shape_.hidden, shape_.storage);
    list.last().releases = waited(gradient_port_);
  }
  megatron_1d::backward_weight(builder_, list, head_, -1);
  return builder_.add_template(list);
}

// The gradient of the input is summed beside the weight gradient.
int PipelineVocabulary::make_interlaced_score(bool last) {
  OperationList list(last ? "vocabulary.score_last" : "vocabulary.score");
  const std::int64_t tokens = shape_.tokens;
  logits(list, {});
  list.add("loss.maximum", logits_kernel(KernelKind::kCrossEntropyMaximum), {{exponentials_}},
           {{maximum_}});
  all_reduce(list, "loss.maximum_all_reduce", maximum_, tokens, shape_.statistics,
             ReduceOperator::kMaximum);
  list.add("loss.sums", logits_kernel(KernelKind::kCrossEntropySums),
           {{exponentials_}, {maximum_}, {targets_}}, {{predicted_}, {sums_}, {exponentials_}});
  all_reduce(list, "loss.predicted_all_reduce", predicted_, tokens, shape_.statistics);
  all_reduce(list, "loss.sums_all_reduce", sums_, tokens, shape_.statistics);
  if (last) sum_loss(list);
  logits_gradient(list, sums_);
  input_gradient(list);
  const int product = list.size() - 1;
  all_reduce(list, "head.input_gradient_all_reduce", norm_.output_gradient,
             shape_.tokens * shape_.hidden, shape_.storage);
  const int summed = list.size() - 1;
  list.last().stream = builder_.stream("vocabulary");
  list.last().after = {product};
  megatron_1d::backward_weight(builder_, list, head_, -1);
  list.add("await", HostWork{HostKind::kAwait}, {}, {}, Cause::kPipelineParallel);
  list.last().after = {summed};
  return builder_.add_template(list);
}

}  // namespace headway
