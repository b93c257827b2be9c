#include "sim/program/embedding.hpp"

#include "sim/program/sequence/megatron_sequence.hpp"
#include "sim/program/tensor/megatron_1d.hpp"

namespace headway {

using Split = ProgramBuilder::Split;

Embedding::Embedding(ProgramBuilder& builder, const Layer& layer)
    : builder_(builder),
      shape_(builder.shape()),
      hidden_(layer.hidden()),
      hidden_gradient_(layer.hidden_gradient()) {
  const Transformer& model = builder_.job().model;
  tokens_ = builder_.activation("tokens", DataType::kInt64, shape_.tokens, 1,
                                Copies::kPerMicroBatch, Split::kNone, BufferCategory::kInput);
  builder_.program().buffers[static_cast<std::size_t>(tokens_)].initial = InitialValue::kTokens;

  // The table's gradient of a micro-batch is dense and comes through the framework's autograd,
  // which adds it to the main gradient whatever the GEMMs do.
  word_ = builder_.matrix("embedding.word_weight",
                          {{"embedding.word_weight", shape_.padded_vocabulary, shape_.hidden}}, 0,
                          false, false);
  if (model.position_embedding == PositionEmbedding::kLearned) {
    const std::int64_t positions = model.max_positions > 0 ? model.max_positions : shape_.sequence;
    position_ =
        builder_.matrix("embedding.position_weight",
                        {{"embedding.position_weight", positions, shape_.hidden}}, -1, false, true);
  }
  if (apart()) {
    const auto whole = [&](const char* name) {
      return builder_.activation(name, shape_.storage, shape_.tokens, shape_.hidden,
                                 Copies::kScratch, Split::kNone, BufferCategory::kCommunication);
    };
    whole_ = whole("embedding.whole");
    whole_gradient_ = whole("embedding.whole_gradient");
  }
  if (shape_.dropout) {
    undropped_ = builder_.residual_stream("embedding.undropped", shape_.storage, Copies::kScratch);
    mask_ = builder_.residual_stream("embedding.mask", DataType::kBool, Copies::kPerMicroBatch);
    undropped_gradient_ =
        builder_.residual_stream("embedding.undropped_gradient", shape_.storage, Copies::kScratch);
  }
  make_forward();
  make_backward();
}

Kernel Embedding::kernel(KernelKind kind, std::int64_t rows) const {
  Kernel result;
  result.kind = kind;
  result.rows = rows;
  result.columns = shape_.hidden;
  result.type = result.output = shape_.storage;
  return result;
}

void Embedding::look_up(OperationList& list, const std::string& prefix, BufferRef tokens,
                        BufferRef own) {
  const BufferRef whole = apart() ? BufferRef{whole_} : own;
  list.add(prefix + "word", kernel(KernelKind::kEmbeddingForward, shape_.tokens),
           {tokens, {builder_.parameter(word_).family}}, {whole});
  if (apart() && position_ == kNoParameter) {
    megatron_sequence::scatter(builder_, list, prefix + "word_scatter", whole, own, shape_.hidden);
  } else {
    megatron_1d::all_reduce(builder_, list, prefix + "word_all_reduce", {whole},
                            shape_.tokens * shape_.hidden, shape_.storage);
  }
}

BufferRef Embedding::gather_gradient(OperationList& list, const std::string& prefix,
                                     BufferRef own_gradient) {
  if (!apart()) return own_gradient;
  megatron_sequence::gather(builder_, list, prefix + "gradient_gather", own_gradient,
                            {whole_gradient_}, shape_.hidden);
  return {whole_gradient_};
}

void Embedding::word_backward(OperationList& list, const std::string& prefix, BufferRef tokens,
                              BufferRef gradient, bool always_adds) {
  const Parameter& word = builder_.parameter(word_);
  list.add(prefix + "word_zero", kernel(KernelKind::kZero, word.rows), {}, {{word.scratch}});
  list.add(prefix + "word_backward", kernel(KernelKind::kEmbeddingBackward, shape_.tokens),
           {tokens, gradient, {word.scratch}}, {{word.scratch}});
  megatron_1d::accumulate(builder_, list, prefix + "word_accumulate", word, always_adds);
}

void Embedding::add_gradient(OperationList& list, const std::string& prefix, BufferRef tokens,
                             BufferRef own_gradient, bool always_adds) {
  word_backward(list, prefix, tokens, gather_gradient(list, prefix, own_gradient), always_adds);
}

void Embedding::make_forward() {
  OperationList list("embedding.forward");
  const BufferRef own{shape_.dropout ? undropped_ : hidden_};
  const BufferRef whole = apart() ? BufferRef{whole_} : own;
  look_up(list, "embedding.", {tokens_}, own);
  if (position_ != kNoParameter) {
    list.add("embedding.position", kernel(KernelKind::kPositionForward, shape_.tokens),
             {whole, {builder_.parameter(position_).family}}, {whole});
    if (apart()) {
      list.add("embedding.split", kernel(KernelKind::kSplitSequence, shape_.local_tokens), {whole},
               {own});
    }
  }
  if (shape_.dropout) {
    list.add("embedding.dropout", kernel(KernelKind::kDropoutForward, shape_.local_tokens), {own},
             {{hidden_}, {mask_}});
  }
  forward_ = builder_.add_template(list);
}

void Embedding::make_backward() {
  OperationList list("embedding.backward");
  BufferRef gradient{hidden_gradient_};
  if (shape_.dropout) {
    list.add("embedding.dropout_backward",
             kernel(KernelKind::kDropoutBackward, shape_.local_tokens), {gradient, {mask_}},
             {{undropped_gradient_}});
    gradient = {undropped_gradient_};
  }
  gradient = gather_gradient(list, "embedding.", gradient);
  if (position_ != kNoParameter) {
    const Parameter& position = builder_.parameter(position_);
    list.add("embedding.position_backward", kernel(KernelKind::kPositionBackward, shape_.tokens),
             {gradient, {position.gradient}}, {{position.gradient}});
  }
  // Heads on the same table, or predictions further ahead, have begun its gradient.
  const Transformer& model = builder_.job().model;
  const bool begun = model.tie_word_embeddings || model.num_nextn_predict_layers > 0;
  word_backward(list, "embedding.", {tokens_}, gradient, begun && shape_.pp == 1);
  backward_ = builder_.add_template(list);
}

}  // namespace headway
