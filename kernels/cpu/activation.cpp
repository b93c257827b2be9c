#include <cmath>

#include "kernels/cpu/memory_bound.hpp"

namespace headway {
namespace {

// GeLU in its tanh form, 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))): Hendrycks and Gimpel,
// arXiv 1606.08415; what GPT-2 and Megatron-LM's fused kernel compute.
constexpr double kRootTwoOverPi = 0.79788456080286535588;
constexpr double kCubic = 0.044715;

template <typename T>
T gelu(T x) {
  const T inner = static_cast<T>(kRootTwoOverPi) * (x + static_cast<T>(kCubic) * x * x * x);
  return T{0.5} * x * (T{1} + std::tanh(inner));
}

template <typename T>
T gelu_slope(T x) {
  const T inner = static_cast<T>(kRootTwoOverPi) * (x + static_cast<T>(kCubic) * x * x * x);
  const T tanh_inner = std::tanh(inner);
  const T inner_slope =
      static_cast<T>(kRootTwoOverPi) * (T{1} + T{3} * static_cast<T>(kCubic) * x * x);
  return T{0.5} * (T{1} + tanh_inner) + T{0.5} * x * (T{1} - tanh_inner * tanh_inner) * inner_slope;
}

template <typename T>
T sigmoid(T x) {
  return T{1} / (T{1} + std::exp(-x));
}

template <typename T, typename Function>
void forward(const Kernel& kernel, const OperandsOf& operands, Function function) {
  const std::int64_t elements = kernel.rows * kernel.columns;
  const Input<T> x(operands.read(0, elements));
  Output<T> y(operands.write(0, elements), false);
  if (!kernel.bias) {
    for (std::int64_t i = 0; i < elements; ++i) y[i] = function(x[i]);
    return;
  }
  const Input<T> bias(operands.read(1, kernel.columns));
  for (std::int64_t i = 0; i < elements; ++i) y[i] = function(x[i] + bias[i % kernel.columns]);
}

template <typename T, typename Slope>
void backward(const Kernel& kernel, const OperandsOf& operands, Slope slope) {
  const std::int64_t elements = kernel.rows * kernel.columns;
  const Input<T> dy(operands.read(0, elements)), x(operands.read(1, elements));
  Output<T> dx(operands.write(0, elements), false);
  if (!kernel.bias) {
    for (std::int64_t i = 0; i < elements; ++i) dx[i] = dy[i] * slope(x[i]);
    return;
  }
  const Input<T> bias(operands.read(2, kernel.columns));
  operands.read(3, kernel.columns);
  Output<T> dbias(operands.write(1, kernel.columns), true);
  for (std::int64_t i = 0; i < elements; ++i) {
    const std::int64_t column = i % kernel.columns;
    dx[i] = dy[i] * slope(x[i] + bias[column]);
    dbias[column] += dx[i];
  }
}

// Of each row, where there are any.
template <typename T>
std::vector<T> row_weights(const Kernel& kernel, const OperandsOf& operands, std::size_t at) {
  std::vector<T> weights(static_cast<std::size_t>(kernel.rows), T{1});
  if (kernel.bias) load(operands.read(at, kernel.rows), 0, kernel.rows, weights.data());
  return weights;
}

// x is (gate | up): y = gate sigmoid(gate) up, times the row's weight.
template <typename T>
void swiglu_forward(const Kernel& kernel, const OperandsOf& operands) {
  const std::int64_t rows = kernel.rows, columns = kernel.columns;
  const Input<T> x(operands.read(0, 2 * rows * columns));
  const std::vector<T> weights = row_weights<T>(kernel, operands, 1);
  Output<T> y(operands.write(0, rows * columns), false);
  for (std::int64_t i = 0; i < rows; ++i) {
    const T weight = weights[static_cast<std::size_t>(i)];
    for (std::int64_t j = 0; j < columns; ++j) {
      const T gate = x[2 * i * columns + j], up = x[(2 * i + 1) * columns + j];
      y[i * columns + j] = weight * gate * sigmoid(gate) * up;
    }
  }
}

template <typename T>
void swiglu_backward(const Kernel& kernel, const OperandsOf& operands) {
  const std::int64_t rows = kernel.rows, columns = kernel.columns;
  const Input<T> dy(operands.read(0, rows * columns)), x(operands.read(1, 2 * rows * columns));
  const std::vector<T> weights = row_weights<T>(kernel, operands, 2);
  std::vector<T> slopes(weights.size());  // of the weights
  Output<T> dx(operands.write(0, 2 * rows * columns), false);
  for (std::int64_t i = 0; i < rows; ++i) {
    const auto row = static_cast<std::size_t>(i);
    for (std::int64_t j = 0; j < columns; ++j) {
      const std::int64_t at_gate = 2 * i * columns + j, at_up = at_gate + columns;
      const T gate = x[at_gate], up = x[at_up], slope = dy[i * columns + j];
      const T s = sigmoid(gate), gradient = weights[row] * slope;
      slopes[row] += slope * gate * s * up;
      dx[at_gate] = gradient * up * s * (T{1} + gate * (T{1} - s));
      dx[at_up] = gradient * gate * s;
    }
  }
  if (kernel.bias) store(operands.write(1, rows), 0, rows, slopes.data());
}

}  // namespace

template <typename T>
void compute_activation(const Kernel& kernel, const OperandsOf& operands) {
  switch (kernel.kind) {
    case KernelKind::kGeluForward:
      return forward<T>(kernel, operands, gelu<T>);
    case KernelKind::kGeluBackward:
      return backward<T>(kernel, operands, gelu_slope<T>);
    case KernelKind::kReluForward:
      return forward<T>(kernel, operands, [](T x) { return x > T{0} ? x : T{0}; });
    case KernelKind::kReluBackward:
      return backward<T>(kernel, operands, [](T x) { return x > T{0} ? T{1} : T{0}; });
    case KernelKind::kSwigluForward:
      return swiglu_forward<T>(kernel, operands);
    default:
      return swiglu_backward<T>(kernel, operands);
  }
}

template void compute_activation<float>(const Kernel&, const OperandsOf&);
template void compute_activation<double>(const Kernel&, const OperandsOf&);

}  // namespace headway
