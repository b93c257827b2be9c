#include "kernels/cuda/device_call.hpp"
#include "kernels/cuda/each.hpp"

namespace headway {
namespace {

// a + b, or of a residual x + bias + residual; b is left out where it has no data.
template <typename T>
struct Add {
  Elements a, bias, b, y;
  std::int64_t columns;
  bool with_bias, with_b;
  template <int W>
  HEADWAY_DEVICE void at(std::int64_t i) const {
    T v[W], u[W];
    a.load<W>(i, v);
    if (with_bias) {
      bias.load<W>(i % columns, u);
      for (int w = 0; w < W; ++w) v[w] += u[w];
    }
    if (with_b) {
      b.load<W>(i, u);
      for (int w = 0; w < W; ++w) v[w] += u[w];
    }
    y.store<W>(i, v);
  }
};

template <typename T>
struct BiasBackward {
  Elements dy, dbias;
  std::int64_t columns;
  HEADWAY_DEVICE T value(std::int64_t row, std::int64_t column) const {
    return dy.load<T>(row * columns + column);
  }
  HEADWAY_DEVICE void take(std::int64_t column, T sum) const {
    dbias.store(column, dbias.load<T>(column) + sum);
  }
};

template <typename T>
struct Scale {
  Elements x, y;
  T factor;
  template <int W>
  HEADWAY_DEVICE void at(std::int64_t i) const {
    T v[W];
    x.load<W>(i, v);
    for (int w = 0; w < W; ++w) v[w] *= factor;
    y.store<W>(i, v);
  }
};

// Converted where the types differ; zeros where there is nothing to copy.
template <typename T>
struct Copy {
  Elements x, y;
  template <int W>
  HEADWAY_DEVICE void at(std::int64_t i) const {
    T v[W] = {};
    if (x.data != nullptr) x.load<W>(i, v);
    y.store<W>(i, v);
  }
};

template <typename T>
struct SplitColumns {
  Elements x, y;
  std::int64_t whole_columns, columns, first;
  template <int W>
  HEADWAY_DEVICE void at(std::int64_t i) const {
    y.store(i, x.load<T>(i / columns * whole_columns + first + i % columns));
  }
};

// By block, the largest magnitude of its share; of those again by one block.
template <typename T>
__global__ void amax_kernel(Elements x, std::int64_t count, Elements amax) {
  T largest = 0;
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count;
       i += stride) {
    const T value = x.load<T>(i);
    largest = Larger{}(largest, value < T{0} ? -value : value);
  }
  largest = over_block(largest, Larger{});
  if (threadIdx.x == 0) amax.store(blockIdx.x, largest);
}

template <typename T>
void amax(const DeviceCall& call) {
  const Operand& x = call.operands.read(0);
  const dim3 blocks = blocks_for(x.elements());
  const Elements partial{call.stream.scratch(blocks.x * sizeof(T)),
                         sizeof(T) == sizeof(double) ? DataType::kFp64 : DataType::kFp32};
  launch(amax_kernel<T>, blocks, kThreads, call.stream.get(), elements(x), x.elements(), partial);
  launch(amax_kernel<T>, dim3(1), kThreads, call.stream.get(), partial, std::int64_t{blocks.x},
         call.write(0, 1));
}

template <typename T>
void add(const Kernel& kernel, const DeviceCall& call) {
  const OperandsOf& operands = call.operands;
  const std::int64_t count = operands.write(0).elements();
  const bool bias_alone = kernel.kind == KernelKind::kBiasAdd;
  const bool with_bias =
      bias_alone || (kernel.kind == KernelKind::kResidualAdd && operands.reads() == 3);
  Add<T> work{call.read(0, count), {},        {},         call.write(0, count),
              kernel.columns,      with_bias, !bias_alone};
  if (with_bias) work.bias = call.read(1, kernel.columns);
  if (!bias_alone) work.b = call.read(with_bias ? 2 : 1, count);
  const std::int64_t columns = with_bias ? kernel.columns : kWide;
  each_element(work, count, wide(columns, {work.a, work.bias, work.b, work.y}), call.stream.get());
}

template <typename T>
void bias_backward(const Kernel& kernel, const DeviceCall& call) {
  call.operands.read(1, kernel.columns);
  const BiasBackward<T> work{call.read(0, kernel.rows * kernel.columns),
                             call.write(0, kernel.columns), kernel.columns};
  sum_columns<T>(work, kernel.rows, kernel.columns, call.stream.get());
}

template <typename T>
void scale(const Kernel& kernel, const DeviceCall& call) {
  const std::int64_t count = call.operands.write(0).elements();
  const Scale<T> work{call.read(0, count), call.write(0, count), static_cast<T>(kernel.scale)};
  each_element(work, count, wide(kWide, {work.x, work.y}), call.stream.get());
}

// The concatenation of what is read becomes the concatenation of what is written, converted. What
// either lacks at its end is padding.
template <typename T>
void copy(std::span<const Operand> from, std::span<const Operand> to, const DeviceCall& call) {
  for (const GroupRun& run : runs_of(to, from)) {
    if (run.a.data == nullptr) continue;
    const Copy<T> work{run.b, run.a};
    const bool by_fours = wide(kWide, {run.a}) && wide(kWide, {run.b});
    each_element(work, run.count, by_fours, call.stream.get());
  }
}

void zero(const DeviceCall& call) {
  for (std::size_t i = 0; i < call.operands.writes(); ++i) {
    const Operand& y = call.operands.write(i);
    checked(cudaMemsetAsync(y.data, 0,
                            static_cast<std::size_t>(size_of(y.type, y.elements()).count),
                            call.stream.get()));
  }
}

// The rank's own share of x...: rows, or columns where both have the same number of rows.
template <typename T>
void split(const DeviceCall& call) {
  const Operand& part = call.operands.write(0);
  const auto whole = call.operands.read_group(0, call.operands.reads());
  if (whole.size() == 1 && whole[0].rows == part.rows && part.rows > 1) {
    const SplitColumns<T> work{elements(whole[0]), elements(part), whole[0].columns, part.columns,
                               call.placement.first_column};
    return each_element(work, part.elements(), false, call.stream.get());
  }
  // Rows: the runs of the whole that the part covers.
  const std::int64_t first = call.placement.first_row * part.columns;
  std::int64_t begin = 0, done = 0;
  for (const Operand& operand : whole) {
    const std::int64_t from_at = std::max(first, begin);
    const std::int64_t to_at = std::min(first + part.elements(), begin + operand.elements());
    if (from_at < to_at) {
      const Copy<T> work{from(operand, from_at - begin), from(part, from_at - first)};
      each_element(work, to_at - from_at, wide(kWide, {work.x, work.y}), call.stream.get());
      done = to_at - first;
    }
    begin += operand.elements();
  }
  if (done == part.elements()) return;
  each_element(Copy<T>{{}, from(part, done)}, part.elements() - done, false, call.stream.get());
}

}  // namespace

template <typename T>
void device_elementwise(const Kernel& kernel, const DeviceCall& call) {
  switch (kernel.kind) {
    case KernelKind::kResidualAdd:
    case KernelKind::kGradientAdd:
    case KernelKind::kGradientAccumulate:
    case KernelKind::kBiasAdd:
      return add<T>(kernel, call);
    case KernelKind::kBiasBackward:
      return bias_backward<T>(kernel, call);
    case KernelKind::kScale:
      return scale<T>(kernel, call);
    case KernelKind::kZero:
      return zero(call);
    case KernelKind::kSplitSequence:
      return split<T>(call);
    case KernelKind::kAmax:
      return amax<T>(call);
    default:
      return copy<T>(call.operands.read_group(0, call.operands.reads()),
                     call.operands.write_group(0, call.operands.writes()), call);
  }
}

template void device_elementwise<float>(const Kernel&, const DeviceCall&);
template void device_elementwise<double>(const Kernel&, const DeviceCall&);

}  // namespace headway
