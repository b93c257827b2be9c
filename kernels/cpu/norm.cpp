#include <cmath>

#include "kernels/cpu/memory_bound.hpp"

namespace headway {
namespace {

constexpr double kEpsilon = 1e-5;  // Llama 2's rms_norm_eps; PyTorch's LayerNorm

// y = x r w, r = 1 / sqrt(mean(x^2) + epsilon); the statistic is r.
template <typename T>
void rms_forward(const Kernel& kernel, const OperandsOf& operands) {
  const std::int64_t rows = kernel.rows, columns = kernel.columns;
  const Input<T> x(operands.read(0, rows * columns)), weight(operands.read(1, columns));
  Output<T> y(operands.write(0, rows * columns), false), statistics(operands.write(1, rows), false);
  for (std::int64_t i = 0; i < rows; ++i) {
    T squares = 0;
    for (std::int64_t j = 0; j < columns; ++j) squares += x[i * columns + j] * x[i * columns + j];
    const T r = T{1} / std::sqrt(squares / static_cast<T>(columns) + static_cast<T>(kEpsilon));
    statistics[i] = r;
    for (std::int64_t j = 0; j < columns; ++j) {
      y[i * columns + j] = x[i * columns + j] * r * weight[j];
    }
  }
}

// With n = x r and g = dy w: dx = r (g - n mean(g n)), dw += sum over rows of dy n.
template <typename T>
void rms_backward(const Kernel& kernel, const OperandsOf& operands) {
  const std::int64_t rows = kernel.rows, columns = kernel.columns;
  const Input<T> dy(operands.read(0, rows * columns)), x(operands.read(1, rows * columns));
  const Input<T> weight(operands.read(2, columns)), statistics(operands.read(3, rows));
  operands.read(4, columns);
  Output<T> dx(operands.write(0, rows * columns), false);
  Output<T> dweight(operands.write(1, columns), true);
  for (std::int64_t i = 0; i < rows; ++i) {
    const T r = statistics[i];
    T dot = 0;
    for (std::int64_t j = 0; j < columns; ++j) {
      dot += dy[i * columns + j] * weight[j] * x[i * columns + j] * r;
    }
    const T mean = dot / static_cast<T>(columns);
    for (std::int64_t j = 0; j < columns; ++j) {
      const T gradient = dy[i * columns + j];
      const T normal = x[i * columns + j] * r;
      dweight[j] += gradient * normal;
      dx[i * columns + j] = r * (gradient * weight[j] - normal * mean);
    }
  }
}

// y = (x - mean) r w + b; the statistics are mean and r.
template <typename T>
void layer_forward(const Kernel& kernel, const OperandsOf& operands) {
  const std::int64_t rows = kernel.rows, columns = kernel.columns;
  const Input<T> x(operands.read(0, rows * columns)), weight(operands.read(1, columns)),
      bias(operands.read(2, columns));
  Output<T> y(operands.write(0, rows * columns), false),
      statistics(operands.write(1, 2 * rows), false);
  for (std::int64_t i = 0; i < rows; ++i) {
    T sum = 0, squares = 0;
    for (std::int64_t j = 0; j < columns; ++j) sum += x[i * columns + j];
    const T mean = sum / static_cast<T>(columns);
    for (std::int64_t j = 0; j < columns; ++j) {
      squares += (x[i * columns + j] - mean) * (x[i * columns + j] - mean);
    }
    const T r = T{1} / std::sqrt(squares / static_cast<T>(columns) + static_cast<T>(kEpsilon));
    statistics[2 * i] = mean;
    statistics[2 * i + 1] = r;
    for (std::int64_t j = 0; j < columns; ++j) {
      y[i * columns + j] = (x[i * columns + j] - mean) * r * weight[j] + bias[j];
    }
  }
}

// With n = (x - mean) r and g = dy w: dx = r (g - mean(g) - n mean(g n)).
template <typename T>
void layer_backward(const Kernel& kernel, const OperandsOf& operands) {
  const std::int64_t rows = kernel.rows, columns = kernel.columns;
  const Input<T> dy(operands.read(0, rows * columns)), x(operands.read(1, rows * columns));
  const Input<T> weight(operands.read(2, columns)), statistics(operands.read(3, 2 * rows));
  operands.read(4, columns);
  operands.read(5, columns);
  Output<T> dx(operands.write(0, rows * columns), false);
  Output<T> dweight(operands.write(1, columns), true), dbias(operands.write(2, columns), true);
  for (std::int64_t i = 0; i < rows; ++i) {
    const T center = statistics[2 * i], r = statistics[2 * i + 1];
    T sum = 0, dot = 0;
    for (std::int64_t j = 0; j < columns; ++j) {
      const T scaled = dy[i * columns + j] * weight[j];
      sum += scaled;
      dot += scaled * (x[i * columns + j] - center) * r;
    }
    const T mean = sum / static_cast<T>(columns), mean_dot = dot / static_cast<T>(columns);
    for (std::int64_t j = 0; j < columns; ++j) {
      const T gradient = dy[i * columns + j];
      const T normal = (x[i * columns + j] - center) * r;
      dweight[j] += gradient * normal;
      dbias[j] += gradient;
      dx[i * columns + j] = r * (gradient * weight[j] - mean - normal * mean_dot);
    }
  }
}

}  // namespace

template <typename T>
void compute_norm(const Kernel& kernel, const OperandsOf& operands) {
  switch (kernel.kind) {
    case KernelKind::kRmsNormForward:
      return rms_forward<T>(kernel, operands);
    case KernelKind::kRmsNormBackward:
      return rms_backward<T>(kernel, operands);
    case KernelKind::kLayerNormForward:
      return layer_forward<T>(kernel, operands);
    default:
      return layer_backward<T>(kernel, operands);
  }
}

template void compute_norm<float>(const Kernel&, const OperandsOf&);
template void compute_norm<double>(const Kernel&, const OperandsOf&);

}  // namespace headway
