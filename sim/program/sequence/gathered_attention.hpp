// Attention against gathered keys and values, as Llama 3 was trained (arXiv 2407.21783, section
// 3.3.2) and Megatron-LM's cp_comm_type all_gather does: each rank gathers them before its core,
// keeps only its own, gathers them again for the backward pass and reduce-scatters their gradients.
#pragma once

#include "sim/program/sequence/spread_attention.hpp"

namespace headway {

class GatheredAttention : public SpreadCore {
 public:
  GatheredAttention(ProgramBuilder& builder, const AttentionOperands& operands);

  void forward(OperationList& list, const std::string& name, int context) override;
  std::vector<int> begin_backward(OperationList& list) override;
  void backward(OperationList& list, BufferRef context_gradient, int context,
                const std::vector<int>& begun) override;

 private:
  Attention core(bool backward) const;
  int gather(OperationList& list, const std::string& name, int own, int all);
  void scatter(OperationList& list, const std::string& name, int all, int own);
  Collective collective(CollectiveKind kind, int all) const;

  ProgramBuilder& builder_;
  AttentionOperands operands_;
  int keys_ = -1, values_ = -1;  // of all ranks, one after another
  int key_gradient_ = -1, value_gradient_ = -1;
};

}  // namespace headway
