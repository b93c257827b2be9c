#include <algorithm>
#include <cmath>

#include "kernels/cpu/memory_bound.hpp"

namespace headway {
namespace {

constexpr double kRotaryBase = 10000.0;  // RoFormer, arXiv 2104.09864; Llama 2

std::int64_t position_of(std::int64_t row, const Placement& placement) {
  return placement.map.position(placement.first_row + row);
}

// `first_column` of the placement is the first vocabulary entry of the local table.
template <typename T>
void table_forward(const Kernel& kernel, const OperandsOf& operands, const Placement& placement) {
  const std::int64_t columns = kernel.columns;
  const Input<std::int64_t> tokens(operands.read(0, kernel.rows));
  const Input<T> table(operands.read(1));
  const std::int64_t entries = operands.read(1).elements() / columns;
  Output<T> hidden(operands.write(0, kernel.rows * columns), false);
  for (std::int64_t i = 0; i < kernel.rows; ++i) {
    const std::int64_t entry = tokens[i] - placement.first_column;
    T* row = hidden.data() + i * columns;
    if (entry < 0 || entry >= entries) {
      std::fill(row, row + columns, T{0});
    } else {
      std::copy_n(table.data() + entry * columns, columns, row);
    }
  }
}

template <typename T>
void table_backward(const Kernel& kernel, const OperandsOf& operands, const Placement& placement) {
  const std::int64_t columns = kernel.columns;
  const Input<std::int64_t> tokens(operands.read(0, kernel.rows));
  const Input<T> dhidden(operands.read(1, kernel.rows * columns));
  const std::int64_t entries = operands.read(2).elements() / columns;
  Output<T> dtable(operands.write(0, entries * columns), true);
  for (std::int64_t i = 0; i < kernel.rows; ++i) {
    const std::int64_t entry = tokens[i] - placement.first_column;
    if (entry < 0 || entry >= entries) continue;
    for (std::int64_t j = 0; j < columns; ++j) {
      dtable[entry * columns + j] += dhidden[i * columns + j];
    }
  }
}

template <typename T>
void position_forward(const Kernel& kernel, const OperandsOf& operands,
                      const Placement& placement) {
  const std::int64_t columns = kernel.columns;
  const Input<T> hidden(operands.read(0, kernel.rows * columns));
  const Input<T> table(operands.read(1));
  if (operands.read(1).elements() < placement.map.length * columns) {
    operands.refuse("the position table is shorter than the sequence");
  }
  Output<T> y(operands.write(0, kernel.rows * columns), false);
  for (std::int64_t i = 0; i < kernel.rows; ++i) {
    const std::int64_t position = position_of(i, placement);
    for (std::int64_t j = 0; j < columns; ++j) {
      y[i * columns + j] = hidden[i * columns + j] + table[position * columns + j];
    }
  }
}

template <typename T>
void position_backward(const Kernel& kernel, const OperandsOf& operands,
                       const Placement& placement) {
  const std::int64_t columns = kernel.columns;
  const Input<T> dhidden(operands.read(0, kernel.rows * columns));
  if (operands.read(1).elements() < placement.map.length * columns) {
    operands.refuse("the position table is shorter than the sequence");
  }
  Output<T> dtable(operands.write(0, operands.read(1).elements()), true);
  for (std::int64_t i = 0; i < kernel.rows; ++i) {
    const std::int64_t position = position_of(i, placement);
    for (std::int64_t j = 0; j < columns; ++j) {
      dtable[position * columns + j] += dhidden[i * columns + j];
    }
  }
}

// Turns the pairs (i, i + head_dim / 2) of every head by position * base^(-2i / head_dim); the
// backward pass turns them back.
template <typename T>
void rotate(const Kernel& kernel, const OperandsOf& operands, const Placement& placement,
            double direction) {
  const std::int64_t dim = kernel.head_dim;
  if (dim <= 0 || dim % 2 != 0 || kernel.columns % dim != 0) {
    operands.refuse("head_dim must be even and divide the rotated columns");
  }
  const std::int64_t width = operands.read(0).elements() / kernel.rows;
  if (width < kernel.columns) operands.refuse("fewer columns than are to be rotated");
  const Input<T> x(operands.read(0, kernel.rows * width));
  Output<T> y(operands.write(0, kernel.rows * width), false);
  for (std::int64_t i = 0; i < kernel.rows; ++i) {
    const auto position = static_cast<double>(position_of(i, placement));
    const T* from = x.data() + i * width;
    T* to = y.data() + i * width;
    for (std::int64_t pair = 0; pair < dim / 2; ++pair) {
      const double exponent = -2.0 * static_cast<double>(pair) / static_cast<double>(dim);
      const double angle = direction * position * std::pow(kRotaryBase, exponent);
      const T cosine = static_cast<T>(std::cos(angle)), sine = static_cast<T>(std::sin(angle));
      for (std::int64_t head = 0; head < kernel.columns; head += dim) {
        const T a = from[head + pair], b = from[head + pair + dim / 2];
        to[head + pair] = a * cosine - b * sine;
        to[head + pair + dim / 2] = a * sine + b * cosine;
      }
    }
    std::copy(from + kernel.columns, from + width, to + kernel.columns);
  }
}

// The columns of one token's heads: apart as they are projected, and packed as attention reads
// them.
struct LatentHeads {
  explicit LatentHeads(const Kernel& kernel)
      : heads(kernel.columns),
        plain(kernel.plain_dim),
        turned(kernel.head_dim),
        value(kernel.value_dim) {}
  std::int64_t query_columns() const { return heads * (plain + turned); }
  std::int64_t key_value_columns() const { return heads * (plain + value); }
  std::int64_t packed_columns() const { return heads * (2 * (plain + turned) + value); }
  std::int64_t query(std::int64_t head) const { return head * (plain + turned); }
  std::int64_t key(std::int64_t head) const { return query_columns() + query(head); }
  std::int64_t values(std::int64_t head) const { return 2 * query_columns() + head * value; }
  std::int64_t key_value(std::int64_t head) const { return head * (plain + value); }

  std::int64_t heads, plain, turned, value;
};

// Turns the pairs (i, i + count / 2) of `from` by position * base^(-2i / count).
template <typename T>
void turn(const T* from, T* to, std::int64_t count, double position) {
  for (std::int64_t pair = 0; pair < count / 2; ++pair) {
    const double exponent = -2.0 * static_cast<double>(pair) / static_cast<double>(count);
    const double angle = position * std::pow(kRotaryBase, exponent);
    const T cosine = static_cast<T>(std::cos(angle)), sine = static_cast<T>(std::sin(angle));
    const T a = from[pair], b = from[pair + count / 2];
    to[pair] = a * cosine - b * sine;
    to[pair + count / 2] = a * sine + b * cosine;
  }
}

template <typename T>
void latent_forward(const Kernel& kernel, const OperandsOf& operands, const Placement& placement) {
  const LatentHeads at(kernel);
  const std::int64_t rows = kernel.rows;
  const Input<T> query(operands.read(0, rows * at.query_columns()));
  const Input<T> key_value(operands.read(1, rows * at.key_value_columns()));
  const Input<T> key_rope(operands.read(2, rows * at.turned));
  Output<T> packed(operands.write(0, rows * at.packed_columns()), false);
  for (std::int64_t i = 0; i < rows; ++i) {
    const auto position = static_cast<double>(position_of(i, placement));
    const T* q = query.data() + i * at.query_columns();
    const T* kv = key_value.data() + i * at.key_value_columns();
    T* to = packed.data() + i * at.packed_columns();
    for (std::int64_t head = 0; head < at.heads; ++head) {
      std::copy_n(q + at.query(head), at.plain, to + at.query(head));
      turn(q + at.query(head) + at.plain, to + at.query(head) + at.plain, at.turned, position);
      std::copy_n(kv + at.key_value(head), at.plain, to + at.key(head));
      turn(key_rope.data() + i * at.turned, to + at.key(head) + at.plain, at.turned, position);
      std::copy_n(kv + at.key_value(head) + at.plain, at.value, to + at.values(head));
    }
  }
}

template <typename T>
void latent_backward(const Kernel& kernel, const OperandsOf& operands, const Placement& placement) {
  const LatentHeads at(kernel);
  const std::int64_t rows = kernel.rows;
  const Input<T> packed(operands.read(0, rows * at.packed_columns()));
  Output<T> query(operands.write(0, rows * at.query_columns()), false);
  Output<T> key_value(operands.write(1, rows * at.key_value_columns()), false);
  Output<T> key_rope(operands.write(2, rows * at.turned), false);
  std::vector<T> sum(static_cast<std::size_t>(at.turned));
  for (std::int64_t i = 0; i < rows; ++i) {
    const auto position = static_cast<double>(position_of(i, placement));
    const T* from = packed.data() + i * at.packed_columns();
    T* q = query.data() + i * at.query_columns();
    T* kv = key_value.data() + i * at.key_value_columns();
    std::fill(sum.begin(), sum.end(), T{0});
    for (std::int64_t head = 0; head < at.heads; ++head) {
      std::copy_n(from + at.query(head), at.plain, q + at.query(head));
      turn(from + at.query(head) + at.plain, q + at.query(head) + at.plain, at.turned, -position);
      std::copy_n(from + at.key(head), at.plain, kv + at.key_value(head));
      std::copy_n(from + at.values(head), at.value, kv + at.key_value(head) + at.plain);
      for (std::int64_t c = 0; c < at.turned; ++c) {
        sum[static_cast<std::size_t>(c)] += from[at.key(head) + at.plain + c];
      }
    }
    turn(sum.data(), key_rope.data() + i * at.turned, at.turned, -position);
  }
}

}  // namespace

template <typename T>
void compute_embedding(const Kernel& kernel, const OperandsOf& operands,
                       const Placement& placement) {
  switch (kernel.kind) {
    case KernelKind::kEmbeddingForward:
      return table_forward<T>(kernel, operands, placement);
    case KernelKind::kEmbeddingBackward:
      return table_backward<T>(kernel, operands, placement);
    case KernelKind::kPositionForward:
      return position_forward<T>(kernel, operands, placement);
    case KernelKind::kPositionBackward:
      return position_backward<T>(kernel, operands, placement);
    case KernelKind::kRotaryForward:
      return rotate<T>(kernel, operands, placement, 1.0);
    case KernelKind::kLatentForward:
      return latent_forward<T>(kernel, operands, placement);
    case KernelKind::kLatentBackward:
      return latent_backward<T>(kernel, operands, placement);
    default:
      return rotate<T>(kernel, operands, placement, -1.0);
  }
}

template void compute_embedding<float>(const Kernel&, const OperandsOf&, const Placement&);
template void compute_embedding<double>(const Kernel&, const OperandsOf&, const Placement&);

}  // namespace headway
