// What attention's kernels see: heads inside matrices of any type, positions of their tokens, and
// the mask's random key. Index arithmetic as kernels/cpu/attention, for device code.
#pragma once

#include "kernels/cuda/device_call.hpp"
#include "kernels/cuda/each.hpp"
#include "sim/core/counter_bits.hpp"

namespace headway {

// A matrix of heads side by side, and how the tokens of a sequence stand in its rows: `parts` runs,
// each batch-major in itself.
struct HeadsView {
  Elements data;
  std::int64_t stride = 0, dim = 0, sharing = 1;
  std::int64_t batch = 1, sequence = 0, parts = 1;

  HEADWAY_DEVICE std::int64_t row(std::int64_t b, std::int64_t i) const {
    const std::int64_t run = sequence / parts;
    return (i / run * batch + b) * run + i % run;
  }
  // Where the head's columns of the i-th token of sequence b begin.
  HEADWAY_DEVICE std::int64_t at(std::int64_t b, std::int64_t i, std::int64_t head) const {
    return row(b, i) * stride + head / sharing * dim;
  }
};

struct AttentionView {
  HeadsView q, k, v, context, dq, dk, dv, dcontext;
  Elements statistics, probabilities, mask, dropped;
  const std::int32_t* query_positions = nullptr;
  const std::int32_t* key_positions = nullptr;
  std::int64_t batch = 0, heads = 0, kv_heads = 0;
  std::int64_t head_dim = 0, value_dim = 0;
  bool causal = true;
  std::int64_t window = 0;  // keys that a query sees at most, its own token's among them; 0: all
  double scale = 1, dropout = 0;
  std::uint64_t key = 0;  // of the site
  std::int64_t first_sequence = 0, first_head = 0;

  HEADWAY_DEVICE bool masked(std::int64_t query, std::int64_t key_position) const {
    return (causal && key_position > query) || (window > 0 && query - key_position >= window);
  }
  HEADWAY_DEVICE std::uint64_t head_key(std::int64_t b, std::int64_t head) const {
    return child_key(child_key(key, static_cast<std::uint64_t>(first_sequence + b)),
                     static_cast<std::uint64_t>(first_head + head));
  }
  // What dropout leaves of a weight: 0 or 1 / (1 - p).
  template <typename T>
  HEADWAY_DEVICE T survival(std::uint64_t of_head, std::int64_t query,
                            std::int64_t key_position) const {
    if (dropout <= 0) return T{1};
    const std::uint64_t counter =
        (static_cast<std::uint64_t>(query) << 32) | static_cast<std::uint64_t>(key_position);
    return counter_uniform(of_head, counter) >= dropout ? static_cast<T>(1.0 / (1.0 - dropout))
                                                        : T{0};
  }
};

template <typename T>
void start_tiled_attention(const AttentionView& of, bool backward, DeviceStream& stream);
template <typename T>
void start_plain_attention(const AttentionView& of, bool backward, DeviceStream& stream);

}  // namespace headway
