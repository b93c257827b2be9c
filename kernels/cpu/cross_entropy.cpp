#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/memory_bound.hpp"

namespace headway {
namespace {

// Entries of the data set among the local columns: what lies past them is padding, which counts as
// minus infinity.
std::int64_t real_columns(const Kernel& kernel, const Placement& placement) {
  if (placement.vocabulary <= 0) return kernel.columns;
  return std::clamp(placement.vocabulary - placement.first_column, std::int64_t{0}, kernel.columns);
}

// Vocabulary-parallel: `first_column` of the placement is the first entry of the local logits. A
// target outside them adds nothing to `predicted`, which is then summed over the group.
template <typename T>
void sums(const Kernel& kernel, const OperandsOf& operands, const Placement& placement) {
  const std::int64_t rows = kernel.rows, columns = kernel.columns;
  const Operand& logits = operands.read(0, rows * columns);
  const Input<T> maximum(operands.read(1, rows));
  const Input<std::int64_t> targets(operands.read(2, rows));
  Output<T> predicted(operands.write(0, rows), false), sum(operands.write(1, rows), false);
  const Operand& in_place = operands.writes() > 2 ? operands.write(2, rows * columns) : logits;
  const Input<T> x(logits);
  Output<T> exponentials(in_place, true);
  const std::int64_t real = real_columns(kernel, placement);
  for (std::int64_t i = 0; i < rows; ++i) {
    const std::int64_t target = targets[i] - placement.first_column;
    predicted[i] = target >= 0 && target < columns ? x[i * columns + target] : T{0};
    sum[i] = 0;
    for (std::int64_t j = 0; j < columns; ++j) {
      const T exponential = j < real ? std::exp(x[i * columns + j] - maximum[i]) : T{0};
      exponentials[i * columns + j] = exponential;
      sum[i] += exponential;
    }
  }
}

template <typename T>
void backward(const Kernel& kernel, const OperandsOf& operands, const Placement& placement) {
  const std::int64_t rows = kernel.rows, columns = kernel.columns;
  const Input<T> exponentials(operands.read(0, rows * columns)), sum(operands.read(1, rows));
  const Input<std::int64_t> targets(operands.read(2, rows));
  Output<T> dlogits(operands.write(0, rows * columns), false);
  const T scale = static_cast<T>(kernel.scale);
  for (std::int64_t i = 0; i < rows; ++i) {
    const std::int64_t target = targets[i] - placement.first_column;
    for (std::int64_t j = 0; j < columns; ++j) {
      const T probability = exponentials[i * columns + j] / sum[i];
      dlogits[i * columns + j] = (probability - (j == target ? T{1} : T{0})) * scale;
    }
  }
}

// Exponentials (or their sum) that were taken relative to `from`, now relative to `to`.
template <typename T>
void shift(const OperandsOf& operands) {
  const std::int64_t rows = operands.read(0).elements();
  const Input<T> values(operands.read(0)), from(operands.read(1, rows)), to(operands.read(2, rows));
  Output<T> shifted(operands.write(0, rows), false);
  for (std::int64_t i = 0; i < rows; ++i) shifted[i] = values[i] * std::exp(from[i] - to[i]);
}

// What of a vocabulary shard reaches the input: the exponentials' product with the table over their
// sum, less the targets' rows of the table.
template <typename T>
void input_gradient(const Kernel& kernel, const OperandsOf& operands) {
  const std::int64_t rows = kernel.rows, columns = kernel.columns;
  const Input<T> a(operands.read(0, rows * columns)), b(operands.read(1, rows * columns)),
      sum(operands.read(2, rows));
  Output<T> gradient(operands.write(0, rows * columns), true);
  const T scale = static_cast<T>(kernel.scale);
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = i * columns; j < (i + 1) * columns; ++j) {
      gradient[j] = scale * (a[j] / sum[i] - b[j]);
    }
  }
}

template <typename T>
void maximum_of(const Kernel& kernel, const OperandsOf& operands, const Placement& placement) {
  const std::int64_t rows = kernel.rows, columns = kernel.columns;
  const Input<T> logits(operands.read(0, rows * columns));
  Output<T> maximum(operands.write(0, rows), false);
  const std::int64_t real = real_columns(kernel, placement);
  for (std::int64_t i = 0; i < rows; ++i) {
    const T* row = logits.data() + i * columns;
    maximum[i] =
        real > 0 ? *std::max_element(row, row + real) : -std::numeric_limits<T>::infinity();
  }
}

template <typename T>
void loss_of(const OperandsOf& operands) {
  const std::int64_t rows = operands.write(0).elements();
  const Input<T> predicted(operands.read(0, rows)), sum(operands.read(1, rows)),
      maximum(operands.read(2, rows));
  Output<T> loss(operands.write(0, rows), false);
  for (std::int64_t i = 0; i < rows; ++i) loss[i] = std::log(sum[i]) + maximum[i] - predicted[i];
}

// The statistic is the log of the sum of exponentials.
template <typename T>
void fused_forward(const Kernel& kernel, const OperandsOf& operands, const Placement& placement) {
  const std::int64_t rows = kernel.rows, columns = kernel.columns;
  const Input<T> logits(operands.read(0, rows * columns));
  const Input<std::int64_t> targets(operands.read(1, rows));
  Output<T> loss(operands.write(0, rows), false), statistics(operands.write(1, rows), false);
  const std::int64_t real = real_columns(kernel, placement);
  for (std::int64_t i = 0; i < rows; ++i) {
    const T* row = logits.data() + i * columns;
    if (targets[i] < 0 || targets[i] >= real) operands.refuse("a target is no vocabulary entry");
    const T maximum = *std::max_element(row, row + real);
    T sum = 0;
    for (std::int64_t j = 0; j < real; ++j) sum += std::exp(row[j] - maximum);
    statistics[i] = maximum + std::log(sum);
    loss[i] = statistics[i] - row[targets[i]];
  }
}

template <typename T>
void fused_backward(const Kernel& kernel, const OperandsOf& operands, const Placement& placement) {
  const std::int64_t rows = kernel.rows, columns = kernel.columns;
  const Input<T> logits(operands.read(0, rows * columns)), statistics(operands.read(2, rows));
  const Input<std::int64_t> targets(operands.read(1, rows));
  Output<T> dlogits(operands.write(0, rows * columns), false);
  const T scale = static_cast<T>(kernel.scale);
  const std::int64_t real = real_columns(kernel, placement);
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) {
      const T probability = j < real ? std::exp(logits[i * columns + j] - statistics[i]) : T{0};
      dlogits[i * columns + j] = (probability - (j == targets[i] ? T{1} : T{0})) * scale;
    }
  }
}

template <typename T>
void add_losses(const Kernel& kernel, const OperandsOf& operands) {
  const Input<T> loss(operands.read(0));
  operands.read(1, 1);
  Output<T> total(operands.write(0, 1), true);
  T sum = 0;
  for (std::int64_t i = 0; i < operands.read(0).elements(); ++i) sum += loss[i];
  total[0] += static_cast<T>(kernel.scale) * sum;
}

}  // namespace

template <typename T>
void compute_cross_entropy(const Kernel& kernel, const OperandsOf& operands,
                           const Placement& placement) {
  switch (kernel.kind) {
    case KernelKind::kCrossEntropyMaximum:
      return maximum_of<T>(kernel, operands, placement);
    case KernelKind::kCrossEntropySums:
      return sums<T>(kernel, operands, placement);
    case KernelKind::kCrossEntropyLoss:
      return loss_of<T>(operands);
    case KernelKind::kCrossEntropyBackward:
      return backward<T>(kernel, operands, placement);
    case KernelKind::kCrossEntropyShift:
      return shift<T>(operands);
    case KernelKind::kCrossEntropyInputGradient:
      return input_gradient<T>(kernel, operands);
    case KernelKind::kFusedCrossEntropyForward:
      return fused_forward<T>(kernel, operands, placement);
    case KernelKind::kFusedCrossEntropyBackward:
      return fused_backward<T>(kernel, operands, placement);
    default:
      return add_losses<T>(kernel, operands);
  }
}

template void compute_cross_entropy<float>(const Kernel&, const OperandsOf&, const Placement&);
template void compute_cross_entropy<double>(const Kernel&, const OperandsOf&, const Placement&);

}  // namespace headway
