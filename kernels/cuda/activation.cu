#include "kernels/cuda/device_call.hpp"
#include "kernels/cuda/each.hpp"

namespace headway {
namespace {

// GeLU in its tanh form: kernels/cpu/activation.cpp has the sources.
constexpr double kRootTwoOverPi = 0.79788456080286535588;
constexpr double kCubic = 0.044715;

struct Gelu {
  template <typename T>
  static HEADWAY_DEVICE T value(T x) {
    const T inner = static_cast<T>(kRootTwoOverPi) * (x + static_cast<T>(kCubic) * x * x * x);
    return static_cast<T>(0.5) * x * (T{1} + std::tanh(inner));
  }
  template <typename T>
  static HEADWAY_DEVICE T slope(T x) {
    const T inner = static_cast<T>(kRootTwoOverPi) * (x + static_cast<T>(kCubic) * x * x * x);
    const T tanh_inner = std::tanh(inner);
    const T inner_slope =
        static_cast<T>(kRootTwoOverPi) * (T{1} + T{3} * static_cast<T>(kCubic) * x * x);
    return static_cast<T>(0.5) * (T{1} + tanh_inner) +
           static_cast<T>(0.5) * x * (T{1} - tanh_inner * tanh_inner) * inner_slope;
  }
};
struct Relu {
  template <typename T>
  static HEADWAY_DEVICE T value(T x) {
    return x > T{0} ? x : T{0};
  }
  template <typename T>
  static HEADWAY_DEVICE T slope(T x) {
    return x > T{0} ? T{1} : T{0};
  }
};

template <typename T>
HEADWAY_DEVICE T sigmoid(T x) {
  return T{1} / (T{1} + std::exp(-x));
}

template <typename T, typename Function>
struct Forward {
  Elements x, bias, y;
  std::int64_t columns;
  bool with_bias;
  template <int W>
  HEADWAY_DEVICE void at(std::int64_t i) const {
    T v[W], b[W];
    x.load<W>(i, v);
    if (with_bias) bias.load<W>(i % columns, b);
    for (int w = 0; w < W; ++w) v[w] = Function::value(with_bias ? v[w] + b[w] : v[w]);
    y.store<W>(i, v);
  }
};

template <typename T, typename Function>
struct Backward {
  Elements dy, x, bias, dx, dbias;
  std::int64_t columns;
  bool with_bias;
  template <int W>
  HEADWAY_DEVICE void at(std::int64_t i) const {
    T g[W], v[W], b[W];
    dy.load<W>(i, g);
    x.load<W>(i, v);
    if (with_bias) bias.load<W>(i % columns, b);
    for (int w = 0; w < W; ++w) g[w] *= Function::slope(with_bias ? v[w] + b[w] : v[w]);
    dx.store<W>(i, g);
  }
  // The bias's gradient is the sum of dx, before it was rounded.
  HEADWAY_DEVICE T value(std::int64_t row, std::int64_t column) const {
    const std::int64_t i = row * columns + column;
    return dy.load<T>(i) * Function::slope(x.load<T>(i) + bias.load<T>(column));
  }
  HEADWAY_DEVICE void take(std::int64_t column, T sum) const {
    dbias.store(column, dbias.load<T>(column) + sum);
  }
};

// x is (gate | up): y = gate sigmoid(gate) up.
template <typename T>
struct SwigluForward {
  Elements x, y;
  std::int64_t columns;
  template <int W>
  HEADWAY_DEVICE void at(std::int64_t i) const {
    const std::int64_t gate_at = i / columns * 2 * columns + i % columns;
    T gate[W], up[W];
    x.load<W>(gate_at, gate);
    x.load<W>(gate_at + columns, up);
    for (int w = 0; w < W; ++w) gate[w] = gate[w] * sigmoid(gate[w]) * up[w];
    y.store<W>(i, gate);
  }
};

template <typename T>
struct SwigluBackward {
  Elements dy, x, dx;
  std::int64_t columns;
  template <int W>
  HEADWAY_DEVICE void at(std::int64_t i) const {
    const std::int64_t gate_at = i / columns * 2 * columns + i % columns;
    T g[W], gate[W], up[W];
    dy.load<W>(i, g);
    x.load<W>(gate_at, gate);
    x.load<W>(gate_at + columns, up);
    for (int w = 0; w < W; ++w) {
      const T s = sigmoid(gate[w]);
      const T dgate = g[w] * up[w] * s * (T{1} + gate[w] * (T{1} - s));
      up[w] = g[w] * gate[w] * s;
      gate[w] = dgate;
    }
    dx.store<W>(gate_at, gate);
    dx.store<W>(gate_at + columns, up);
  }
};

template <typename T, typename Function>
void forward(const Kernel& kernel, const DeviceCall& call) {
  const std::int64_t count = kernel.rows * kernel.columns;
  Forward<T, Function> work{
      call.read(0, count), {}, call.write(0, count), kernel.columns, kernel.bias};
  if (kernel.bias) work.bias = call.read(1, kernel.columns);
  each_element(work, count, wide(kernel.columns, {work.x, work.bias, work.y}), call.stream.get());
}

template <typename T, typename Function>
void backward(const Kernel& kernel, const DeviceCall& call) {
  const std::int64_t count = kernel.rows * kernel.columns;
  Backward<T, Function> work{call.read(0, count), call.read(1, count), {}, call.write(0, count), {},
                             kernel.columns,      kernel.bias};
  if (kernel.bias) {
    work.bias = call.read(2, kernel.columns);
    call.operands.read(3, kernel.columns);
    work.dbias = call.write(1, kernel.columns);
    sum_columns<T>(work, kernel.rows, kernel.columns, call.stream.get());
  }
  each_element(work, count, wide(kernel.columns, {work.dy, work.x, work.bias, work.dx}),
               call.stream.get());
}

template <typename T>
void swiglu(const Kernel& kernel, const DeviceCall& call) {
  const std::int64_t count = kernel.rows * kernel.columns;
  if (kernel.kind == KernelKind::kSwigluForward) {
    const SwigluForward<T> work{call.read(0, 2 * count), call.write(0, count), kernel.columns};
    return each_element(work, count, wide(kernel.columns, {work.x, work.y}), call.stream.get());
  }
  const SwigluBackward<T> work{call.read(0, count), call.read(1, 2 * count),
                               call.write(0, 2 * count), kernel.columns};
  each_element(work, count, wide(kernel.columns, {work.dy, work.x, work.dx}), call.stream.get());
}

}  // namespace

template <typename T>
void device_activation(const Kernel& kernel, const DeviceCall& call) {
  switch (kernel.kind) {
    case KernelKind::kGeluForward:
      return forward<T, Gelu>(kernel, call);
    case KernelKind::kGeluBackward:
      return backward<T, Gelu>(kernel, call);
    case KernelKind::kReluForward:
      return forward<T, Relu>(kernel, call);
    case KernelKind::kReluBackward:
      return backward<T, Relu>(kernel, call);
    default:
      return swiglu<T>(kernel, call);
  }
}

template void device_activation<float>(const Kernel&, const DeviceCall&);
template void device_activation<double>(const Kernel&, const DeviceCall&);

}  // namespace headway
