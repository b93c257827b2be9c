#include "sim/program/head_and_loss.hpp"

#include <utility>

namespace headway {

using Split = ProgramBuilder::Split;

HeadAndLoss::HeadAndLoss(ProgramBuilder& builder, const Layer& layer, const Embedding& embedding)
    : builder_(builder),
      shape_(builder.shape()),
      hidden_(layer.hidden()),
      hidden_gradient_(layer.hidden_gradient()) {
  head_.weight =
      builder_.job().model.tie_word_embeddings
          ? embedding.word()
          : builder_.matrix("head.weight",
                            {{"head.weight", shape_.padded_vocabulary, shape_.hidden}}, 0, false,
                            builder_.job().software.accumulation == GradientAccumulation::kFused);
  total_ = builder_.activation("loss.total", DataType::kFp64, 1, 1, Copies::kScratch, Split::kNone,
                               BufferCategory::kCommunication);
  make(false);
}

HeadAndLoss::HeadAndLoss(ProgramBuilder& builder, const Layer& layer, const HeadAndLoss& model,
                         PredictionHead place)
    : builder_(builder),
      shape_(builder.shape()),
      place_(std::move(place)),
      hidden_(layer.hidden()),
      hidden_gradient_(layer.hidden_gradient()),
      total_(model.total_) {
  head_.weight = model.head_.weight;
  make(true);
}

// `adds`: another head has begun the weight's gradient.
void HeadAndLoss::make(bool adds) {
  norm_ = make_norm(builder_, prefixed("head.norm"), false, Copies::kPerMicroBatch);
  head_.name = "head";
  head_.adds = adds;
  head_.compute = shape_.head_compute;
  head_.input = norm_.output;
  head_.input_gradient = norm_.output_gradient;
  if (shape_.sequence_parallel) {
    const auto whole = [&](const char* name) {
      return builder_.activation(prefixed(name), shape_.storage, shape_.tokens, shape_.hidden,
                                 Copies::kScratch, Split::kNone, BufferCategory::kCommunication);
    };
    head_.input_whole = whole("head.input_whole");
    head_.input_gradient_whole = whole("head.input_gradient_whole");
  }
  make_loss_buffers();
  make_forward();
  backward_ = make_backward(prefixed("head.backward"), false);
  if (!shape_.splits_backward) return;
  backward_input_ = make_backward(prefixed("head.backward_input"), true);
  OperationList weights(prefixed("head.backward_weight"));
  megatron_1d::backward_weight(builder_, weights, head_,
                               megatron_1d::gather_again(builder_, weights, head_));
  backward_weight_ = builder_.add_template(weights);
}

void HeadAndLoss::make_loss_buffers() {
  targets_ = builder_.activation(prefixed("targets"), DataType::kInt64, shape_.tokens, 1,
                                 Copies::kPerMicroBatch, Split::kNone, BufferCategory::kInput);
  BufferFamily& targets = builder_.program().buffers[static_cast<std::size_t>(targets_)];
  targets.initial = InitialValue::kTargets;
  targets.ahead = place_.ahead;

  // The copy of the logits that the loss works on stays until the backward, which turns it into its
  // gradient; the others go at once.
  const Copies once = Copies::kScratch, saved = Copies::kPerMicroBatch;
  // A weight gradient that comes later needs the logits' gradient until then.
  const Copies gradient = shape_.splits_backward ? saved : once;
  const auto logits = [&](const char* name, DataType type, bool whole, Copies copies) {
    return builder_.activation(prefixed(name), type, shape_.tokens,
                               whole ? shape_.padded_vocabulary : shape_.local_vocabulary, copies,
                               whole ? Split::kNone : Split::kColumns);
  };
  head_.output =
      logits("head.logits", shape_.storage, false, widened() || gathered() ? once : saved);
  head_.output_gradient = logits_ = head_.output;
  if (gathered()) {
    gathered_ = logits("head.logits_gathered", shape_.storage, true, once);
    arranged_ = logits("head.logits_whole", shape_.storage, true, widened() ? once : saved);
    logits_ = whole_gradient_ = arranged_;
  }
  if (widened()) {
    logits_ = logits("loss.logits", shape_.statistics, gathered(), saved);
    if (gathered()) {
      whole_gradient_ = logits("head.logits_whole_gradient", shape_.storage, true, once);
      softmax_ = logits("loss.softmax", shape_.statistics, true, saved);
      softmax_gradient_ = logits("loss.softmax_gradient", shape_.statistics, true, once);
    }
  }
  if (widened() || gathered()) {
    head_.output_gradient = logits("head.logits_gradient", shape_.storage, false, gradient);
  }
  const auto per_token = [&](const char* name, Copies copies) {
    return builder_.activation(prefixed(name), shape_.statistics, shape_.tokens, 1, copies);
  };
  loss_ = per_token("loss.tokens", once);
  if (in_one_kernel()) {
    statistics_ = per_token("loss.statistics", saved);
  } else {
    maximum_ = per_token("loss.maximum", once);
    predicted_ = per_token("loss.predicted", once);
    sums_ = per_token("loss.sums", saved);
  }
}

Kernel HeadAndLoss::kernel(KernelKind kind, std::int64_t columns) const {
  Kernel result;
  result.kind = kind;
  result.rows = shape_.tokens;
  result.columns = columns;
  result.type = result.output = shape_.statistics;
  result.fused = builder_.job().software.fused_loss;
  return result;
}

Kernel HeadAndLoss::narrow_kernel(KernelKind kind, std::int64_t columns) const {
  Kernel result = kernel(kind, columns);
  result.type = result.output = shape_.storage;
  return result;
}

Kernel HeadAndLoss::loss_kernel(KernelKind kind) const {
  return widened() ? kernel(kind, loss_columns()) : narrow_kernel(kind, loss_columns());
}

void HeadAndLoss::make_forward() {
  OperationList list(prefixed("head.forward"));
  norm_forward(builder_, list, norm_, {hidden_});
  megatron_1d::forward(builder_, list, head_);
  int logits = head_.output;
  if (gathered()) {
    Collective gather;
    gather.kind = CollectiveKind::kAllGather;
    gather.elements = shape_.tokens * shape_.padded_vocabulary;
    gather.type = shape_.storage;
    list.add("head.gather", gather, {{logits}}, {{gathered_}}, Cause::kTensorParallel);
    list.last().group = builder_.tensor_group();
    // The parts arrive one after the other and are laid side by side (torch.cat).
    list.add("head.arrange", narrow_kernel(KernelKind::kCopy, shape_.padded_vocabulary),
             {{gathered_}}, {{arranged_}});
    logits = arranged_;
  }
  if (widened()) {
    Kernel cast = kernel(KernelKind::kCast, loss_columns());
    cast.type = shape_.storage;
    list.add("loss.cast", cast, {{logits}}, {{logits_}});
  }
  loss_forward(list);
  Kernel sum = kernel(KernelKind::kLossSum, 1);
  sum.scale = place_.weight;
  sum.output = DataType::kFp64;
  list.add("loss.sum", sum, {{loss_}, {total_}}, {{total_}});
  forward_ = builder_.add_template(list);
}

void HeadAndLoss::loss_forward(OperationList& list) {
  if (in_one_kernel()) {
    list.add("loss.cross_entropy", loss_kernel(KernelKind::kFusedCrossEntropyForward),
             {{logits_}, {targets_}}, {{loss_}, {statistics_}});
    return;
  }
  const bool parallel = shape_.tp > 1 && !gathered();
  const auto reduce = [&](const char* name, std::vector<BufferRef> buffers, ReduceOperator how) {
    const auto elements = static_cast<std::int64_t>(buffers.size()) * shape_.tokens;
    if (parallel) {
      megatron_1d::all_reduce(builder_, list, name, std::move(buffers), elements, shape_.statistics,
                              how);
    }
  };
  list.add("loss.maximum", loss_kernel(KernelKind::kCrossEntropyMaximum), {{logits_}},
           {{maximum_}});
  reduce("loss.maximum_all_reduce", {{maximum_}}, ReduceOperator::kMaximum);
  std::vector<BufferRef> writes = {{predicted_}, {sums_}, {logits_}};
  if (softmax_ >= 0) writes.push_back({softmax_});
  list.add("loss.sums", loss_kernel(KernelKind::kCrossEntropySums),
           {{logits_}, {maximum_}, {targets_}}, std::move(writes));
  if (builder_.job().software.fused_loss) {
    // Megatron-LM, fusions/fused_cross_entropy.py: both sums in one message.
    reduce("loss.sums_all_reduce", {{predicted_}, {sums_}}, ReduceOperator::kSum);
  } else {
    reduce("loss.predicted_all_reduce", {{predicted_}}, ReduceOperator::kSum);
    reduce("loss.sums_all_reduce", {{sums_}}, ReduceOperator::kSum);
  }
  list.add("loss.tokens", kernel(KernelKind::kCrossEntropyLoss, 1),
           {{predicted_}, {sums_}, {maximum_}}, {{loss_}});
}

int HeadAndLoss::make_backward(const std::string& name, bool input_only) {
  OperationList list(name);
  Kernel gradient = loss_kernel(in_one_kernel() ? KernelKind::kFusedCrossEntropyBackward
                                                : KernelKind::kCrossEntropyBackward);
  gradient.scale = shape_.loss_scale * place_.weight;
  std::vector<BufferRef> reads = in_one_kernel()
                                     ? std::vector<BufferRef>{{logits_}, {targets_}, {statistics_}}
                                     : std::vector<BufferRef>{{logits_}, {sums_}, {targets_}};
  std::vector<BufferRef> writes = {{logits_}};
  if (softmax_ >= 0) {
    reads.push_back({softmax_});
    writes.push_back({softmax_gradient_});
  }
  list.add("loss.backward", gradient, std::move(reads), std::move(writes));
  if (widened()) {
    Kernel cast = kernel(KernelKind::kCast, loss_columns());
    cast.output = shape_.storage;
    list.add("loss.cast_backward", cast, {{logits_}},
             {{gathered() ? whole_gradient_ : head_.output_gradient}});
  }
  if (gathered()) {
    list.add("head.split", narrow_kernel(KernelKind::kSplitSequence, shape_.local_vocabulary),
             {{whole_gradient_}}, {{head_.output_gradient}});
  }
  std::vector<int> scattered;
  if (input_only) {
    megatron_1d::backward_input(builder_, list, head_);
  } else {
    scattered = megatron_1d::backward(builder_, list, head_);
  }
  norm_backward(builder_, list, norm_, {hidden_}, {hidden_gradient_}, scattered);
  return builder_.add_template(list);
}

}  // namespace headway
