#include <algorithm>

#include "kernels/cpu/memory_bound.hpp"

namespace headway {
namespace {

// a + b, or of a residual x + bias + residual.
template <typename T>
void add(const Kernel& kernel, const OperandsOf& operands) {
  const std::int64_t elements = operands.write(0).elements();
  const bool with_bias = kernel.kind == KernelKind::kResidualAdd && operands.reads() == 3;
  const Input<T> a(operands.read(0, elements));
  const Input<T> b(operands.read(with_bias ? 2 : 1, elements));
  const Input<T> bias(with_bias ? operands.read(1, kernel.columns) : operands.read(0));
  Output<T> y(operands.write(0), true);
  for (std::int64_t i = 0; i < elements; ++i) {
    y[i] = (with_bias ? a[i] + bias[i % kernel.columns] : a[i]) + b[i];
  }
}

// What follows the first operand: one vector, in one buffer or in several.
template <typename T>
std::vector<T> bias_of(const Kernel& kernel, const OperandsOf& operands) {
  if (operands.reads() < 2) operands.refuse("reads no bias");
  const auto group = operands.read_group(1, operands.reads() - 1);
  if (elements_of(group) != kernel.columns) operands.refuse("the bias has other columns");
  return load_group<T>(group, kernel.columns);
}

template <typename T>
void bias_add(const Kernel& kernel, const OperandsOf& operands) {
  const std::int64_t elements = kernel.rows * kernel.columns;
  const Input<T> x(operands.read(0, elements));
  const std::vector<T> bias = bias_of<T>(kernel, operands);
  Output<T> y(operands.write(0, elements), true);
  for (std::int64_t i = 0; i < elements; ++i) {
    y[i] = x[i] + bias[static_cast<std::size_t>(i % kernel.columns)];
  }
}

template <typename T>
void bias_backward(const Kernel& kernel, const OperandsOf& operands) {
  const std::int64_t elements = kernel.rows * kernel.columns;
  const Input<T> dy(operands.read(0, elements));
  std::vector<T> dbias = bias_of<T>(kernel, operands);
  for (std::int64_t i = 0; i < elements; ++i) {
    dbias[static_cast<std::size_t>(i % kernel.columns)] += dy[i];
  }
  const auto written = operands.write_group(0, operands.writes());
  if (elements_of(written) != kernel.columns) operands.refuse("the bias has other columns");
  store_group(written, dbias);
}

template <typename T>
void scale(const Kernel& kernel, const OperandsOf& operands) {
  const std::int64_t elements = operands.write(0).elements();
  const Input<T> x(operands.read(0, elements));
  Output<T> y(operands.write(0), true);
  for (std::int64_t i = 0; i < elements; ++i) y[i] = x[i] * static_cast<T>(kernel.scale);
}

// The concatenation of what is read becomes the concatenation of what is written, converted. What
// either lacks at its end is padding.
template <typename T>
void copy(const OperandsOf& operands) {
  const auto from = operands.read_group(0, operands.reads());
  const auto to = operands.write_group(0, operands.writes());
  store_group(to, load_group<T>(from, std::max(elements_of(from), elements_of(to))));
}

template <typename T>
void zero(const OperandsOf& operands) {
  for (std::size_t i = 0; i < operands.writes(); ++i) {
    Output<T> y(operands.write(i), true);
    std::fill(y.data(), y.data() + operands.write(i).elements(), T{0});
  }
}

// The equal runs of rows of x, as many as y is shorter, added up in their order.
template <typename T>
void sum_parts(const OperandsOf& operands) {
  const std::int64_t width = operands.write(0).elements(), elements = operands.read(0).elements();
  if (width == 0 || elements % width != 0) operands.refuse("x is no whole number of parts of y");
  const Input<T> x(operands.read(0));
  Output<T> y(operands.write(0), false);
  std::copy_n(x.data(), width, y.data());
  for (std::int64_t i = width; i < elements; ++i) y[i % width] += x[i];
}

// The rank's own share of x...: rows, or columns where both have the same number of rows.
template <typename T>
void split(const OperandsOf& operands, const Placement& placement) {
  const Operand& part = operands.write(0);
  const auto whole = operands.read_group(0, operands.reads());
  const bool by_columns = whole.size() == 1 && whole[0].rows == part.rows && part.rows > 1;
  const std::int64_t rows = by_columns ? part.rows : 1;
  const std::int64_t width = part.elements() / rows;
  const std::int64_t first =
      by_columns ? placement.first_column : placement.first_row * part.columns;
  const std::int64_t stride = by_columns ? whole[0].columns : elements_of(whole);
  const std::vector<T> x = load_group<T>(whole, std::max(rows * stride, first + width));
  Output<T> y(part, false);
  for (std::int64_t i = 0; i < rows; ++i) {
    std::copy_n(x.data() + i * stride + first, width, y.data() + i * width);
  }
}

}  // namespace

template <typename T>
void compute_elementwise(const Kernel& kernel, const OperandsOf& operands,
                         const Placement& placement) {
  switch (kernel.kind) {
    case KernelKind::kResidualAdd:
    case KernelKind::kGradientAdd:
    case KernelKind::kGradientAccumulate:
      return add<T>(kernel, operands);
    case KernelKind::kBiasAdd:
      return bias_add<T>(kernel, operands);
    case KernelKind::kBiasBackward:
      return bias_backward<T>(kernel, operands);
    case KernelKind::kScale:
      return scale<T>(kernel, operands);
    case KernelKind::kZero:
      return zero<T>(operands);
    case KernelKind::kSumParts:
      return sum_parts<T>(operands);
    case KernelKind::kSplitSequence:
      return split<T>(operands, placement);
    default:
      return copy<T>(operands);
  }
}

template void compute_elementwise<float>(const Kernel&, const OperandsOf&, const Placement&);
template void compute_elementwise<double>(const Kernel&, const OperandsOf&, const Placement&);

}  // namespace headway
