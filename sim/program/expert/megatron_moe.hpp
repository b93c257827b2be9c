// The experts of a layer as Megatron-LM runs them (transformer/moe; MoE Parallel Folding, arXiv
// 2504.14960): a router scores every token of the rank, its choices are permuted into the order of
// the experts, an all-to-all over the expert group brings each row to the rank that holds its
// expert, one grouped GEMM applies all of a rank's experts, and the way back sums a token's choices
// with their weights. Experts may be split over etp ranks of their own, which first gather each
// other's rows. Shared experts are a dense MLP beside, split over tp, or, of kind `deepspeed`,
// PR-MoE's residual (arXiv 2201.05596, section 4.1): the two are mixed by a small matrix of their
// own.
//
// Dispatchers (token_dispatcher.cpp). `alltoall` as above. `allgather`: every rank of the group
// gathers all tokens and their choices, keeps those of its own experts, and a reduce-scatter sums
// what they made. `deepep`, `hybridep`: a token goes once to each rank, over the network once to
// each node, and its weights with it, which are then applied inside the activation (nothing of the
// output is kept for them). In 8 bits tokens travel with scales of 1 x 128; recipes with the same
// blocks multiply what has arrived, others widen it first.
//
// In 8 bits (QuantisedLinear) each expert's rows are padded with zeros to the recipe's multiple;
// the router, permutations and sums stay in 16.
//
// Limitations: the bias of DeepSeek-V3's router, which no gradient moves, stays zero. Experts have
// no biases (Megatron-LM's grouped GEMM has none either), PR-MoE's mix has none. All of a rank's
// experts share a scale where tensors have one. DeepEP's weights travel as a message of their own.
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

// Captured graphs of a layer (Software::graph_scope), as TemplateOperation::graph: of the attention
// half, or of all of it; of the MLP half, or what of the expert half has a fixed shape; of the
// shared experts, which are issued behind the others.
inline constexpr int kAttentionGraph = 0, kMlpGraph = 1, kSharedGraph = 2;

class MegatronMoe {
 public:
  // `input`: the norm before the experts, whose output they read and whose output gradient they
  // write. `output`: of this rank's tokens, what is added to the residual stream.
  MegatronMoe(ProgramBuilder& builder, const NormPart& input, int output);

  // `kept`: parts whose results are there already.
  void forward(OperationList& list, const LayerParts& kept);
  // `weights`: weight gradients too; else backward_weight gives them later.
  void backward(OperationList& list, BufferRef output_gradient, bool weights);
  void backward_weight(OperationList& list, BufferRef output_gradient);

  // Recipes of 8 bits: calls `each` with every matrix's copies (StepShape::quantisation).
  void each_quantised(const std::function<void(QuantisedLinear&)>& each);

 private:
  // One matrix of every expert: buffers of what goes in and out, rows of the rank's experts.
  struct Linear {
    std::string name;
    ParameterId weight = kNoParameter;
    int input = -1, output = -1, output_gradient = -1, input_gradient = -1;
    std::optional<QuantisedLinear> quantised;
  };
  // What may be split off and put beside: the dense MLP of all shared experts.
  struct Shared {
    megatron_1d::ColumnParallel first;
    megatron_1d::RowParallel second;
    int activation = -1, activation_gradient = -1, output = -1;
  };
  // PR-MoE: how much of a token's output is its experts', and how much the dense MLP's.
  struct Mix {
    own_tokens::Linear logits;
    int experts_gradient = -1, shared_gradient = -1;
  };
  // Buffers that rows pass on their way through the exchange, one direction. Those that are not
  // needed stand for the one before or behind them.
  struct Exchange {
    std::string name;  // "moe.input"
    std::int64_t columns = 0;
    DataType type = DataType::kBf16;
    int made = -1;      // in the order of the experts
    int sent = -1;      // the same, narrowed
    int received = -1;  // from all ranks of the expert group
    int gathered = -1;  // of all etp ranks
    int sorted = -1;    // by local expert, each padded
    int read = -1;      // the same, widened
  };
  using Ways = std::vector<const Exchange*>;

  void make_router();
  void make_experts();
  void make_shared();
  void make_mix();
  void make_ways();
  void make_gathered_tokens();
  void quantise();
  // `narrow`: in 8 bits; `kept`: of what is read at its end.
  Exchange make_exchange(const std::string& name, std::int64_t columns, DataType type, bool narrow,
                         Copies kept);

  void route(OperationList& list);
  void count_chosen(OperationList& list);
  void sum_chosen(OperationList& list);
  void choose_backward(OperationList& list, bool weights);
  // To the experts, from `made` to `read`, or back, from `sorted` to `sent`.
  using Part = std::function<void()>;  // adds operations
  void send(OperationList& list, const Ways& ways, const Part& meanwhile);
  void send_back(OperationList& list, const Ways& ways, const Part& meanwhile);
  void put_beside(OperationList& list);
  void travel(OperationList& list, const Part& meanwhile);
  void await(OperationList& list);
  void exchange(OperationList& list, const std::string& name, CollectiveKind kind, Shares shares,
                const char* axis, const Exchange& way, int from, int to);
  void narrow(OperationList& list, const Exchange& way);
  void widen(OperationList& list, const Exchange& way);
  Kernel narrowing(std::int64_t rows, std::int64_t columns) const;
  Kernel widening(std::int64_t rows, std::int64_t columns) const;
  void sort(OperationList& list, const Exchange& way, RoutingKind kind);
  // From the tokens to `made`, and the sum of a token's rows back, from `sent`.
  void permute(OperationList& list, const std::string& name, BufferRef tokens, const Exchange& way);
  void permute_back(OperationList& list, const std::string& name, const Exchange& way, int tokens);
  // The dispatcher that gathers all tokens: from this rank's to those of all, and their sums back.
  void gather_tokens(OperationList& list, const std::string& name, BufferRef own, int all,
                     std::int64_t columns, DataType type);
  void scatter_sums(OperationList& list, const std::string& name, int all, int own,
                    std::int64_t columns, DataType type);
  void assign_gathered(OperationList& list);
  GroupedGemm product(const Linear& linear, GemmRole role) const;
  void grouped(OperationList& list, const Linear& linear, GemmRole role);
  void weight_gradient(OperationList& list, const Linear& linear);
  // Marks what was added from `first` on as captured, where the router is.
  void capture(OperationList& list, int first, int graph) const;
  bool captures_preprocess() const { return builder_.job().software.graph_scope.preprocess; }
  void shared_first(OperationList& list);
  void shared_second(OperationList& list);
  void shared_second_backward(OperationList& list, BufferRef output_gradient, bool weights);
  void shared_first_backward(OperationList& list, bool weights);
  void activation(OperationList& list, const std::string& name, std::int64_t rows,
                  std::int64_t columns, std::vector<BufferRef> reads, int result, bool backward);
  void add(OperationList& list, const std::string& name, KernelKind kind, int a, int b, int sum);

  void expert_activation(OperationList& list, bool backward);
  void combine(OperationList& list, int result);
  void combine_backward(OperationList& list, BufferRef output_gradient);
  void mix(OperationList& list);
  void mix_backward(OperationList& list, BufferRef output_gradient);
  Kernel mix_kernel(KernelKind kind) const;

  void reduce_volume(Collective& collective, std::int64_t columns) const;
  std::int64_t hottest(std::int64_t rows, std::int64_t most) const;

  Routing routing(RoutingKind kind) const;
  Routing routing_of_weights(RoutingKind kind) const;
  // Of rows that the routing decides; of the rank's experts', padded.
  int rows_buffer(const std::string& name, DataType type, std::int64_t rows, std::int64_t most,
                  std::int64_t columns, Copies copies);
  int expert_buffer(const std::string& name, std::int64_t columns, Copies copies);
  int counts_buffer(const std::string& name, std::int64_t rows, std::int64_t columns);

  const ExpertPlan& plan() const { return builder_.job().plan.moe; }
  // Whether the shared experts are computed while tokens travel.
  bool overlaps() const { return shared_ && !mix_ && sends() && plan().shared_overlap; }
  // Whether tokens travel beside what else is computed.
  bool travels_beside() const { return overlaps() || (sends() && plan().overlap); }
  std::int64_t group_ranks() const { return static_cast<std::int64_t>(shape_.ep) * shape_.etp; }
  // Whether all ranks of the group hold all its tokens, instead of an exchange.
  bool gathers_tokens() const {
    return plan().dispatch == Dispatch::kAllGather && group_ranks() > 1;
  }
  bool sends() const { return shape_.ep > 1 && !gathers_tokens(); }
  bool gathers() const { return shape_.etp > 1 && !gathers_tokens(); }
  bool exchanges() const { return sends() || gathers(); }
  // What the rows of an expert are padded to.
  std::int64_t multiple() const {
    return shape_.quantisation == nullptr ? 1 : shape_.quantisation->multiple;
  }
  // Rows come from several ranks, each with its own order, for several experts; or are padded.
  bool sorts() const { return (exchanges() && shape_.experts > 1) || multiple() > 1; }
  // Whether weights go to the experts with the tokens.
  bool sends_weights() const {
    const bool by_token =
        plan().dispatch == Dispatch::kDeepEp || plan().dispatch == Dispatch::kHybridEp;
    return by_token && builder_.job().model.gated_mlp;
  }
  // Whether what arrives in 8 bits is multiplied as it is.
  bool multiplies_narrow() const {
    return plan().dispatch_in_8_bits && shape_.quantisation != nullptr &&
           shape_.quantisation->block == kDispatchBlock;
  }
  // DeepSeek-V3 keeps what its activation has read in 8 bits too, and widens it for the backward
  // pass (arXiv 2412.19437, section 3.3.3).
  bool keeps_narrow() const { return plan().kind == ExpertKind::kDeepseek && multiplies_narrow(); }
  // Elements of a token that share a scale on the way (DeepEP; DeepSeek-V3, arXiv 2412.19437,
  // section 3.3.2).
  static constexpr int kDispatchBlock = 128;
  // Tokens among which a rank's experts find their rows.
  std::int64_t routed_tokens() const {
    return shape_.local_tokens * (gathers_tokens() ? group_ranks() : 1);
  }
  std::int64_t received_rows() const { return shape_.sent_rows * shape_.etp; }
  std::int64_t most_received_rows() const;
  std::int64_t most_sent_rows() const;
  // With their padding, of which an expert has half a multiple in the mean.
  std::int64_t expert_rows() const;
  std::int64_t most_expert_rows() const;
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
  int all_choice_ = -1, all_weights_ = -1, all_weights_gradient_ = -1;  // of all gathered tokens
  int all_tokens_ = -1, all_sums_ = -1;
  int own_counts_ = -1, own_rows_ = -1;        // beside those of all gathered tokens
  int counts_ = -1, rows_ = -1, chosen_ = -1;  // chosen_: where there is an auxiliary loss
  int all_counts_ = -1, received_ = -1;
  int gathered_ = -1;  // counts by which grouped GEMMs and sorts work

  Linear first_, second_;
  int first_narrow_ = -1, first_widened_ = -1;  // the first's output as it is kept, and read again
  Exchange in_, out_, in_gradient_, out_gradient_;
  Exchange sent_weights_, sent_weights_gradient_;  // fp32, one of a row
  std::optional<Shared> shared_;
  std::optional<Mix> mix_;
  int combined_ = -1;              // without the shared experts
  std::vector<int> shared_after_;  // what completes their input gradient on other streams
  int travelling_ = -1;            // the exchange that runs beside, in the list in hand
};

}  // namespace headway
