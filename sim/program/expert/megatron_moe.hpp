// The experts of a layer as Megatron-LM runs them (transformer/moe; MoE Parallel Folding, arXiv
// 2504.14960): a router scores every token of the rank, its choices are permuted into the order of
// the experts, an all-to-all over the expert group brings each row to the rank that holds its
// expert, one grouped GEMM applies all of a rank's experts, and the way back sums a token's choices
// with their weights. Experts may be split over etp ranks of their own, which first gather each
// other's rows. Shared experts are a dense MLP beside, split over tp.
//
// Limitations: weights are applied where choices are summed, not inside the activation. The bias of
// DeepSeek-V3's router, which no gradient moves, stays zero. Experts have no biases (Megatron-LM's
// grouped GEMM has none either).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "sim/program/expert/expert_rules.hpp"
#include "sim/program/norm.hpp"
#include "sim/program/own_tokens.hpp"
#include "sim/program/program_builder.hpp"
#include "sim/program/tensor/megatron_1d.hpp"

namespace headway {

class MegatronMoe {
 public:
  // `input`: the norm before the experts, whose output they read and whose output gradient they
  // write. `output`: of this rank's tokens, what is added to the residual stream.
  MegatronMoe(ProgramBuilder& builder, const NormPart& input, int output);

  void forward(OperationList& list);
  // `weights`: weight gradients too; else backward_weight gives them later.
  void backward(OperationList& list, BufferRef output_gradient, bool weights);
  void backward_weight(OperationList& list, BufferRef output_gradient);

 private:
  // One matrix of every expert: buffers of what goes in and out, rows of the rank's experts.
  struct Linear {
    std::string name;
    ParameterId weight = kNoParameter;
    int input = -1, output = -1, output_gradient = -1, input_gradient = -1;
  };
  // What may be split off and put beside: the dense MLP of all shared experts.
  struct Shared {
    megatron_1d::ColumnParallel first;
    megatron_1d::RowParallel second;
    int activation = -1, activation_gradient = -1, output = -1;
  };
  // Buffers that a token's way through the exchange passes, one direction.
  struct Exchange {
    int sent = -1;      // in the order of the experts
    int received = -1;  // from all ranks of the expert group
    int gathered = -1;  // of all etp ranks
    int sorted = -1;    // by local expert
  };

  void make_router();
  void make_experts();
  void make_shared();
  Exchange make_exchange(const std::string& name, Copies sorted, bool sorted_is_saved);

  void route(OperationList& list);
  void sum_chosen(OperationList& list);
  void choose_backward(OperationList& list, bool weights);
  // To the experts, from `sent` to `sorted`, or back.
  using Part = std::function<void()>;  // adds operations
  void send(OperationList& list, const std::string& name, const Exchange& exchange,
            const Part& meanwhile);
  void send_back(OperationList& list, const std::string& name, const Exchange& exchange,
                 const Part& meanwhile);
  void travel(OperationList& list, const Part& meanwhile);
  void await(OperationList& list);
  void exchange(OperationList& list, const std::string& name, CollectiveKind kind, Shares shares,
                const char* group_axis, std::int64_t rows, int from, int to);
  void grouped(OperationList& list, const Linear& linear, GemmRole role);
  void weight_gradient(OperationList& list, const Linear& linear);
  void shared_first(OperationList& list);
  void shared_second(OperationList& list);
  void shared_second_backward(OperationList& list, BufferRef output_gradient, bool weights);
  void shared_first_backward(OperationList& list, bool weights);
  void activation(OperationList& list, const std::string& name, std::int64_t rows,
                  std::int64_t columns, std::vector<BufferRef> reads, int result, bool backward);
  void add(OperationList& list, const std::string& name, KernelKind kind, int a, int b, int sum);

  void reduce_volume(Collective& collective) const;
  std::int64_t hottest(std::int64_t rows) const;

  Routing routing(RoutingKind kind) const;
  int rows_buffer(const std::string& name, std::int64_t rows, std::int64_t most,
                  std::int64_t columns, Copies copies);
  int counts_buffer(const std::string& name, std::int64_t rows, std::int64_t columns);

  // Whether the shared experts are computed while tokens travel.
  bool overlaps() const { return shared_ && sends() && builder_.job().plan.moe.shared_overlap; }
  bool gathers() const { return shape_.etp > 1; }
  bool sends() const { return shape_.ep > 1; }
  bool exchanges() const { return sends() || gathers(); }
  // Rows come from several ranks, each with its own order, for several experts.
  bool sorts() const { return exchanges() && shape_.experts > 1; }
  std::int64_t received_rows() const { return shape_.sent_rows * shape_.etp; }
  std::int64_t most_received_rows() const;
  Copies gradient_copies() const {
    return shape_.splits_backward ? Copies::kPerLayerAndMicroBatch : Copies::kScratch;
  }

  ProgramBuilder& builder_;
  const StepShape& shape_;
  ExpertRules rules_;
  NormPart input_;
  int output_ = -1;

  own_tokens::Linear router_;
  int choice_ = -1, weights_ = -1, weights_gradient_ = -1, scores_ = -1;
  int counts_ = -1, rows_ = -1, chosen_ = -1;  // chosen_: where there is an auxiliary loss
  int all_counts_ = -1, received_ = -1;
  int gathered_ = -1;  // counts by which grouped GEMMs and sorts work

  Linear first_, second_;
  Exchange in_, out_, in_gradient_, out_gradient_;
  std::optional<Shared> shared_;
  int combined_ = -1;              // without the shared experts
  std::vector<int> shared_after_;  // what completes their input gradient on other streams
  int travelling_ = -1;            // the exchange that runs beside, in the list in hand
};

}  // namespace headway
