// Attention by tiles of 32 queries and 32 keys with a running softmax (FlashAttention, arXiv
// 2205.14135; its second version's loops, arXiv 2307.08691): forward, and backward in two kernels,
// one with a block for each tile of keys and one for each tile of queries, so that nothing is added
// by atomics. Products are by fused multiply-adds in T: any type, any head size up to 256, on every
// architecture; not by tensor cores.
#include <cmath>
#include <limits>

#include "kernels/cuda/attention.hpp"

namespace headway {
namespace {

constexpr int kTile = 32;
constexpr int kRowsOfThread = kTile / (kThreads / kWarp);  // a warp has every eighth row
constexpr int kMostChunks = 8;                             // of 32 columns of a head

template <typename T>
using Tile = T[kTile][kTile + 1];  // a column more: no two lanes of a column share a bank

// The 32 tokens from `first` on, a chunk of their head's columns; zeros outside.
template <typename T>
HEADWAY_DEVICE void load_tile(const HeadsView& from, std::int64_t b, std::int64_t head,
                              std::int64_t first, int chunk, Tile<T>& tile) {
  const int lane = threadIdx.x % kWarp;
  const std::int64_t column = chunk * kTile + lane;
  for (int row = threadIdx.x / kWarp; row < kTile; row += kThreads / kWarp) {
    const std::int64_t token = first + row;
    const bool inside = token < from.sequence && column < from.dim;
    tile[row][lane] = inside ? from.data.load<T>(from.at(b, token, head) + column) : T{0};
  }
}

// sums[i] += row(i) of a . row(lane) of b, over all chunks of `dim` columns.
template <typename T>
HEADWAY_DEVICE void add_products(const HeadsView& a, const HeadsView& b, std::int64_t sequence,
                                 std::int64_t head, std::int64_t first_a, std::int64_t first_b,
                                 Tile<T>& tile_a, Tile<T>& tile_b, T* sums) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  for (int chunk = 0; chunk * kTile < a.dim; ++chunk) {
    __syncthreads();
    load_tile<T>(a, sequence, head, first_a, chunk, tile_a);
    load_tile<T>(b, sequence, head, first_b, chunk, tile_b);
    __syncthreads();
    for (int d = 0; d < kTile; ++d) {
      for (int i = 0; i < kRowsOfThread; ++i) {
        sums[i] += tile_a[warp + i * (kThreads / kWarp)][d] * tile_b[lane][d];
      }
    }
  }
}

// sums[i][chunk] += sum over the 32 tokens t of weight(row i, t) x[t, chunk's column `lane`].
template <typename T>
HEADWAY_DEVICE void add_weighted(const HeadsView& x, std::int64_t b, std::int64_t head,
                                 std::int64_t first, const Tile<T>& weights, bool transposed,
                                 Tile<T>& tile, T (&sums)[kRowsOfThread][kMostChunks]) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
#pragma unroll
  for (int chunk = 0; chunk < kMostChunks; ++chunk) {
    if (chunk * kTile >= x.dim) continue;
    __syncthreads();
    load_tile<T>(x, b, head, first, chunk, tile);
    __syncthreads();
    for (int t = 0; t < kTile; ++t) {
      for (int i = 0; i < kRowsOfThread; ++i) {
        const int row = warp + i * (kThreads / kWarp);
        sums[i][chunk] += (transposed ? weights[t][row] : weights[row][t]) * tile[t][lane];
      }
    }
  }
}

template <typename T>
HEADWAY_DEVICE void store_sums(const HeadsView& to, std::int64_t b, std::int64_t head,
                               std::int64_t first, const T (&sums)[kRowsOfThread][kMostChunks],
                               T factor) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  for (int i = 0; i < kRowsOfThread; ++i) {
    const std::int64_t token = first + warp + i * (kThreads / kWarp);
    if (token >= to.sequence) continue;
#pragma unroll
    for (int chunk = 0; chunk < kMostChunks; ++chunk) {
      const std::int64_t column = chunk * kTile + lane;
      if (column < to.dim) to.data.store(to.at(b, token, head) + column, sums[i][chunk] * factor);
    }
  }
}

// Whether every key of a tile comes after every query of another; the same for all threads.
HEADWAY_DEVICE bool all_masked(const AttentionView& of, std::int64_t first_query,
                               std::int64_t first_key) {
  if (!of.causal) return false;
  int last = -1, first = std::numeric_limits<int>::max();
  for (int i = 0; i < kTile; ++i) {
    const std::int64_t query = first_query + i, key = first_key + i;
    if (query < of.q.sequence)
      last = of.query_positions[query] > last ? of.query_positions[query] : last;
    if (key < of.k.sequence) first = of.key_positions[key] < first ? of.key_positions[key] : first;
  }
  return first > last;
}

template <typename T>
HEADWAY_DEVICE T over_warp(T value, bool largest) {
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) {
    const T other = __shfl_xor_sync(0xffffffffU, value, lanes);
    value = largest ? Larger{}(value, other) : value + other;
  }
  return value;
}

template <typename T>
__global__ void __launch_bounds__(kThreads) forward_kernel(AttentionView of) {
  __shared__ Tile<T> tile_a, tile_b, weights;
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const std::int64_t first_query = std::int64_t{blockIdx.x} * kTile;
  const std::int64_t b = blockIdx.y / of.heads, head = blockIdx.y % of.heads;
  const std::uint64_t mask_key = of.head_key(b, head);
  T maximum[kRowsOfThread], sum[kRowsOfThread], result[kRowsOfThread][kMostChunks] = {};
  for (int i = 0; i < kRowsOfThread; ++i) {
    maximum[i] = -std::numeric_limits<T>::infinity();
    sum[i] = 0;
  }
  for (std::int64_t first_key = 0; first_key < of.k.sequence; first_key += kTile) {
    if (all_masked(of, first_query, first_key)) continue;
    T scores[kRowsOfThread] = {};
    add_products<T>(of.q, of.k, b, head, first_query, first_key, tile_a, tile_b, scores);
    const std::int64_t key = first_key + lane;
    const bool is_key = key < of.k.sequence;
    const std::int64_t key_position = is_key ? of.key_positions[key] : 0;
    for (int i = 0; i < kRowsOfThread; ++i) {
      const int row = warp + i * static_cast<int>(kThreads / kWarp);
      const std::int64_t query = first_query + row;
      const bool is_query = query < of.q.sequence;
      const std::int64_t position = is_query ? of.query_positions[query] : 0;
      const bool seen = is_key && is_query && !of.masked(position, key_position);
      const T score =
          seen ? scores[i] * static_cast<T>(of.scale) : -std::numeric_limits<T>::infinity();
      const T largest = Larger{}(maximum[i], over_warp(score, true));
      const bool none = std::isinf(largest);  // every key so far is masked
      const T weight = seen && !none ? std::exp(score - largest) : T{0};
      const T rescale = none ? T{1} : std::exp(maximum[i] - largest);
      maximum[i] = largest;
      sum[i] = sum[i] * rescale + over_warp(weight, false);
      for (T& each : result[i]) each *= rescale;
      weights[row][lane] = seen ? weight * of.survival<T>(mask_key, position, key_position) : T{0};
    }
    add_weighted<T>(of.v, b, head, first_key, weights, false, tile_b, result);
    __syncthreads();  // before the next tile's weights
  }
  for (int i = 0; i < kRowsOfThread; ++i) {
    const std::int64_t query = first_query + warp + i * static_cast<int>(kThreads / kWarp);
    for (T& each : result[i]) each = sum[i] > T{0} ? each / sum[i] : T{0};
    if (lane == 0 && query < of.q.sequence) {
      of.statistics.store(of.context.row(b, query) * of.heads + head,
                          maximum[i] + std::log(sum[i]));
    }
  }
  store_sums<T>(of.context, b, head, first_query, result, T{1});
}

// rowsum(dcontext * context), by query row and head: a thread each.
template <typename T>
struct RowSums {
  AttentionView of;
  T* sums;
  template <int W>
  HEADWAY_DEVICE void at(std::int64_t i) const {
    const std::int64_t first = i * of.value_dim;  // both matrices are [rows, heads, value_dim]
    T sum = 0;
    for (std::int64_t d = first; d < first + of.value_dim; ++d) {
      sum += of.dcontext.data.load<T>(d) * of.context.data.load<T>(d);
    }
    sums[i] = sum;
  }
};

// With P = exp(S - lse), M the mask over (1 - p) and D the row sums: `dropped` = P M and
// `dscores` = P (dP M - D), of a tile of queries against a tile of keys.
template <typename T>
HEADWAY_DEVICE void weights_of_tile(const AttentionView& of, std::int64_t b, std::int64_t head,
                                    std::int64_t first_query, std::int64_t first_key,
                                    const T* row_sums, Tile<T>& tile_a, Tile<T>& tile_b,
                                    Tile<T>& dropped, Tile<T>& dscores) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const std::uint64_t mask_key = of.head_key(b, head);
  T scores[kRowsOfThread] = {}, dweights[kRowsOfThread] = {};
  add_products<T>(of.q, of.k, b, head, first_query, first_key, tile_a, tile_b, scores);
  add_products<T>(of.dcontext, of.v, b, head, first_query, first_key, tile_a, tile_b, dweights);
  const std::int64_t key = first_key + lane;
  for (int i = 0; i < kRowsOfThread; ++i) {
    const int row = warp + i * static_cast<int>(kThreads / kWarp);
    const std::int64_t query = first_query + row;
    T weight = 0, dscore = 0;
    if (query < of.q.sequence && key < of.k.sequence) {
      const std::int64_t position = of.query_positions[query], key_position = of.key_positions[key];
      if (!of.masked(position, key_position)) {
        const std::int64_t at = of.context.row(b, query) * of.heads + head;
        const T probability =
            std::exp(scores[i] * static_cast<T>(of.scale) - of.statistics.load<T>(at));
        const T survives = of.survival<T>(mask_key, position, key_position);
        weight = probability * survives;
        dscore = probability * (dweights[i] * survives - row_sums[at]);
      }
    }
    dropped[row][lane] = weight;
    dscores[row][lane] = dscore;
  }
}

// A block for a tile of keys: the gradients of keys and values, over all heads that share them.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    key_value_gradient_kernel(AttentionView of, const T* row_sums) {
  __shared__ Tile<T> tile_a, tile_b, dropped, dscores;
  const std::int64_t first_key = std::int64_t{blockIdx.x} * kTile;
  const std::int64_t b = blockIdx.y / of.kv_heads, kv_head = blockIdx.y % of.kv_heads;
  const std::int64_t sharing = of.heads / of.kv_heads;
  T dk[kRowsOfThread][kMostChunks] = {}, dv[kRowsOfThread][kMostChunks] = {};
  for (std::int64_t head = kv_head * sharing; head < (kv_head + 1) * sharing; ++head) {
    for (std::int64_t first_query = 0; first_query < of.q.sequence; first_query += kTile) {
      if (all_masked(of, first_query, first_key)) continue;
      weights_of_tile<T>(of, b, head, first_query, first_key, row_sums, tile_a, tile_b, dropped,
                         dscores);
      add_weighted<T>(of.dcontext, b, head, first_query, dropped, true, tile_a, dv);
      add_weighted<T>(of.q, b, head, first_query, dscores, true, tile_a, dk);
      __syncthreads();  // before the next tile's weights
    }
  }
  store_sums<T>(of.dk, b, kv_head * sharing, first_key, dk, static_cast<T>(of.scale));
  store_sums<T>(of.dv, b, kv_head * sharing, first_key, dv, T{1});
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    query_gradient_kernel(AttentionView of, const T* row_sums) {
  __shared__ Tile<T> tile_a, tile_b, dropped, dscores;
  const std::int64_t first_query = std::int64_t{blockIdx.x} * kTile;
  const std::int64_t b = blockIdx.y / of.heads, head = blockIdx.y % of.heads;
  T dq[kRowsOfThread][kMostChunks] = {};
  for (std::int64_t first_key = 0; first_key < of.k.sequence; first_key += kTile) {
    if (all_masked(of, first_query, first_key)) continue;
    weights_of_tile<T>(of, b, head, first_query, first_key, row_sums, tile_a, tile_b, dropped,
                       dscores);
    add_weighted<T>(of.k, b, head, first_key, dscores, false, tile_b, dq);
    __syncthreads();  // before the next tile's weights
  }
  store_sums<T>(of.dq, b, head, first_query, dq, static_cast<T>(of.scale));
}

unsigned tiles_of(std::int64_t sequence) {
  return static_cast<unsigned>((sequence + kTile - 1) / kTile);
}

}  // namespace

template <typename T>
void start_tiled_attention(const AttentionView& of, bool backward, DeviceStream& stream) {
  const dim3 queries(tiles_of(of.q.sequence), static_cast<unsigned>(of.batch * of.heads));
  if (!backward) return launch(forward_kernel<T>, queries, kThreads, stream.get(), of);
  const std::int64_t rows = of.batch * of.q.sequence * of.heads;
  auto* sums = static_cast<T*>(stream.scratch(static_cast<std::size_t>(rows) * sizeof(T)));
  each_element(RowSums<T>{of, sums}, rows, false, stream.get());
  const dim3 keys(tiles_of(of.k.sequence), static_cast<unsigned>(of.batch * of.kv_heads));
  launch(key_value_gradient_kernel<T>, keys, kThreads, stream.get(), of, sums);
  launch(query_gradient_kernel<T>, queries, kThreads, stream.get(), of, sums);
}

template void start_tiled_attention<float>(const AttentionView&, bool, DeviceStream&);
template void start_tiled_attention<double>(const AttentionView&, bool, DeviceStream&);

}  // namespace headway
