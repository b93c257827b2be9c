// The projections of multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1) as
// they are trained, without absorbing one into another: queries through a narrow matrix of their
// own (where the model has one), keys and values through another, each with a norm behind it and a
// matrix of all heads; beside them one rotated key that all heads share. Their result is the packed
// matrix that the attention core reads. The narrow matrices are every rank's (Megatron-LM,
// multi_latent_attention.py); the wide ones are split by heads over tp.
//
// Limitation: the narrow matrix of keys and values and that of the rotated key are two products
// here.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "sim/program/norm.hpp"
#include "sim/program/own_tokens.hpp"
#include "sim/program/program_builder.hpp"
#include "sim/program/tensor/megatron_1d.hpp"

namespace headway {

class LatentProjections {
 public:
  // `input`: the norm before attention, whose output they read and whose output gradient they
  // write.
  LatentProjections(ProgramBuilder& builder, const NormPart& input);

  int qkv() const { return qkv_; }
  int qkv_gradient() const { return qkv_gradient_; }

  // `keeps_up`: what up_forward computes is there already.
  void forward(OperationList& list, bool keeps_up = false);
  // From what the narrow matrices give to qkv: the norms, the wide matrices, the rotation
  // (Megatron-LM, multi_latent_attention.py, qkv_up_proj_and_rope_apply, where the norms are fused
  // into the wide matrices).
  void up_forward(OperationList& list);
  // `weights`: weight gradients too; else backward_weight gives them later.
  void backward(OperationList& list, bool weights);
  void backward_weight(OperationList& list);

  // Recipes of 8 bits: calls `each` with every matrix's copies (StepShape::quantisation).
  void each_quantised(const std::function<void(QuantisedLinear&)>& each);

 private:
  // A narrow matrix, a norm and a wide one.
  struct Way {
    own_tokens::Linear down;
    NormPart norm;
    megatron_1d::ColumnParallel up;
  };

  void quantise();
  void make_query();
  void make_key_value();
  own_tokens::Linear make_down(const std::string& name, std::int64_t columns, Copies copies);
  Way make_way(const std::string& name, std::int64_t rank, std::int64_t rows);
  megatron_1d::ColumnParallel make_up(const std::string& name, std::int64_t rows,
                                      std::int64_t columns);
  void up_forward(OperationList& list, const Way& way);
  void way_backward(OperationList& list, const Way& way, bool weights);
  void rope_gradient(OperationList& list);
  void add(OperationList& list, const std::string& name, int part, const std::vector<int>& after);
  std::vector<int> up_backward(OperationList& list, const megatron_1d::ColumnParallel& up,
                               bool weights);
  Kernel heads(KernelKind kind) const;
  Copies gradient_copies() const {
    return shape_.splits_backward ? Copies::kPerLayerAndMicroBatch : Copies::kScratch;
  }

  ProgramBuilder& builder_;
  const StepShape& shape_;
  NormPart input_;
  std::optional<Way> query_;            // compressed queries
  megatron_1d::ColumnParallel direct_;  // queries that are not
  Way key_value_;
  own_tokens::Linear rope_;                         // the key that all heads share
  int rope_whole_ = -1, rope_gradient_whole_ = -1;  // of all tokens
  int qkv_ = -1, qkv_gradient_ = -1;
};

}  // namespace headway
