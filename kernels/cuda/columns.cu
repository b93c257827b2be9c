#include <cmath>

#include "kernels/cuda/device_call.hpp"
#include "kernels/cuda/each.hpp"

namespace headway {
namespace {

// A run of columns of the whole, to a piece or from it.
template <typename T>
struct CopyRun {
  Elements from, to;
  std::int64_t columns, from_columns, to_columns;
  template <int W>
  HEADWAY_DEVICE void at(std::int64_t i) const {
    const std::int64_t row = i / columns, column = i % columns;
    to.store(row * to_columns + column, from.load<T>(row * from_columns + column));
  }
};

// A piece of p times the whole's rows holds p runs, one below the other (kernels/cpu/columns.cpp).
template <typename T>
void move(const Operand& whole, std::span<const Operand> pieces, bool split,
          const DeviceCall& call) {
  std::int64_t column = 0;
  for (const Operand& piece : pieces) {
    if (whole.rows == 0 || piece.rows % whole.rows != 0) {
      call.operands.refuse("a piece has other rows");
    }
    for (std::int64_t row = 0; row < piece.rows; row += whole.rows, column += piece.columns) {
      if (column + piece.columns > whole.columns) break;
      const Elements in_whole = from(whole, column), in_piece = from(piece, row * piece.columns);
      const CopyRun<T> work{split ? in_whole : in_piece, split ? in_piece : in_whole, piece.columns,
                            split ? whole.columns : piece.columns,
                            split ? piece.columns : whole.columns};
      each_element(work, whole.rows * piece.columns, false, call.stream.get());
    }
  }
  if (column != whole.columns) {
    call.operands.refuse("the pieces do not have the whole's columns");
  }
}

// With lse = log of the sum of exponentials: each context counts with exp(its lse - that of both).
// A thread for each row and head.
template <typename T>
struct Merge {
  Elements block, block_lse, context, lse;
  std::int64_t heads, dim;
  template <int W>
  HEADWAY_DEVICE void at(std::int64_t i) const {
    const T a = lse.load<T>(i), b = block_lse.load<T>(i);
    if (std::isinf(b) && b < T{0}) return;  // the block has nothing to add
    const T maximum = a < b ? b : a;
    const T both = maximum + std::log(std::exp(a - maximum) + std::exp(b - maximum));
    const T before = std::exp(a - both), added = std::exp(b - both);
    lse.store(i, both);
    for (std::int64_t d = i * dim; d < (i + 1) * dim; ++d) {
      context.store(d, before * context.load<T>(d) + added * block.load<T>(d));
    }
  }
};

template <typename T>
void merge(const Kernel& kernel, const DeviceCall& call) {
  const std::int64_t dim = kernel.head_dim, count = kernel.rows * kernel.columns;
  if (dim <= 0 || kernel.columns % dim != 0) {
    call.operands.refuse("head_dim must divide the columns");
  }
  const std::int64_t heads = kernel.columns / dim;
  call.operands.read(2, count);
  call.operands.read(3, kernel.rows * heads);
  const Merge<T> work{call.read(0, count),
                      call.read(1, kernel.rows * heads),
                      call.write(0, count),
                      call.write(1, kernel.rows * heads),
                      heads,
                      dim};
  each_element(work, kernel.rows * heads, false, call.stream.get());
}

}  // namespace

template <typename T>
void device_columns(const Kernel& kernel, const DeviceCall& call) {
  const OperandsOf& operands = call.operands;
  switch (kernel.kind) {
    case KernelKind::kSplitColumns:
      return move<T>(operands.read(0), operands.write_group(0, operands.writes()), true, call);
    case KernelKind::kJoinColumns:
      return move<T>(operands.write(0), operands.read_group(0, operands.reads()), false, call);
    default:
      return merge<T>(kernel, call);
  }
}

template void device_columns<float>(const Kernel&, const DeviceCall&);
template void device_columns<double>(const Kernel&, const DeviceCall&);

}  // namespace headway
