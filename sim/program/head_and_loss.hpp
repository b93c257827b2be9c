// The end of the model as two templates, applied to the layer after its last: final norm, head
// GEMM, cross entropy, and the sum of the losses. The head is split by vocabulary over the
// tensor-parallel group, and the loss works on the parts: all-reduces of each token's maximum
// logit, predicted logit and sum of exponentials (Shoeybi et al., arXiv 1909.08053, section 3); or
// the logits are gathered first.
#pragma once

#include <cstdint>
#include <string>

#include "sim/program/embedding.hpp"
#include "sim/program/layer.hpp"
#include "sim/program/norm.hpp"
#include "sim/program/program_builder.hpp"
#include "sim/program/tensor/megatron_1d.hpp"

namespace headway {

// Where the model's head is used once more (multi_token_prediction): what its buffers are called,
// how much further on its targets stand, how much its loss weighs.
struct PredictionHead {
  std::string name;
  std::int64_t ahead = 0;
  double weight = 1;
};

class HeadAndLoss {
 public:
  HeadAndLoss(ProgramBuilder& builder, const Layer& layer, const Embedding& embedding);
  // With the weight of `model`, whose gradient that one has begun, and a norm of its own. Its loss
  // is added to the model's.
  HeadAndLoss(ProgramBuilder& builder, const Layer& layer, const HeadAndLoss& model,
              PredictionHead place);

  int targets() const { return targets_; }
  int total() const { return total_; }  // the loss summed over tokens, at last their mean
  ParameterId weight() const { return head_.weight; }  // the word table where tied
  const NormPart& norm() const { return norm_; }

  int forward() const { return forward_; }
  int backward() const { return backward_; }
  // Its halves, where the schedule splits it; else -1.
  int backward_input() const { return backward_input_; }
  int backward_weight() const { return backward_weight_; }

 private:
  std::string prefixed(const char* name) const {
    return place_.name.empty() ? name : place_.name + "." + name;
  }
  void make(bool adds);
  void make_loss_buffers();
  void make_forward();
  int make_backward(const std::string& name, bool input_only);
  void loss_forward(OperationList& list);
  Kernel kernel(KernelKind kind, std::int64_t columns) const;
  // The same in the head's type.
  Kernel narrow_kernel(KernelKind kind, std::int64_t columns) const;
  // A pass over the logits, in the type that the loss works on.
  Kernel loss_kernel(KernelKind kind) const;
  bool gathered() const { return shape_.tp > 1 && builder_.job().software.gathered_logits; }
  // Whether the loss works on an fp32 copy of the logits.
  bool widened() const {
    return shape_.logits_are_narrow && !in_one_kernel() && !builder_.job().software.narrow_loss;
  }
  // Whether one rank sees the whole vocabulary and one kernel computes its loss.
  bool in_one_kernel() const {
    return builder_.job().software.fused_loss && (shape_.tp == 1 || gathered());
  }
  std::int64_t loss_columns() const {
    return gathered() ? shape_.padded_vocabulary : shape_.local_vocabulary;
  }

  ProgramBuilder& builder_;
  const StepShape& shape_;
  PredictionHead place_;
  int hidden_ = -1, hidden_gradient_ = -1;
  NormPart norm_;
  megatron_1d::ColumnParallel head_;
  int targets_ = -1, total_ = -1;
  int gathered_ = -1;                         // logits as they arrive, part after part
  int arranged_ = -1;                         // side by side
  int logits_ = -1;                           // what the loss works on; its gradient replaces it
  int softmax_ = -1, softmax_gradient_ = -1;  // of a loss on gathered logits: no part is in place
  int whole_gradient_ = -1;                   // of gathered logits, in the head's type
  int maximum_ = -1, predicted_ = -1, sums_ = -1, loss_ = -1, statistics_ = -1;
  int forward_ = -1, backward_ = -1, backward_input_ = -1, backward_weight_ = -1;
};

}  // namespace headway
