// Word table, head and loss spread by vocabulary over all ranks of the pipeline (Yeung et al.,
// arXiv 2411.05288, section 4), as parts of the slots that pipeline/vocabulary_order lays out.
// Every rank scores what the last stage broadcasts against its shard of the head, with the maximum
// and the sum of its own logits; one exchange corrects both. With two barriers (algorithm 1) the
// gradient of the input is computed after the first and summed in the second; with one (algorithm
// 2) the products it needs are taken with the local sums before, and corrected with them.
// Interlaced, all of it is one tensor-parallel head for which all ranks stop.
#pragma once

#include <string>
#include <vector>

#include "sim/program/layer.hpp"
#include "sim/program/norm.hpp"
#include "sim/program/pipeline/vocabulary_order.hpp"
#include "sim/program/program_builder.hpp"
#include "sim/program/tensor/megatron_1d.hpp"

namespace headway {

class PipelineVocabulary {
 public:
  PipelineVocabulary(ProgramBuilder& builder, const Layer& layer);

  // Of a rank's 1F1B, with its slots.
  VocabularyOrder order(int rank) const;

  int total() const { return total_; }  // the loss summed over tokens, at last their mean

  // What is left of embedding and head in the passes of first and last stage; -1: nothing.
  int first_forward() const { return first_forward_; }
  int first_backward() const { return first_backward_; }
  int last_forward() const { return last_forward_; }
  int last_backward() const { return last_backward_; }
  // What the first stage's forward and the last one's backward pass wait for.
  const std::vector<PortRef>& embedded() const { return embedded_ports_; }
  const std::vector<PortRef>& scored() const { return scored_ports_; }

  // The parts of a slot on `rank`, as templates; -1 where there is nothing to do.
  int announce_spread(int rank) const { return rank == 0 ? send_spread_ : receive_spread_; }
  int announce_score(int rank) const { return is_last(rank) ? send_input_ : receive_input_; }
  int weigh() const { return weigh_; }  // -1 where the scores' part does it
  int score(int rank) const { return is_last(rank) ? score_last_ : score_; }
  int embed() const { return embed_; }
  int spread() const { return spread_; }
  // The parts that complete the gradients of the shards.
  std::vector<Step> completing(int rank) const {
    return {{weigh_ >= 0 ? weigh_ : score(rank), 0}, {spread_, 0}};
  }
  // Compute waits for all exchanges; -1 where they are on its own stream.
  int drain() const { return drain_; }

 private:
  bool is_last(int rank) const { return rank == shape_.pp - 1; }
  bool interlaced() const { return builder_.job().plan.vocabulary == Vocabulary::kInterlaced; }
  bool one_barrier() const {
    return builder_.job().plan.vocabulary == Vocabulary::kParallelOneBarrier;
  }
  // Whether the loss works on an fp32 copy of the logits.
  bool widened() const { return shape_.logits_are_narrow && !builder_.job().software.narrow_loss; }
  void make_parameters();
  void make_buffers(const Layer& layer);
  void make_embedding();
  void make_first_stage(const Layer& layer);
  void make_last_stage(const Layer& layer);
  int make_score(bool last);
  int make_interlaced_score(bool last);
  int make_weigh();
  void make_spread();
  int broadcast(const std::string& name, int buffer, int root, bool is_root, int port);

  // Parts of templates. The logits of this rank's shard, in the type the loss works on.
  void logits(OperationList& list, const std::vector<PortRef>& awaits);
  void products_for_input(OperationList& list);
  void correct_sums(OperationList& list);
  void sum_loss(OperationList& list);
  void logits_gradient(OperationList& list, int sums);
  void input_gradient(OperationList& list);
  // Adds an operation of the exchanges, which begin where compute has come to.
  void exchange(OperationList& list, const std::string& name, Operation operation,
                std::vector<BufferRef> reads, std::vector<BufferRef> writes);
  void all_reduce(OperationList& list, const std::string& name, int buffer, std::int64_t elements,
                  DataType type, ReduceOperator reduce = ReduceOperator::kSum);
  Kernel kernel(KernelKind kind, std::int64_t columns, DataType type) const;
  Kernel logits_kernel(KernelKind kind) const;
  Kernel per_token(KernelKind kind) const { return kernel(kind, 1, shape_.statistics); }
  int per_micro_batch(const std::string& name, DataType type, std::int64_t columns);
  std::vector<PortRef> waited(int port) const;

  ProgramBuilder& builder_;
  const StepShape& shape_;
  int stream_ = 0;            // of the exchanges
  int group_ = -1;            // over which the vocabulary is spread
  std::int64_t columns_ = 0;  // of a shard

  ParameterId word_ = kNoParameter, position_ = kNoParameter;
  NormPart norm_;  // its output is what is scored
  megatron_1d::ColumnParallel head_;
  int tokens_ = -1, targets_ = -1;
  // Layer 0's input and its gradient, or, with dropout, before it.
  int embedded_ = -1, embedded_gradient_ = -1, mask_ = -1;
  // Logits, then exponentials, then their gradient; the last one in the head's type.
  int exponentials_ = -1;
  int own_maximum_ = -1, maximum_ = -1, predicted_ = -1, sums_ = -1, divisor_ = -1;
  int loss_ = -1, total_ = -1;
  int target_rows_ = -1;  // of the head, for algorithm 2

  int input_port_ = -1, scored_port_ = -1, gradient_port_ = -1, embedded_port_ = -1,
      spread_port_ = -1;
  std::vector<PortRef> embedded_ports_, scored_ports_;

  int embed_ = -1, first_forward_ = -1, first_backward_ = -1, last_forward_ = -1,
      last_backward_ = -1, weigh_ = -1, spread_ = -1, drain_ = -1;
  // By a rank's role: the last rank sends the input that all score, the first the gradient.
  int send_input_ = -1, receive_input_ = -1, score_ = -1, score_last_ = -1;
  int send_spread_ = -1, receive_spread_ = -1;
};

}  // namespace headway
