#include "kernels/cuda/device_call.hpp"
#include "kernels/cuda/each.hpp"

namespace headway {
namespace {

constexpr double kEpsilon = 1e-5;  // Llama 2's rms_norm_eps; PyTorch's LayerNorm

// What the kernels of both norms read and write; RMSNorm has no bias, and its mean is 0.
struct NormOperands {
  Elements x, dy, weight, bias, statistics, y, dweight, dbias;
  std::int64_t rows = 0, columns = 0;
  bool centred = false;
};

// One block for each row: y = (x - mean) r w + b. The row is read again from the caches.
template <typename T, int W>
__global__ void norm_forward_kernel(NormOperands of) {
  for (std::int64_t row = blockIdx.x; row < of.rows; row += gridDim.x) {
    T mean = 0, squares = 0;
    T x[W], w[W], b[W];
    if (of.centred) {
      for (std::int64_t c = threadIdx.x * W; c < of.columns; c += kThreads * W) {
        of.x.load<W>(row * of.columns + c, x);
        for (int i = 0; i < W; ++i) mean += x[i];
      }
      mean = over_block(mean, Plus{}) / static_cast<T>(of.columns);
    }
    for (std::int64_t c = threadIdx.x * W; c < of.columns; c += kThreads * W) {
      of.x.load<W>(row * of.columns + c, x);
      for (int i = 0; i < W; ++i) squares += (x[i] - mean) * (x[i] - mean);
    }
    squares = over_block(squares, Plus{});
    const T r = T{1} / std::sqrt(squares / static_cast<T>(of.columns) + static_cast<T>(kEpsilon));
    if (threadIdx.x == 0) {
      if (of.centred) of.statistics.store(2 * row, mean);
      of.statistics.store(of.centred ? 2 * row + 1 : row, r);
    }
    for (std::int64_t c = threadIdx.x * W; c < of.columns; c += kThreads * W) {
      of.x.load<W>(row * of.columns + c, x);
      of.weight.load<W>(c, w);
      if (of.centred) of.bias.load<W>(c, b);
      for (int i = 0; i < W; ++i) {
        x[i] = (x[i] - mean) * r * w[i];
        if (of.centred) x[i] += b[i];
      }
      of.y.store<W>(row * of.columns + c, x);
    }
  }
}

template <typename T>
HEADWAY_DEVICE void statistics_of(const NormOperands& of, std::int64_t row, T& mean, T& r) {
  mean = of.centred ? of.statistics.load<T>(2 * row) : T{0};
  r = of.statistics.load<T>(of.centred ? 2 * row + 1 : row);
}

// With n = (x - mean) r and g = dy w: dx = r (g - mean(g) - n mean(g n)); RMSNorm has no mean(g).
template <typename T, int W>
__global__ void norm_backward_kernel(NormOperands of) {
  for (std::int64_t row = blockIdx.x; row < of.rows; row += gridDim.x) {
    T mean, r, sum = 0, dot = 0;
    statistics_of(of, row, mean, r);
    T x[W], dy[W], w[W];
    for (std::int64_t c = threadIdx.x * W; c < of.columns; c += kThreads * W) {
      of.x.load<W>(row * of.columns + c, x);
      of.dy.load<W>(row * of.columns + c, dy);
      of.weight.load<W>(c, w);
      for (int i = 0; i < W; ++i) {
        sum += dy[i] * w[i];
        dot += dy[i] * w[i] * (x[i] - mean) * r;
      }
    }
    dot = over_block(dot, Plus{}) / static_cast<T>(of.columns);
    sum = of.centred ? over_block(sum, Plus{}) / static_cast<T>(of.columns) : T{0};
    for (std::int64_t c = threadIdx.x * W; c < of.columns; c += kThreads * W) {
      of.x.load<W>(row * of.columns + c, x);
      of.dy.load<W>(row * of.columns + c, dy);
      of.weight.load<W>(c, w);
      for (int i = 0; i < W; ++i) x[i] = r * (dy[i] * w[i] - sum - (x[i] - mean) * r * dot);
      of.y.store<W>(row * of.columns + c, x);
    }
  }
}

// dw += sum over rows of dy n.
template <typename T>
struct WeightGradient {
  NormOperands of;
  HEADWAY_DEVICE T value(std::int64_t row, std::int64_t column) const {
    T mean, r;
    statistics_of(of, row, mean, r);
    const std::int64_t i = row * of.columns + column;
    return of.dy.load<T>(i) * (of.x.load<T>(i) - mean) * r;
  }
  HEADWAY_DEVICE void take(std::int64_t column, T sum) const {
    of.dweight.store(column, of.dweight.load<T>(column) + sum);
  }
};

template <typename T>
struct BiasGradient {
  NormOperands of;
  HEADWAY_DEVICE T value(std::int64_t row, std::int64_t column) const {
    return of.dy.load<T>(row * of.columns + column);
  }
  HEADWAY_DEVICE void take(std::int64_t column, T sum) const {
    of.dbias.store(column, of.dbias.load<T>(column) + sum);
  }
};

template <typename T>
void forward(NormOperands of, const DeviceCall& call) {
  const bool by_fours = wide(of.columns, {of.x, of.weight, of.bias, of.y});
  launch(by_fours ? norm_forward_kernel<T, kWide> : norm_forward_kernel<T, 1>, row_blocks(of.rows),
         kThreads, call.stream.get(), of);
}

template <typename T>
void backward(NormOperands of, const DeviceCall& call) {
  // First what is summed over rows, because dx may take dy's place.
  sum_columns<T>(WeightGradient<T>{of}, of.rows, of.columns, call.stream.get());
  if (of.centred) sum_columns<T>(BiasGradient<T>{of}, of.rows, of.columns, call.stream.get());
  const bool by_fours = wide(of.columns, {of.x, of.dy, of.weight, of.y});
  launch(by_fours ? norm_backward_kernel<T, kWide> : norm_backward_kernel<T, 1>,
         row_blocks(of.rows), kThreads, call.stream.get(), of);
}

}  // namespace

template <typename T>
void device_norm(const Kernel& kernel, const DeviceCall& call) {
  NormOperands of;
  of.rows = kernel.rows;
  of.columns = kernel.columns;
  of.centred =
      kernel.kind == KernelKind::kLayerNormForward || kernel.kind == KernelKind::kLayerNormBackward;
  const std::int64_t count = of.rows * of.columns, statistics = (of.centred ? 2 : 1) * of.rows;
  const bool is_forward =
      kernel.kind == KernelKind::kRmsNormForward || kernel.kind == KernelKind::kLayerNormForward;
  if (is_forward) {
    of.x = call.read(0, count);
    of.weight = call.read(1, of.columns);
    if (of.centred) of.bias = call.read(2, of.columns);
    of.y = call.write(0, count);
    of.statistics = call.write(1, statistics);
    return forward<T>(of, call);
  }
  of.dy = call.read(0, count);
  of.x = call.read(1, count);
  of.weight = call.read(2, of.columns);
  of.statistics = call.read(3, statistics);
  call.operands.read(4, of.columns);
  of.y = call.write(0, count);
  of.dweight = call.write(1, of.columns);
  if (of.centred) {
    call.operands.read(5, of.columns);
    of.dbias = call.write(2, of.columns);
  }
  backward<T>(of, call);
}

template void device_norm<float>(const Kernel&, const DeviceCall&);
template void device_norm<double>(const Kernel&, const DeviceCall&);

}  // namespace headway
