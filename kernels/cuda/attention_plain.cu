// Attention as frameworks compute it without a fused kernel: probabilities are written, kept for
// the backward pass, and read again. A block for each row; no speed is claimed.
#include <cmath>
#include <limits>

#include "kernels/cuda/attention.hpp"

namespace headway {
namespace {

// A row of scores: of which sequence, head and query, and where it begins among the cells.
struct Row {
  HEADWAY_DEVICE Row(const AttentionView& of, std::int64_t index)
      : query(index % of.q.sequence),
        head(index / of.q.sequence % of.heads),
        b(index / of.q.sequence / of.heads),
        cells(index * of.k.sequence) {}
  std::int64_t query, head, b, cells;
};

template <typename T>
HEADWAY_DEVICE T product(const HeadsView& x, std::int64_t x_at, const HeadsView& y,
                         std::int64_t y_at, std::int64_t columns) {
  T sum = 0;
  for (std::int64_t d = 0; d < columns; ++d) {
    sum += x.data.load<T>(x_at + d) * y.data.load<T>(y_at + d);
  }
  return sum;
}

// Probabilities, the mask, and the dropped probabilities; `weights` keeps the latter before they
// are rounded.
template <typename T>
__global__ void probabilities_kernel(AttentionView of, T* weights) {
  const Row row(of, blockIdx.x);
  const std::int64_t position = of.query_positions[row.query];
  const std::int64_t query_at = of.q.at(row.b, row.query, row.head);
  T maximum = -std::numeric_limits<T>::infinity(), sum = 0;
  for (std::int64_t j = threadIdx.x; j < of.k.sequence; j += kThreads) {
    const T score = product<T>(of.q, query_at, of.k, of.k.at(row.b, j, row.head), of.head_dim) *
                    static_cast<T>(of.scale);
    const bool masked = of.masked(position, of.key_positions[j]);
    weights[row.cells + j] = masked ? -std::numeric_limits<T>::infinity() : score;
    if (!masked) maximum = Larger{}(maximum, score);
  }
  maximum = over_block(maximum, Larger{});
  for (std::int64_t j = threadIdx.x; j < of.k.sequence; j += kThreads) {
    const T weight = std::exp(weights[row.cells + j] - maximum);
    weights[row.cells + j] = weight;
    sum += weight;
  }
  sum = over_block(sum, Plus{});
  const std::uint64_t mask_key = of.head_key(row.b, row.head);
  for (std::int64_t j = threadIdx.x; j < of.k.sequence; j += kThreads) {
    const std::int64_t cell = row.cells + j;
    const T probability = weights[cell] / sum;
    of.probabilities.store(cell, probability);
    if (of.mask.data == nullptr) {
      weights[cell] = probability;
      continue;
    }
    const T survives = of.survival<T>(mask_key, position, of.key_positions[j]);
    weights[cell] = probability * survives;
    of.mask.store(cell, survives > T{0} ? T{1} : T{0});
    of.dropped.store(cell, weights[cell]);
  }
}

template <typename T>
__global__ void context_kernel(AttentionView of, const T* weights) {
  const Row row(of, blockIdx.x);
  for (std::int64_t d = threadIdx.x; d < of.value_dim; d += kThreads) {
    T sum = 0;
    for (std::int64_t j = 0; j < of.k.sequence; ++j) {
      sum += weights[row.cells + j] * of.v.data.load<T>(of.v.at(row.b, j, row.head) + d);
    }
    of.context.data.store(of.context.at(row.b, row.query, row.head) + d, sum);
  }
}

// dS = P (dP M - sum(dP M P))
template <typename T>
__global__ void dscores_kernel(AttentionView of, T* dscores) {
  const Row row(of, blockIdx.x);
  const std::int64_t dcontext_at = of.dcontext.at(row.b, row.query, row.head);
  const T survivor_scale = static_cast<T>(of.mask.data == nullptr ? 1.0 : 1.0 / (1.0 - of.dropout));
  T sum = 0;
  for (std::int64_t j = threadIdx.x; j < of.k.sequence; j += kThreads) {
    const std::int64_t cell = row.cells + j;
    T dweight =
        product<T>(of.dcontext, dcontext_at, of.v, of.v.at(row.b, j, row.head), of.value_dim);
    if (of.mask.data != nullptr) dweight *= of.mask.load<T>(cell) * survivor_scale;
    dscores[cell] = dweight;
    sum += dweight * of.probabilities.load<T>(cell);
  }
  sum = over_block(sum, Plus{});
  for (std::int64_t j = threadIdx.x; j < of.k.sequence; j += kThreads) {
    const std::int64_t cell = row.cells + j;
    dscores[cell] = of.probabilities.load<T>(cell) * (dscores[cell] - sum);
  }
}

template <typename T>
__global__ void plain_query_gradient_kernel(AttentionView of, const T* dscores) {
  const Row row(of, blockIdx.x);
  for (std::int64_t d = threadIdx.x; d < of.head_dim; d += kThreads) {
    T sum = 0;
    for (std::int64_t j = 0; j < of.k.sequence; ++j) {
      sum += dscores[row.cells + j] * of.k.data.load<T>(of.k.at(row.b, j, row.head) + d);
    }
    of.dq.data.store(of.dq.at(row.b, row.query, row.head) + d, sum * static_cast<T>(of.scale));
  }
}

// A block for each key of a key-value head: its gradient and its value's, over all query heads that
// share it.
template <typename T>
__global__ void plain_key_value_gradient_kernel(AttentionView of, const T* dscores) {
  const std::int64_t key = blockIdx.x % of.k.sequence;
  const std::int64_t kv_head = blockIdx.x / of.k.sequence % of.kv_heads;
  const std::int64_t b = blockIdx.x / of.k.sequence / of.kv_heads;
  const std::int64_t sharing = of.heads / of.kv_heads, first = kv_head * sharing;
  const std::int64_t most = of.head_dim < of.value_dim ? of.value_dim : of.head_dim;
  for (std::int64_t d = threadIdx.x; d < most; d += kThreads) {
    T dk = 0, dv = 0;
    for (std::int64_t head = first; head < first + sharing; ++head) {
      for (std::int64_t i = 0; i < of.q.sequence; ++i) {
        const std::int64_t cell = ((b * of.heads + head) * of.q.sequence + i) * of.k.sequence + key;
        if (d < of.head_dim) dk += dscores[cell] * of.q.data.load<T>(of.q.at(b, i, head) + d);
        if (d < of.value_dim) {
          dv += of.dropped.load<T>(cell) * of.dcontext.data.load<T>(of.dcontext.at(b, i, head) + d);
        }
      }
    }
    if (d < of.head_dim) {
      of.dk.data.store(of.dk.at(b, key, first) + d, dk * static_cast<T>(of.scale));
    }
    if (d < of.value_dim) of.dv.data.store(of.dv.at(b, key, first) + d, dv);
  }
}

}  // namespace

template <typename T>
void start_plain_attention(const AttentionView& of, bool backward, DeviceStream& stream) {
  const std::int64_t rows = of.batch * of.heads * of.q.sequence;
  const dim3 queries(static_cast<unsigned>(rows));
  const dim3 keys(static_cast<unsigned>(of.batch * of.kv_heads * of.k.sequence));
  auto* cells =
      static_cast<T*>(stream.scratch(static_cast<std::size_t>(rows * of.k.sequence) * sizeof(T)));
  if (!backward) {
    launch(probabilities_kernel<T>, queries, kThreads, stream.get(), of, cells);
    return launch(context_kernel<T>, queries, kThreads, stream.get(), of, cells);
  }
  launch(dscores_kernel<T>, queries, kThreads, stream.get(), of, cells);
  launch(plain_query_gradient_kernel<T>, queries, kThreads, stream.get(), of, cells);
  launch(plain_key_value_gradient_kernel<T>, keys, kThreads, stream.get(), of, cells);
}

template void start_plain_attention<float>(const AttentionView&, bool, DeviceStream&);
template void start_plain_attention<double>(const AttentionView&, bool, DeviceStream&);

}  // namespace headway
