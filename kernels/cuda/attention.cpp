#include "kernels/cuda/attention.hpp"

#include <cmath>

#include "kernels/cpu/attention.hpp"
#include "sim/core/counter_random.hpp"

namespace headway {
namespace {

constexpr std::int64_t kMostHeadDim = 256;  // what a thread of the tiled kernels keeps sums of

enum Table : std::int64_t { kQueryPositions = 100, kKeyPositions };

DeviceStream::Table narrow(const std::vector<std::int64_t>& positions) {
  DeviceStream::Table values;
  for (const std::int64_t position : positions) {
    values.push_back(static_cast<std::int32_t>(position));
  }
  return values;
}

// Binds operands in their order of kernels/cpu/attention.
class Binder {
 public:
  Binder(const Attention& a, const DeviceCall& call) : a_(a), call_(call) {
    check();
    of_.batch = a.batch;
    of_.heads = a.heads;
    of_.kv_heads = a.kv_heads;
    of_.head_dim = a.head_dim;
    of_.value_dim = a.head_dim_v == 0 ? a.head_dim : a.head_dim_v;
    of_.causal = a.causal;
    of_.window = a.window;
    of_.scale = 1.0 / std::sqrt(static_cast<double>(a.head_dim));
    queries_ = a.batch * a.sequence_q;
    keys_ = a.batch * a.sequence_kv;
    bind_positions();
    const Placement& placement = call.placement;
    of_.dropout = a.dropout ? placement.dropout : 0;
    of_.key = CounterRandom(placement.seed, placement.site).key();
    const std::int64_t length = a.apart ? placement.map.length : a.sequence_q;
    of_.first_sequence = placement.first_token / length;
    of_.first_head = placement.first_head;
  }

  AttentionView run() {
    a_.backward ? bind_backward() : bind_forward();
    return of_;
  }

 private:
  bool plain() const { return a_.kernel == AttentionKernel::kUnfused; }
  std::int64_t cells() const { return a_.batch * a_.heads * a_.sequence_q * a_.sequence_kv; }
  std::int64_t context_elements() const { return queries_ * a_.heads * of_.value_dim; }

  void check() const {
    const OperandsOf& operands = call_.operands;
    if (a_.heads <= 0 || a_.kv_heads <= 0 || a_.heads % a_.kv_heads != 0) {
      operands.refuse("the query heads must be a multiple of the key-value heads");
    }
    if (!a_.apart && a_.sequence_q != a_.sequence_kv) {
      operands.refuse("one packed matrix holds queries and keys of the same tokens only");
    }
    const TokenMap& map = call_.placement.map;
    if (a_.apart && (a_.ring != map.ring || a_.parts != map.parts)) {
      operands.refuse("it is spread over other ranks than the tokens");
    }
    if (std::max(a_.head_dim, a_.head_dim_v) > kMostHeadDim) {
      operands.refuse("the CUDA kernels have heads of at most " + std::to_string(kMostHeadDim) +
                      " columns");
    }
  }

  void bind_positions() {
    const TokenMap& map = call_.placement.map;
    for (const Table table : {kQueryPositions, kKeyPositions}) {
      std::vector<std::int64_t> key = key_of(table, map);
      key.insert(key.end(), {a_.sequence_q, a_.sequence_kv, a_.ring, a_.distance,
                             a_.gathered ? 1 : 0, a_.apart ? 1 : 0});
      const std::int32_t* made = call_.stream.table(key, [&] {
        const AttentionPositions positions(a_, map);
        return narrow(table == kQueryPositions ? positions.queries : positions.keys);
      });
      (table == kQueryPositions ? of_.query_positions : of_.key_positions) = made;
    }
  }

  // Queries, keys and values, or their gradients, of one packed matrix or of three; returns how
  // many operands it took.
  std::size_t bind_projections(bool writes, std::size_t first, HeadsView& q, HeadsView& k,
                               HeadsView& v) {
    const std::int64_t q_columns = a_.heads * a_.head_dim, k_columns = a_.kv_heads * a_.head_dim,
                       v_columns = a_.kv_heads * of_.value_dim;
    const std::int64_t sharing = a_.heads / a_.kv_heads;
    const std::int64_t key_parts = a_.gathered ? a_.ring : a_.parts;
    q = {{}, q_columns, a_.head_dim, 1, a_.batch, a_.sequence_q, a_.parts};
    k = {{}, k_columns, a_.head_dim, sharing, a_.batch, a_.sequence_kv, key_parts};
    v = {{}, v_columns, of_.value_dim, sharing, a_.batch, a_.sequence_kv, key_parts};
    const auto operand = [&](std::size_t i, std::int64_t elements) {
      return writes ? call_.operands.write(i, elements) : call_.operands.read(i, elements);
    };
    if (a_.apart) {
      q.data = elements(operand(first, queries_ * q_columns));
      k.data = elements(operand(first + 1, keys_ * k_columns));
      v.data = elements(operand(first + 2, keys_ * v_columns));
      return 3;
    }
    const std::int64_t columns = q_columns + k_columns + v_columns;
    const Operand packed = operand(first, queries_ * columns);
    q.data = elements(packed);
    k.data = from(packed, q_columns);
    v.data = from(packed, q_columns + k_columns);
    q.stride = k.stride = v.stride = columns;
    return 1;
  }

  HeadsView context(Elements data) const {
    return {data, a_.heads * of_.value_dim, of_.value_dim, 1, a_.batch, a_.sequence_q, a_.parts};
  }

  void bind_forward() {
    bind_projections(false, 0, of_.q, of_.k, of_.v);
    of_.context = context(call_.write(0, context_elements()));
    if (!plain()) {
      of_.statistics = call_.write(1, queries_ * a_.heads);
      return;
    }
    of_.probabilities = call_.write(1, cells());
    if (!a_.dropout) return;
    of_.mask = call_.write(2, cells());
    of_.dropped = call_.write(3, cells());
  }

  void bind_backward() {
    of_.dcontext = context(call_.read(0, context_elements()));
    const std::size_t next = 1 + bind_projections(false, 1, of_.q, of_.k, of_.v);
    of_.context = context(call_.read(next, context_elements()));
    if (plain()) {
      of_.probabilities = call_.read(next + 1, cells());
      of_.dropped = a_.dropout ? call_.read(next + 3, cells()) : of_.probabilities;
      if (a_.dropout) of_.mask = call_.read(next + 2, cells());
    } else {
      of_.statistics = call_.read(next + 1, queries_ * a_.heads);
    }
    bind_projections(true, 0, of_.dq, of_.dk, of_.dv);
  }

  const Attention& a_;
  const DeviceCall& call_;
  AttentionView of_;
  std::int64_t queries_ = 0, keys_ = 0;  // rows
};

}  // namespace

template <typename T>
void device_attention(const Attention& attention, const DeviceCall& call) {
  const AttentionView of = Binder(attention, call).run();
  return attention.kernel == AttentionKernel::kUnfused
             ? start_plain_attention<T>(of, attention.backward, call.stream)
             : start_tiled_attention<T>(of, attention.backward, call.stream);
}

template void device_attention<float>(const Attention&, const DeviceCall&);
template void device_attention<double>(const Attention&, const DeviceCall&);

}  // namespace headway
