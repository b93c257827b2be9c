// A transformer layer as two templates, forward and backward, the same for every layer (dense, or
// with experts) and micro-batch: norm, packed qkv, rotary positions, attention core, output
// projection, residual; norm, MLP, residual. Which buffers the backward template reads decides what
// a micro-batch keeps: with Megatron's kernels and dropout these are the 34 sbh + 5 a s^2 b bytes
// of arXiv 2205.05198, eq. 1-6.
//
// Limitations: the position biases of ALiBi are not in the attention operation and are left out;
// squared ReLU is lowered as ReLU, and every gated MLP as SwiGLU (same shapes, same traffic).
#pragma once

#include <memory>
#include <optional>

#include "sim/program/expert/megatron_moe.hpp"
#include "sim/program/latent_attention.hpp"
#include "sim/program/norm.hpp"
#include "sim/program/program_builder.hpp"
#include "sim/program/sequence/spread_attention.hpp"
#include "sim/program/tensor/megatron_1d.hpp"

namespace headway {

class Layer {
 public:
  explicit Layer(ProgramBuilder& builder);

  // The residual stream: `hidden` of layer l is its input, of layer l + 1 its output; likewise the
  // gradients with respect to them.
  int hidden() const { return hidden_; }
  int hidden_gradient() const { return hidden_gradient_; }

  // Template indices, of layer number `layer`, in the order in which they are issued: one, or,
  // where passes overlap (ExpertPlan::overlap), several parts, between which a part of another pass
  // may stand. The forward pass of a layer that is recomputed leaves out what is kept.
  using Parts = std::vector<int>;
  const Parts& forward(std::int64_t layer) const { return of(layer).forward; }
  const Parts& forward_again(std::int64_t layer) const { return of(layer).forward_again; }
  const Parts& backward(std::int64_t layer) const { return of(layer).backward; }
  // Its halves, where the schedule splits it; else -1. Only the matrices' weight gradients are put
  // off: those of norms and biases come with the input gradient, as in the published runtimes
  // (sail-sg/zero-bubble-pipeline-parallelism, weight_grad_store.py).
  const Parts& backward_input(std::int64_t layer) const { return of(layer).backward_input; }
  int backward_weight(std::int64_t layer) const { return of(layer).backward_weight; }

  // Recipes of 8 and 4 bits: the template that converts the weights, once per step (-1: none);
  // families, per layer, that live from step to step; and among them the histories of delayed
  // scaling.
  int quantise_weights(std::int64_t layer) const { return of(layer).quantise_weights; }
  const std::vector<int>& kept(std::int64_t layer) const { return of(layer).kept; }
  const std::vector<int>& histories(std::int64_t layer) const { return of(layer).histories; }

 private:
  // x + dropout(branch + bias): the end of each half of the layer.
  struct Residual {
    std::string name;
    int branch = -1;
    ParameterId bias = kNoParameter;
    int dropped = -1;  // unfused
    int mask = -1;
    int branch_gradient = -1;  // where it is not the output's
  };

  // Template indices of one kind of layer.
  struct Templates {
    Parts forward, forward_again, backward, backward_input;
    int backward_weight = -1;
    int quantise_weights = -1;
    std::vector<int> kept, histories;
  };
  const Templates& of(std::int64_t layer) const {
    return builder_.job().model.is_expert_layer(layer) ? with_experts_ : dense_;
  }
  enum class Mlp : std::uint8_t { kDense, kExperts };
  Templates make_templates(const std::string& name, Mlp mlp);

  enum class Backward : std::uint8_t { kWhole, kInput };
  // The captured graph that each half is part of (expert/megatron_moe); -1: none.
  int attention_graph() const;
  int mlp_graph(Mlp mlp) const;
  // What stands before an expert half's router, or behind its gradient.
  void capture_norm(OperationList& list, Mlp mlp, int first) const;

  void make_attention_buffers();
  void make_residual_stream();
  void make_mlp_buffers();
  void quantise_attention();
  void quantise_mlp();
  void convert_weights(const std::string& name, Mlp mlp, Templates& made);
  int whole(const std::string& name, Copies copies);
  // A matrix of the layer, as the plan's kind of tensor parallelism shares it; `dimension`: in one.
  ParameterId split_matrix(const std::string& name,
                           const std::vector<ProgramBuilder::PartShape>& parts, int dimension);
  void make_whole_buffer(megatron_1d::ColumnParallel& linear);
  void make_whole_buffer(megatron_1d::RowParallel& linear);
  Residual make_residual(const std::string& half, int branch);
  ParameterId bias(const std::string& name, const std::vector<ProgramBuilder::PartShape>& parts,
                   bool sharded);

  // `kept`: parts whose results are there already.
  void attention_forward(OperationList& list, const LayerParts& kept = {});
  void make_projections();
  std::vector<ParameterId> qkv_biases() const;
  void projections_forward(OperationList& list, const LayerParts& kept);
  void projections_again(OperationList& list);
  void projections_backward(OperationList& list, Backward part);
  void attention_core(OperationList& list, const std::string& name, int context);
  void attention_core_again(OperationList& list, int context);
  void attention_core_backward(OperationList& list, int context);
  void mlp_forward(OperationList& list, Mlp mlp, const LayerParts& kept = {});
  void activation_forward(OperationList& list);
  void residual_forward(OperationList& list, const Residual& residual, BufferRef input,
                        BufferRef output);

  void attention_backward(OperationList& list, Backward part);
  void mlp_backward(OperationList& list, Mlp mlp, Backward part);
  // What is recomputed alone; nothing where whole layers are, or none.
  const LayerParts& recomputed() const { return shape_.recomputed; }
  void matrix_backward(OperationList& list, const megatron_1d::RowParallel& linear, Backward part);
  std::vector<int> matrix_backward(OperationList& list, const megatron_1d::ColumnParallel& linear,
                                   Backward part);
  void weights_backward(OperationList& list, Mlp mlp);
  void activation_backward(OperationList& list);
  // Returns the gradient of the branch.
  BufferRef residual_backward(OperationList& list, const Residual& residual,
                              BufferRef output_gradient);
  void add_paths(OperationList& list, const std::string& name, BufferRef gradient, BufferRef other);

  // Gradients that weight gradients are made from: they outlive the layer's pass where that is
  // split.
  Copies gradient_copies() const {
    return shape_.splits_backward ? Copies::kPerLayerAndMicroBatch : Copies::kScratch;
  }
  BufferRef branch_gradient(const Residual& residual, BufferRef output_gradient) const {
    return shape_.dropout ? BufferRef{residual.branch_gradient} : output_gradient;
  }
  // Whether matrices exchange in hops beside the parts of their GEMMs.
  // Whether they are shared as squares of ranks.
  bool squares() const { return builder_.job().plan.tp_kind != TensorKind::k1d; }
  bool rings() const { return builder_.job().plan.tp_overlap == TensorOverlap::kRing; }
  Kernel kernel(KernelKind kind, std::int64_t rows, std::int64_t columns, bool fused,
                bool bias = false) const;
  Kernel rotary(KernelKind kind) const;

  ProgramBuilder& builder_;
  const StepShape& shape_;
  int hidden_ = -1, hidden_gradient_ = -1;

  NormPart attention_norm_;
  megatron_1d::ColumnParallel qkv_;  // of latent attention only what comes out of it
  std::optional<LatentProjections> latent_;
  ParameterId qkv_bias_ = kNoParameter, key_value_bias_ = kNoParameter;
  int context_ = -1, context_gradient_ = -1;
  int rotated_ = -1;                         // queries and keys after an eager rotary embedding
  std::vector<BufferRef> core_saved_;        // what the attention core keeps for its backward
  std::unique_ptr<SpreadAttention> spread_;  // where a sequence is spread over ranks
  megatron_1d::RowParallel projection_;
  Residual attention_residual_;
  int middle_ = -1, middle_gradient_ = -1;  // the residual stream between the halves

  NormPart mlp_norm_;
  megatron_1d::ColumnParallel first_;
  ParameterId first_bias_ = kNoParameter;
  int activation_ = -1, activation_gradient_ = -1;
  megatron_1d::RowParallel second_;
  std::optional<MegatronMoe> experts_;
  int mlp_output_ = -1;
  Residual mlp_residual_;

  int context_again_ = -1;  // recomputed beside the saved one, which a weight gradient still needs

  Templates dense_, with_experts_;
};

}  // namespace headway
