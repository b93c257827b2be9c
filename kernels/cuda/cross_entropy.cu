#include <cmath>
#include <limits>

#include "kernels/cuda/device_call.hpp"
#include "kernels/cuda/each.hpp"

namespace headway {
namespace {

// What the kernels over rows of logits read and write. `real`: entries of the data set among the
// local columns; what lies past them is padding, which counts as minus infinity.
struct LossOperands {
  Elements logits, maximum, targets, sums, predicted, exponentials, loss;
  std::int64_t rows = 0, columns = 0, real = 0, first_column = 0;
  double scale = 1;
};

template <typename T>
HEADWAY_DEVICE T row_maximum(const LossOperands& of, std::int64_t row) {
  T largest = -std::numeric_limits<T>::infinity();
  for (std::int64_t c = threadIdx.x; c < of.real; c += kThreads) {
    largest = Larger{}(largest, of.logits.load<T>(row * of.columns + c));
  }
  return over_block(largest, Larger{});
}

template <typename T>
HEADWAY_DEVICE std::int64_t local_target(const LossOperands& of, std::int64_t row) {
  return of.targets.as<std::int64_t>()[row] - of.first_column;
}

template <typename T>
__global__ void maximum_kernel(LossOperands of) {
  for (std::int64_t row = blockIdx.x; row < of.rows; row += gridDim.x) {
    const T largest = row_maximum<T>(of, row);
    if (threadIdx.x == 0) of.maximum.store(row, largest);
  }
}

// Vocabulary-parallel: a target outside the local columns predicts 0, which is then summed over the
// group.
template <typename T>
__global__ void sums_kernel(LossOperands of) {
  for (std::int64_t row = blockIdx.x; row < of.rows; row += gridDim.x) {
    const T maximum = of.maximum.load<T>(row);
    const std::int64_t target = local_target<T>(of, row);
    // Read before the exponentials take the logits' place.
    const bool is_local = target >= 0 && target < of.columns;
    const T predicted = is_local ? of.logits.load<T>(row * of.columns + target) : T{0};
    __syncthreads();
    T sum = 0;
    for (std::int64_t c = threadIdx.x; c < of.columns; c += kThreads) {
      const std::int64_t i = row * of.columns + c;
      const T exponential = c < of.real ? std::exp(of.logits.load<T>(i) - maximum) : T{0};
      of.exponentials.store(i, exponential);
      sum += exponential;
    }
    sum = over_block(sum, Plus{});
    if (threadIdx.x != 0) continue;
    of.predicted.store(row, predicted);
    of.sums.store(row, sum);
  }
}

// The statistic is the log of the sum of exponentials.
template <typename T>
__global__ void fused_forward_kernel(LossOperands of) {
  for (std::int64_t row = blockIdx.x; row < of.rows; row += gridDim.x) {
    const T maximum = row_maximum<T>(of, row);
    T sum = 0;
    for (std::int64_t c = threadIdx.x; c < of.real; c += kThreads) {
      sum += std::exp(of.logits.load<T>(row * of.columns + c) - maximum);
    }
    sum = over_block(sum, Plus{});
    if (threadIdx.x != 0) continue;
    const T statistic = maximum + std::log(sum);
    const std::int64_t target = local_target<T>(of, row);
    const bool is_entry = target >= 0 && target < of.real;
    of.sums.store(row, statistic);
    // A target that is no entry shows as a loss that is no number.
    of.loss.store(row, is_entry ? statistic - of.logits.load<T>(row * of.columns + target)
                                : std::numeric_limits<T>::quiet_NaN());
  }
}

// From exponentials and their sums, or, fused, from logits and the log of the sum.
template <typename T>
struct Backward {
  LossOperands of;
  Elements dlogits;
  bool fused;
  template <int W>
  HEADWAY_DEVICE void at(std::int64_t i) const {
    const std::int64_t row = i / of.columns, column = i % of.columns;
    const std::int64_t target = local_target<T>(of, row);
    const T sum = of.sums.load<T>(row);
    T v[W];
    (fused ? of.logits : of.exponentials).template load<W>(i, v);
    for (int w = 0; w < W; ++w) {
      const T of_fused = column + w < of.real ? std::exp(v[w] - sum) : T{0};
      const T probability = fused ? of_fused : v[w] / sum;
      v[w] = (probability - (column + w == target ? T{1} : T{0})) * static_cast<T>(of.scale);
    }
    dlogits.store<W>(i, v);
  }
};

template <typename T>
struct Loss {
  Elements predicted, sums, maximum, loss;
  template <int W>
  HEADWAY_DEVICE void at(std::int64_t i) const {
    loss.store(i, std::log(sums.load<T>(i)) + maximum.load<T>(i) - predicted.load<T>(i));
  }
};

template <typename T>
struct Shift {
  Elements values, from, to, shifted;
  template <int W>
  HEADWAY_DEVICE void at(std::int64_t i) const {
    shifted.store(i, values.load<T>(i) * std::exp(from.load<T>(i) - to.load<T>(i)));
  }
};

template <typename T>
struct InputGradient {
  Elements a, b, sums, gradient;
  std::int64_t columns;
  T scale;
  template <int W>
  HEADWAY_DEVICE void at(std::int64_t i) const {
    T v[W], u[W];
    const T sum = sums.load<T>(i / columns);
    a.load<W>(i, v);
    b.load<W>(i, u);
    for (int w = 0; w < W; ++w) v[w] = scale * (v[w] / sum - u[w]);
    gradient.store<W>(i, v);
  }
};

// One block, in one order.
template <typename T>
__global__ void loss_sum_kernel(Elements loss, std::int64_t count, T scale, Elements total) {
  T sum = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += kThreads) sum += loss.load<T>(i);
  sum = over_block(sum, Plus{});
  if (threadIdx.x == 0) total.store(0, total.load<T>(0) + scale * sum);
}

LossOperands operands_of(const Kernel& kernel, const DeviceCall& call) {
  LossOperands of;
  of.rows = kernel.rows;
  of.columns = kernel.columns;
  of.first_column = call.placement.first_column;
  of.scale = kernel.scale;
  const std::int64_t entries = call.placement.vocabulary;
  of.real = entries <= 0 ? of.columns
                         : std::clamp(entries - of.first_column, std::int64_t{0}, of.columns);
  return of;
}

template <typename T>
void over_logits(const Kernel& kernel, const DeviceCall& call) {
  const std::int64_t rows = kernel.rows, count = rows * kernel.columns;
  LossOperands of = operands_of(kernel, call);
  cudaStream_t stream = call.stream.get();
  if (kernel.kind == KernelKind::kCrossEntropyMaximum) {
    of.logits = call.read(0, count);
    of.maximum = call.write(0, rows);
    return launch(maximum_kernel<T>, row_blocks(rows), kThreads, stream, of);
  }
  if (kernel.kind == KernelKind::kCrossEntropySums) {
    of.logits = call.read(0, count);
    of.maximum = call.read(1, rows);
    of.targets = call.read(2, rows);
    of.predicted = call.write(0, rows);
    of.sums = call.write(1, rows);
    of.exponentials = call.operands.writes() > 2 ? call.write(2, count) : of.logits;
    return launch(sums_kernel<T>, row_blocks(rows), kThreads, stream, of);
  }
  if (kernel.kind == KernelKind::kFusedCrossEntropyForward) {
    of.first_column = 0;  // the whole vocabulary is here
    of.real = call.placement.vocabulary <= 0 ? of.columns : of.real;
    of.logits = call.read(0, count);
    of.targets = call.read(1, rows);
    of.loss = call.write(0, rows);
    of.sums = call.write(1, rows);
    return launch(fused_forward_kernel<T>, row_blocks(rows), kThreads, stream, of);
  }
  const bool fused = kernel.kind == KernelKind::kFusedCrossEntropyBackward;
  if (fused) {
    of.first_column = 0;
    of.logits = call.read(0, count);
    of.targets = call.read(1, rows);
    of.sums = call.read(2, rows);
  } else {
    of.exponentials = call.read(0, count);
    of.sums = call.read(1, rows);
    of.targets = call.read(2, rows);
  }
  const Backward<T> work{of, call.write(0, count), fused};
  each_element(work, count,
               wide(kernel.columns, {fused ? of.logits : of.exponentials, work.dlogits}), stream);
}

template <typename T>
void input_gradient(const Kernel& kernel, const DeviceCall& call) {
  const std::int64_t count = kernel.rows * kernel.columns;
  const InputGradient<T> work{
      call.read(0, count),  call.read(1, count), call.read(2, kernel.rows),
      call.write(0, count), kernel.columns,      static_cast<T>(kernel.scale)};
  each_element(work, count, wide(kernel.columns, {work.a, work.b, work.gradient}),
               call.stream.get());
}

}  // namespace

template <typename T>
void device_cross_entropy(const Kernel& kernel, const DeviceCall& call) {
  cudaStream_t stream = call.stream.get();
  switch (kernel.kind) {
    case KernelKind::kCrossEntropyLoss: {
      const std::int64_t rows = call.operands.write(0).elements();
      return each_element(
          Loss<T>{call.read(0, rows), call.read(1, rows), call.read(2, rows), call.write(0, rows)},
          rows, false, stream);
    }
    case KernelKind::kCrossEntropyShift: {
      const std::int64_t rows = call.operands.read(0).elements();
      return each_element(
          Shift<T>{call.read(0, rows), call.read(1, rows), call.read(2, rows), call.write(0, rows)},
          rows, false, stream);
    }
    case KernelKind::kCrossEntropyInputGradient:
      return input_gradient<T>(kernel, call);
    case KernelKind::kLossSum: {
      const Operand& loss = call.operands.read(0);
      call.operands.read(1, 1);
      return launch(loss_sum_kernel<T>, dim3(1), kThreads, stream, elements(loss), loss.elements(),
                    static_cast<T>(kernel.scale), call.write(0, 1));
    }
    default:
      return over_logits<T>(kernel, call);
  }
}

template void device_cross_entropy<float>(const Kernel&, const DeviceCall&);
template void device_cross_entropy<double>(const Kernel&, const DeviceCall&);

}  // namespace headway
