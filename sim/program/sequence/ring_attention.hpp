// Ring attention (Liu et al., arXiv 2310.01889), in Megatron-LM's form (cp_comm_type p2p,
// Transformer Engine's context_parallel.py): keys and values pass round the ring, one rank further
// while the core works on the block at hand; blocks are merged by their softmax statistics. The
// order of the tokens decides how causal work is spread (TokenOrder).
//
// Backward, keys and values pass again, and the gradients of a block follow it, each rank adding
// its own; the rank's own block comes last, so both make ring - 1 hops. Keys of the rank before are
// fetched while the output projection's backward runs.
//
// Limitations: in a contiguous order blocks that are masked whole cost no core, but are still
// merged.
#pragma once

#include "sim/program/sequence/spread_attention.hpp"

namespace headway {

class RingAttention : public SpreadCore {
 public:
  RingAttention(ProgramBuilder& builder, const AttentionOperands& operands);

  void forward(OperationList& list, const std::string& name, int context) override;
  std::vector<int> begin_backward(OperationList& list) override;
  void backward(OperationList& list, BufferRef context_gradient, int context,
                const std::vector<int>& begun) override;

 private:
  // Keys and values, or their gradients, of one block.
  struct Pair {
    int keys = -1, values = -1;
  };

  Attention core(bool backward, int distance) const;
  Kernel kernel(KernelKind kind, std::int64_t columns, DataType type, DataType output) const;
  // Passes a pair on. Returns the operation's index.
  int shift(OperationList& list, const std::string& name, const Pair& from, const Pair& to);
  // What is at hand `distance` hops from its rank.
  Pair block(int distance) const;
  int shift_block(OperationList& list, const std::string& name, int distance);
  void add(OperationList& list, const std::string& name, int sum, int other, int after = -1);
  void block_backward(OperationList& list, BufferRef context_gradient, int context, int distance,
                      const Pair& gradients, int arrived);

  ProgramBuilder& builder_;
  AttentionOperands operands_;
  std::vector<Pair> travelling_;            // two, in turn
  std::vector<Pair> travelling_gradients_;  // likewise
  Pair block_gradients_;
  int block_query_gradient_ = -1;
  int block_context_ = -1, block_statistics_ = -1;
  int merged_ = -1;  // context of the blocks so far
};

}  // namespace headway
