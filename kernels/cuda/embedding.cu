#include <cmath>

#include "kernels/cuda/device_call.hpp"
#include "kernels/cuda/each.hpp"

namespace headway {
namespace {

constexpr double kRotaryBase = 10000.0;  // RoFormer, arXiv 2104.09864; Llama 2

// Rows of a table that the tokens name; what lies outside the local entries gives zeros.
template <typename T>
struct TableForward {
  Elements tokens, table, hidden;
  std::int64_t first_entry, entries, columns;
  template <int W>
  HEADWAY_DEVICE void at(std::int64_t i) const {
    const std::int64_t entry = tokens.as<std::int64_t>()[i / columns] - first_entry;
    T v[W] = {};
    if (entry >= 0 && entry < entries) table.load<W>(entry * columns + i % columns, v);
    hidden.store<W>(i, v);
  }
};

// A block for each row of hidden states: the first row of a token adds up those of all its
// repetitions, in their order, so that nothing is added by atomics and every run gives the same
// bits.
template <typename T>
__global__ void table_backward_kernel(Elements tokens, Elements dhidden, Elements dtable,
                                      std::int64_t first_entry, std::int64_t entries,
                                      std::int64_t rows, std::int64_t columns) {
  const auto* ids = tokens.as<std::int64_t>();
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const std::int64_t entry = ids[row] - first_entry;
    if (entry < 0 || entry >= entries) continue;
    int earlier = 0;
    for (std::int64_t i = threadIdx.x; i < row; i += kThreads)
      earlier |= ids[i] == ids[row] ? 1 : 0;
    if (over_block(earlier, Larger{}) != 0) continue;
    for (std::int64_t c = threadIdx.x; c < columns; c += kThreads) {
      T sum = dtable.load<T>(entry * columns + c);
      for (std::int64_t i = row; i < rows; ++i) {
        if (ids[i] == ids[row]) sum += dhidden.load<T>(i * columns + c);
      }
      dtable.store(entry * columns + c, sum);
    }
  }
}

template <typename T>
struct PositionForward {
  Elements hidden, table, y;
  const std::int32_t* positions;
  std::int64_t columns;
  template <int W>
  HEADWAY_DEVICE void at(std::int64_t i) const {
    T v[W], p[W];
    hidden.load<W>(i, v);
    table.load<W>(positions[i / columns] * columns + i % columns, p);
    for (int w = 0; w < W; ++w) v[w] += p[w];
    y.store<W>(i, v);
  }
};

// Every element of the table takes the gradients of the rows at its position, in their order.
template <typename T>
struct PositionBackward {
  Elements dhidden, dtable;
  const std::int32_t* positions;
  std::int64_t rows, columns;
  template <int W>
  HEADWAY_DEVICE void at(std::int64_t i) const {
    T sum[W], g[W];
    dtable.load<W>(i, sum);
    for (std::int64_t row = 0; row < rows; ++row) {
      if (positions[row] != i / columns) continue;
      dhidden.load<W>(row * columns + i % columns, g);
      for (int w = 0; w < W; ++w) sum[w] += g[w];
    }
    dtable.store<W>(i, sum);
  }
};

// The pair (i, i + count / 2) turns by position * base^(-2i / count).
template <typename T>
HEADWAY_DEVICE void turn_of(std::int64_t pair, std::int64_t count, double position, T& cosine,
                            T& sine) {
  const double exponent = -2.0 * static_cast<double>(pair) / static_cast<double>(count);
  const double angle = position * std::pow(kRotaryBase, exponent);
  cosine = static_cast<T>(std::cos(angle));
  sine = static_cast<T>(std::sin(angle));
}

// By row and element of half a head: the turn is found once for the same pair of all heads.
template <typename T>
struct Rotate {
  Elements x, y;
  const std::int32_t* positions;
  std::int64_t width, columns, dim;
  double direction;
  template <int W>
  HEADWAY_DEVICE void at(std::int64_t i) const {
    const std::int64_t half = dim / 2, row = i / half, pair = i % half;
    T cosine, sine;
    turn_of(pair, dim, direction * positions[row], cosine, sine);
    for (std::int64_t head = 0; head < columns; head += dim) {
      const std::int64_t at = row * width + head + pair;
      const T a = x.load<T>(at), b = x.load<T>(at + half);
      y.store(at, a * cosine - b * sine);
      y.store(at + half, a * sine + b * cosine);
    }
  }
};

// Columns behind the rotated ones.
template <typename T>
struct CopyRest {
  Elements x, y;
  std::int64_t width, columns;
  template <int W>
  HEADWAY_DEVICE void at(std::int64_t i) const {
    const std::int64_t rest = width - columns;
    const std::int64_t at = i / rest * width + columns + i % rest;
    y.store(at, x.load<T>(at));
  }
};

// The columns of one token's heads: apart as they are projected, and packed as attention reads
// them.
struct LatentHeads {
  explicit LatentHeads(const Kernel& kernel)
      : heads(kernel.columns),
        plain(kernel.plain_dim),
        turned(kernel.head_dim),
        value(kernel.value_dim),
        query_columns(heads * (plain + turned)),
        key_value_columns(heads * (plain + value)),
        packed_columns(heads * (2 * (plain + turned) + value)) {}
  std::int64_t heads, plain, turned, value;
  std::int64_t query_columns, key_value_columns, packed_columns;
};

// What stands at a packed column of a token: of which head's query, key or value.
template <typename T>
struct LatentForward {
  LatentHeads at_head;
  Elements query, key_value, key_rope, packed;
  const std::int32_t* positions;

  // Element c of `turned` ones from `first` on, turned with its partner.
  HEADWAY_DEVICE T turned(Elements from, std::int64_t first, std::int64_t c,
                          double position) const {
    const std::int64_t half = at_head.turned / 2, pair = c % half;
    T cosine, sine;
    turn_of(pair, at_head.turned, position, cosine, sine);
    const T a = from.load<T>(first + pair), b = from.load<T>(first + pair + half);
    return c < half ? a * cosine - b * sine : a * sine + b * cosine;
  }
  template <int W>
  HEADWAY_DEVICE void at(std::int64_t i) const {
    const LatentHeads& h = at_head;
    const std::int64_t row = i / h.packed_columns, c = i % h.packed_columns;
    const std::int64_t head_columns = h.plain + h.turned;
    const double position = positions[row];
    if (c >= 2 * h.query_columns) {
      const std::int64_t v = c - 2 * h.query_columns;
      packed.store(i, key_value.load<T>(row * h.key_value_columns +
                                        v / h.value * (h.plain + h.value) + h.plain + v % h.value));
      return;
    }
    const bool is_key = c >= h.query_columns;
    const std::int64_t column = c % h.query_columns, head = column / head_columns,
                       within = column % head_columns;
    const std::int64_t query_at = row * h.query_columns + head * head_columns;
    if (within < h.plain) {
      packed.store(i, is_key ? key_value.load<T>(row * h.key_value_columns +
                                                 head * (h.plain + h.value) + within)
                             : query.load<T>(query_at + within));
    } else if (is_key) {
      packed.store(i, turned(key_rope, row * h.turned, within - h.plain, position));
    } else {
      packed.store(i, turned(query, query_at + h.plain, within - h.plain, position));
    }
  }
};

// By token and column of (query | key_value | key_rope).
template <typename T>
struct LatentBackward {
  LatentHeads at_head;
  Elements packed, query, key_value, key_rope;
  const std::int32_t* positions;

  HEADWAY_DEVICE T key_sum(std::int64_t row, std::int64_t c) const {
    const LatentHeads& h = at_head;
    T sum = 0;
    for (std::int64_t head = 0; head < h.heads; ++head) {
      sum += packed.load<T>(row * h.packed_columns + h.query_columns + head * (h.plain + h.turned) +
                            h.plain + c);
    }
    return sum;
  }
  HEADWAY_DEVICE T turned_back(T a, T b, std::int64_t c, double position) const {
    T cosine, sine;
    turn_of(c % (at_head.turned / 2), at_head.turned, -position, cosine, sine);
    return c < at_head.turned / 2 ? a * cosine - b * sine : a * sine + b * cosine;
  }
  template <int W>
  HEADWAY_DEVICE void at(std::int64_t i) const {
    const LatentHeads& h = at_head;
    const std::int64_t all = h.query_columns + h.key_value_columns + h.turned;
    const std::int64_t row = i / all, half = h.turned / 2, head_columns = h.plain + h.turned;
    const std::int64_t packed_at = row * h.packed_columns;
    const double position = positions[row];
    std::int64_t c = i % all;
    if (c < h.query_columns) {
      const std::int64_t within = c % head_columns;
      if (within < h.plain) {
        query.store(row * h.query_columns + c, packed.load<T>(packed_at + c));
        return;
      }
      const std::int64_t turned = within - h.plain;
      const std::int64_t first = packed_at + c - turned + turned % half;
      query.store(
          row * h.query_columns + c,
          turned_back(packed.load<T>(first), packed.load<T>(first + half), turned, position));
      return;
    }
    c -= h.query_columns;
    if (c < h.key_value_columns) {
      const std::int64_t head = c / (h.plain + h.value), within = c % (h.plain + h.value);
      const std::int64_t from =
          within < h.plain ? packed_at + h.query_columns + head * head_columns + within
                           : packed_at + 2 * h.query_columns + head * h.value + within - h.plain;
      key_value.store(row * h.key_value_columns + c, packed.load<T>(from));
      return;
    }
    c -= h.key_value_columns;
    key_rope.store(row * h.turned + c,
                   turned_back(key_sum(row, c % half), key_sum(row, c % half + half), c, position));
  }
};

template <typename T>
void table_forward(const Kernel& kernel, const DeviceCall& call) {
  const std::int64_t count = kernel.rows * kernel.columns;
  const TableForward<T> work{call.read(0, kernel.rows),
                             elements(call.operands.read(1)),
                             call.write(0, count),
                             call.placement.first_column,
                             call.operands.read(1).elements() / kernel.columns,
                             kernel.columns};
  each_element(work, count, wide(kernel.columns, {work.table, work.hidden}), call.stream.get());
}

template <typename T>
void table_backward(const Kernel& kernel, const DeviceCall& call) {
  const std::int64_t entries = call.operands.read(2).elements() / kernel.columns;
  launch(table_backward_kernel<T>, dim3(static_cast<unsigned>(kernel.rows)), kThreads,
         call.stream.get(), call.read(0, kernel.rows), call.read(1, kernel.rows * kernel.columns),
         call.write(0, entries * kernel.columns), call.placement.first_column, entries, kernel.rows,
         kernel.columns);
}

template <typename T>
void position(const Kernel& kernel, const DeviceCall& call) {
  const std::int64_t count = kernel.rows * kernel.columns;
  const Operand& table = call.operands.read(1);
  if (table.elements() < call.placement.map.length * kernel.columns) {
    call.operands.refuse("the position table is shorter than the sequence");
  }
  const std::int32_t* positions = row_positions(call, kernel.rows);
  if (kernel.kind == KernelKind::kPositionForward) {
    const PositionForward<T> work{call.read(0, count), elements(table), call.write(0, count),
                                  positions, kernel.columns};
    return each_element(work, count, wide(kernel.columns, {work.hidden, work.table, work.y}),
                        call.stream.get());
  }
  const PositionBackward<T> work{call.read(0, count), call.write(0, table.elements()), positions,
                                 kernel.rows, kernel.columns};
  each_element(work, table.elements(), wide(kernel.columns, {work.dhidden, work.dtable}),
               call.stream.get());
}

template <typename T>
void rotate(const Kernel& kernel, const DeviceCall& call, double direction) {
  const std::int64_t dim = kernel.head_dim;
  if (dim <= 0 || dim % 2 != 0 || kernel.columns % dim != 0) {
    call.operands.refuse("head_dim must be even and divide the rotated columns");
  }
  const std::int64_t width = call.operands.read(0).elements() / kernel.rows;
  if (width < kernel.columns) call.operands.refuse("fewer columns than are to be rotated");
  const Elements x = call.read(0, kernel.rows * width), y = call.write(0, kernel.rows * width);
  const Rotate<T> work{x,   y,        row_positions(call, kernel.rows), width, kernel.columns,
                       dim, direction};
  each_element(work, kernel.rows * dim / 2, false, call.stream.get());
  if (x.data == y.data || width == kernel.columns) return;
  each_element(CopyRest<T>{x, y, width, kernel.columns}, kernel.rows * (width - kernel.columns),
               false, call.stream.get());
}

template <typename T>
void latent(const Kernel& kernel, const DeviceCall& call) {
  const LatentHeads at(kernel);
  const std::int64_t rows = kernel.rows;
  const std::int32_t* positions = row_positions(call, rows);
  if (kernel.kind == KernelKind::kLatentForward) {
    const LatentForward<T> work{at,
                                call.read(0, rows * at.query_columns),
                                call.read(1, rows * at.key_value_columns),
                                call.read(2, rows * at.turned),
                                call.write(0, rows * at.packed_columns),
                                positions};
    return each_element(work, rows * at.packed_columns, false, call.stream.get());
  }
  const LatentBackward<T> work{at,
                               call.read(0, rows * at.packed_columns),
                               call.write(0, rows * at.query_columns),
                               call.write(1, rows * at.key_value_columns),
                               call.write(2, rows * at.turned),
                               positions};
  each_element(work, rows * (at.query_columns + at.key_value_columns + at.turned), false,
               call.stream.get());
}

}  // namespace

template <typename T>
void device_embedding(const Kernel& kernel, const DeviceCall& call) {
  switch (kernel.kind) {
    case KernelKind::kEmbeddingForward:
      return table_forward<T>(kernel, call);
    case KernelKind::kEmbeddingBackward:
      return table_backward<T>(kernel, call);
    case KernelKind::kPositionForward:
    case KernelKind::kPositionBackward:
      return position<T>(kernel, call);
    case KernelKind::kLatentForward:
    case KernelKind::kLatentBackward:
      return latent<T>(kernel, call);
    default:
      return rotate<T>(kernel, call, kernel.kind == KernelKind::kRotaryForward ? 1.0 : -1.0);
  }
}

template void device_embedding<float>(const Kernel&, const DeviceCall&);
template void device_embedding<double>(const Kernel&, const DeviceCall&);

}  // namespace headway
