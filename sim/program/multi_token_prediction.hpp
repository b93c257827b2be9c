// Multi-token prediction (DeepSeek-V3, arXiv 2412.19437, section 2.2, equations 21 to 25;
// Megatron-LM, multi_token_prediction.py): behind the last layer, module k joins the hidden states
// of the module before it with the words that stand k further on (a norm of each, and one matrix of
// both), passes them through a layer of its own, and predicts the words after those with the
// model's head behind a norm of its own. Word table and head are the model's, on the stage of the
// head. The losses of all modules together weigh `kPredictionWeight` of the model's own.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "sim/program/embedding.hpp"
#include "sim/program/head_and_loss.hpp"
#include "sim/program/layer.hpp"
#include "sim/program/norm.hpp"
#include "sim/program/program_builder.hpp"
#include "sim/program/tensor/megatron_1d.hpp"

namespace headway {

// Megatron-LM's --mtp-loss-scaling-factor; DeepSeek-V3's for its last 4.8 T tokens (section 4.2).
inline constexpr double kPredictionWeight = 0.1;

class MultiTokenPrediction {
 public:
  MultiTokenPrediction(ProgramBuilder& builder, const Layer& layer, Embedding& embedding,
                       const HeadAndLoss& head);

  // What the host delivers beside the model's own: words and targets of all modules.
  const std::vector<BufferRef>& inputs() const { return inputs_; }

  // The numbers of the modules' layers, behind those of the model.
  std::vector<int> layers() const;

  // Of the last stage, between its layers and the head. With `converts` the layers' weights become
  // what the step's products read.
  std::vector<Step> forward(bool converts) const;
  // Behind the head's own: of all heads, then of the modules from the last to the first. With
  // `again` each module runs forward again before it goes back. `whole`: weight gradients too.
  std::vector<Step> backward(bool whole, bool again) const;
  // Only the weight gradients that `backward` left out.
  std::vector<Step> backward_weight() const;

 private:
  struct Module {
    int layer = 0;  // where its hidden states begin; its layer of the model has that number
    int embed = -1, join = -1;
    int backward = -1, backward_input = -1, backward_weight = -1;
    std::unique_ptr<HeadAndLoss> head;
  };
  // What one module is made of, while its templates are.
  struct Parts {
    std::string name;
    int tokens = -1, words = -1, words_gradient = -1;
    NormPart words_norm, hidden_norm;
    int joined = -1, joined_gradient = -1;
    megatron_1d::ColumnParallel projection;
    int gathered = -1;  // all columns of all tokens
    int gathered_gradient = -1;
    int hidden_gradient = -1;  // with respect to the hidden states before, to be added to theirs
  };

  Module make_module(int depth, Embedding& embedding, const HeadAndLoss& head);
  Parts make_parts(int depth);
  void make_projection(Parts& parts);
  void join(OperationList& list, const Parts& parts) const;
  void join_backward(OperationList& list, const Parts& parts, bool whole) const;
  void columns(OperationList& list, const std::string& name, KernelKind kind,
               std::vector<BufferRef> reads, std::vector<BufferRef> writes) const;
  bool splits_columns() const { return shape_.tp > 1; }

  ProgramBuilder& builder_;
  const StepShape& shape_;
  const Layer& layer_;
  std::vector<Module> modules_;
  std::vector<BufferRef> inputs_;
};

}  // namespace headway
