// Columns cut apart and put together, and the softmax over two sets of keys made from those over
// each.
#include <algorithm>
#include <cmath>
#include <memory>

#include "kernels/cpu/memory_bound.hpp"

namespace headway {
namespace {

// Where a run of columns of the whole lies: in which piece, from which of its rows on.
struct Run {
  std::size_t piece = 0;
  std::int64_t first_row = 0;
  std::int64_t first_column = 0, columns = 0;  // of the whole
};

// A piece of p times the whole's rows holds p runs, one below the other.
std::vector<Run> runs_of(const OperandsOf& operands, std::int64_t rows, std::int64_t columns,
                         std::span<const Operand> pieces) {
  std::vector<Run> runs;
  std::int64_t column = 0;
  for (std::size_t p = 0; p < pieces.size(); ++p) {
    if (rows == 0 || pieces[p].rows % rows != 0) operands.refuse("a piece has other rows");
    for (std::int64_t row = 0; row < pieces[p].rows; row += rows) {
      runs.push_back({p, row, column, pieces[p].columns});
      column += pieces[p].columns;
    }
  }
  if (column != columns) {
    operands.refuse("the pieces have " + std::to_string(column) + " columns, the whole has " +
                    std::to_string(columns));
  }
  return runs;
}

template <typename T>
void split_columns(const OperandsOf& operands) {
  const Operand& whole = operands.read(0);
  const auto pieces = operands.write_group(0, operands.writes());
  const Input<T> x(whole);
  std::vector<std::vector<T>> parts;
  for (const Operand& piece : pieces) {
    parts.emplace_back(static_cast<std::size_t>(piece.elements()));
  }
  for (const Run& run : runs_of(operands, whole.rows, whole.columns, pieces)) {
    for (std::int64_t row = 0; row < whole.rows; ++row) {
      std::copy_n(x.data() + row * whole.columns + run.first_column, run.columns,
                  parts[run.piece].data() + (run.first_row + row) * run.columns);
    }
  }
  for (std::size_t p = 0; p < pieces.size(); ++p) {
    store(pieces[p], 0, pieces[p].elements(), parts[p].data());
  }
}

template <typename T>
void join_columns(const OperandsOf& operands) {
  const Operand& whole = operands.write(0);
  const auto pieces = operands.read_group(0, operands.reads());
  Output<T> y(whole, false);
  std::vector<std::unique_ptr<Input<T>>> parts;
  for (const Operand& piece : pieces) parts.push_back(std::make_unique<Input<T>>(piece));
  for (const Run& run : runs_of(operands, whole.rows, whole.columns, pieces)) {
    for (std::int64_t row = 0; row < whole.rows; ++row) {
      std::copy_n(parts[run.piece]->data() + (run.first_row + row) * run.columns, run.columns,
                  y.data() + row * whole.columns + run.first_column);
    }
  }
}

// With lse = log of the sum of exponentials: each context counts with exp(its lse - that of both).
template <typename T>
void merge(const Kernel& kernel, const OperandsOf& operands) {
  const std::int64_t rows = kernel.rows, columns = kernel.columns, dim = kernel.head_dim;
  if (dim <= 0 || columns % dim != 0) operands.refuse("head_dim must divide the columns");
  const std::int64_t heads = columns / dim;
  const Input<T> block(operands.read(0, rows * columns)), block_lse(operands.read(1, rows * heads));
  operands.read(2, rows * columns);
  operands.read(3, rows * heads);
  Output<T> context(operands.write(0, rows * columns), true);
  Output<T> lse(operands.write(1, rows * heads), true);
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t h = 0; h < heads; ++h) {
      const T a = lse[i * heads + h], b = block_lse[i * heads + h];
      const T maximum = std::max(a, b);
      if (std::isinf(b) && b < 0) continue;  // the block has nothing to add
      const T both = maximum + std::log(std::exp(a - maximum) + std::exp(b - maximum));
      const T before = std::exp(a - both), added = std::exp(b - both);
      lse[i * heads + h] = both;
      for (std::int64_t d = 0; d < dim; ++d) {
        const std::int64_t at = i * columns + h * dim + d;
        context[at] = before * context[at] + added * block[at];
      }
    }
  }
}

}  // namespace

template <typename T>
void compute_columns(const Kernel& kernel, const OperandsOf& operands) {
  switch (kernel.kind) {
    case KernelKind::kSplitColumns:
      return split_columns<T>(operands);
    case KernelKind::kJoinColumns:
      return join_columns<T>(operands);
    default:
      return merge<T>(kernel, operands);
  }
}

template void compute_columns<float>(const Kernel&, const OperandsOf&);
template void compute_columns<double>(const Kernel&, const OperandsOf&);

}  // namespace headway
