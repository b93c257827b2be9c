// The input of the model as two templates, applied to layer 0 of its first stage: the word table,
// split by vocabulary over the tensor-parallel group (Shoeybi et al., arXiv 1909.08053, section 3),
// learned positions where the model has them, dropout. With sequence parallelism the partial rows
// are reduce-scattered; a learned position table needs all tokens, so there they are all-reduced
// first and then cut (Megatron-LM, reduce_scatter_embeddings).
#pragma once

#include <string>

#include "sim/program/layer.hpp"
#include "sim/program/program_builder.hpp"

namespace headway {

class Embedding {
 public:
  Embedding(ProgramBuilder& builder, const Layer& layer);

  int tokens() const { return tokens_; }
  ParameterId word() const { return word_; }
  ParameterId position() const { return position_; }  // kNoParameter without learned positions

  int forward() const { return forward_; }
  int backward() const { return backward_; }

  // The rows of the word table that `tokens` name, as this rank's part of the residual stream.
  // Names of operations begin with `prefix`.
  void look_up(OperationList& list, const std::string& prefix, BufferRef tokens, BufferRef own);
  // Adds to the table's gradient what comes back to those rows; where every micro-batch begins a
  // new gradient, begins it unless `always_adds`.
  void add_gradient(OperationList& list, const std::string& prefix, BufferRef tokens,
                    BufferRef own_gradient, bool always_adds);

 private:
  void make_forward();
  void make_backward();
  BufferRef gather_gradient(OperationList& list, const std::string& prefix, BufferRef own_gradient);
  void word_backward(OperationList& list, const std::string& prefix, BufferRef tokens,
                     BufferRef gradient, bool always_adds);
  Kernel kernel(KernelKind kind, std::int64_t rows) const;
  // Whether the rows of all tokens exist beside this rank's share of them.
  bool apart() const { return shape_.sequence_parallel; }

  ProgramBuilder& builder_;
  const StepShape& shape_;
  int hidden_ = -1, hidden_gradient_ = -1;
  int tokens_ = -1;
  ParameterId word_ = kNoParameter, position_ = kNoParameter;
  int whole_ = -1, whole_gradient_ = -1;  // all tokens, with sequence parallelism
  int undropped_ = -1, mask_ = -1, undropped_gradient_ = -1;
  int forward_ = -1, backward_ = -1;
};

}  // namespace headway
