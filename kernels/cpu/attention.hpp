// The attention core, plain and blocked. The blocked form keeps a running maximum and sum per row,
// so that key and value blocks may come one after another from anywhere (FlashAttention, arXiv
// 2205.14135, algorithms 1 and 4; ring attention, arXiv 2310.01889): both directions take a block
// of keys at a time, and the operator is their loop over one rank's blocks.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cpu/operands_of.hpp"
#include "kernels/cpu/operators.hpp"
#include "sim/core/counter_random.hpp"
#include "sim/model/operation.hpp"

namespace headway {

// One head's rows of queries or keys inside a matrix: row i begins at data + i * stride, and stands
// at position `first + i` of its sequence, or at `positions[i]` where there are such.
template <typename T>
struct HeadRows {
  const T* data = nullptr;
  std::int64_t stride = 0;
  std::int64_t count = 0;
  std::int64_t first = 0;
  const std::int64_t* positions = nullptr;

  std::int64_t position(std::int64_t i) const {
    return positions == nullptr ? first + i : positions[i];
  }
};

// What all blocks of one head share.
struct HeadCore {
  std::int64_t head_dim = 0, head_dim_v = 0;
  bool causal = true;
  std::int64_t window = 0;  // positions that a query sees at most, back from its own; 0: all
  double scale = 1;         // 1 / sqrt(head_dim)
  double dropout = 0;
  const CounterRandom* mask = nullptr;  // of the sequence and head; counter: (query, key) position
  // Packed: where the document of each position begins; nullptr: a sequence is one document.
  const std::int64_t* document_begins = nullptr;
};

// The running softmax of some query rows: after every key block was added, result() is the
// attention and log_sum_exp() its statistic. Rows that saw no key are zero, their statistic minus
// infinity.
template <typename T>
class RunningAttention {
 public:
  RunningAttention(const HeadCore& core, HeadRows<T> queries);
  // `values` are rows of the same positions as `keys`. Blocks may come in any order.
  void add(HeadRows<T> keys, HeadRows<T> values);
  void result(T* context, std::int64_t stride) const;
  T log_sum_exp(std::int64_t row) const;

 private:
  HeadCore core_;
  HeadRows<T> queries_;
  std::vector<T> maximum_, sum_, accumulated_;
};

// The backward pass of a block of queries against a block of keys, added to dq, dk and dv (row
// strides as of queries, keys and values). `row_sums`: of dcontext * context, per query row.
template <typename T>
void attention_block_backward(const HeadCore& core, HeadRows<T> queries, HeadRows<T> keys,
                              HeadRows<T> values, HeadRows<T> dcontext, const T* log_sum_exp,
                              const T* row_sums, T* dq, T* dk, T* dv);

// Positions of an attention's queries and keys in their sequence.
struct AttentionPositions {
  AttentionPositions(const Attention& attention, const TokenMap& map);
  std::vector<std::int64_t> queries, keys;
};

template <typename T>
void compute_attention(const Attention& attention, const OperandsOf& operands,
                       const Placement& placement);

}  // namespace headway
