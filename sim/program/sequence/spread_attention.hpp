// Attention over a sequence that is spread over ranks (context parallelism). Queries, keys and
// values leave the packed projection; with Ulysses they are exchanged, heads for tokens; then each
// rank's queries meet the keys of the whole sequence: those of its own piece, of a ring, or
// gathered. All kinds compute exactly what one rank would (Megatron-LM's cp_comm_type: p2p,
// all_gather, a2a, a2a+p2p). What a micro-batch keeps is divided by the ranks: own queries, keys,
// values, context.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "sim/program/program_builder.hpp"

namespace headway {

// The families that the core of an attention works on besides its context.
struct AttentionOperands {
  int queries = -1, keys = -1, values = -1;
  std::vector<BufferRef> statistics;  // kept for the backward pass
  int query_gradient = -1, key_gradient = -1, value_gradient = -1;
};

// How the queries of a rank meet keys that other ranks hold.
class SpreadCore {
 public:
  virtual ~SpreadCore() = default;
  // Adds the attention, into `context` and the statistics.
  virtual void forward(OperationList& list, const std::string& name, int context) = 0;
  // Fetches what backward() begins with, beside what is computed until then; its operations.
  virtual std::vector<int> begin_backward(OperationList& list) = 0;
  virtual void backward(OperationList& list, BufferRef context_gradient, int context,
                        const std::vector<int>& begun) = 0;
};

class SpreadAttention {
 public:
  // `statistics`: what the layer keeps of the core for its backward pass.
  SpreadAttention(ProgramBuilder& builder, const std::vector<BufferRef>& statistics);

  // Packed queries, keys and values of this rank's tokens -> their context. With `kept` the context
  // is there already, and only what the backward pass reads is made again.
  void forward(OperationList& list, int qkv, int context, bool kept = false);
  // The core once more from what forward() has kept, into `context`: selective recomputation.
  void again(OperationList& list, int context);
  void begin_backward(OperationList& list) { begun_ = core_->begin_backward(list); }
  // REQUIRES: begin_backward() on the same list.
  void backward(OperationList& list, BufferRef context_gradient, int context, int qkv_gradient);

 private:
  bool exchanges() const { return shape_.ulysses > 1; }

  ProgramBuilder& builder_;
  const StepShape& shape_;
  AttentionOperands operands_;
  std::unique_ptr<SpreadCore> core_;
  std::vector<int> begun_;
  // Ulysses: in pieces, one for each rank, before or after the exchange; and the core's context.
  std::vector<int> pieces_;  // of queries, keys, values
  int context_pieces_ = -1, core_context_ = -1, core_context_gradient_ = -1;
};

// The shape of the attention core of one rank: against the keys of its own tokens.
Attention core_shape(const ProgramBuilder& builder, bool backward);

}  // namespace headway
