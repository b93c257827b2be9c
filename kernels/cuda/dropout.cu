#include "kernels/cuda/device_call.hpp"
#include "kernels/cuda/each.hpp"
#include "sim/core/counter_bits.hpp"
#include "sim/core/counter_random.hpp"

namespace headway {
namespace {

// y = [residual +] dropout(x [+ bias]). Each element is drawn by global token and column, so that
// every split of the work drops the same, on every backend.
template <typename T>
struct Forward {
  Elements x, bias, residual, y, mask;
  const std::int32_t* tokens = nullptr;
  std::uint64_t key = 0;
  std::int64_t first_token = 0, first_column = 0, columns = 0;
  double dropout = 0;
  T scale = 1;
  bool with_bias = false, with_residual = false, with_mask = false;

  template <int W>
  HEADWAY_DEVICE void at(std::int64_t i) const {
    const std::int64_t row = i / columns, column = i % columns;
    T v[W], b[W], r[W], keep[W];
    x.load<W>(i, v);
    if (with_bias) bias.load<W>(column, b);
    if (with_residual) residual.load<W>(i, r);
    std::uint64_t row_key = 0;
    if (dropout > 0) {
      row_key = child_key(key, static_cast<std::uint64_t>(first_token + tokens[row]));
    }
    for (int w = 0; w < W; ++w) {
      const auto drawn = static_cast<std::uint64_t>(first_column + column + w);
      const bool survives = dropout <= 0 || counter_uniform(row_key, drawn) >= dropout;
      keep[w] = survives ? T{1} : T{0};
      const T value = with_bias ? v[w] + b[w] : v[w];
      const T kept = survives ? value * scale : T{0};
      v[w] = with_residual ? kept + r[w] : kept;
    }
    y.store<W>(i, v);
    if (with_mask) mask.store<W>(i, keep);
  }
};

template <typename T>
struct Backward {
  Elements dy, mask, dx, dbias;
  std::int64_t columns = 0;
  T scale = 1;
  bool with_mask = false;

  template <int W>
  HEADWAY_DEVICE void at(std::int64_t i) const {
    T g[W], keep[W];
    dy.load<W>(i, g);
    if (with_mask) mask.load<W>(i, keep);
    for (int w = 0; w < W; ++w) g[w] = with_mask ? g[w] * keep[w] * scale : g[w];
    dx.store<W>(i, g);
  }
  HEADWAY_DEVICE T value(std::int64_t row, std::int64_t column) const {
    const std::int64_t i = row * columns + column;
    const T g = dy.load<T>(i);
    return with_mask ? g * mask.load<T>(i) * scale : g;
  }
  HEADWAY_DEVICE void take(std::int64_t column, T sum) const {
    dbias.store(column, dbias.load<T>(column) + sum);
  }
};

template <typename T>
void forward(const Kernel& kernel, const DeviceCall& call, bool with_residual) {
  const std::int64_t count = kernel.rows * kernel.columns;
  const Placement& placement = call.placement;
  Forward<T> work;
  work.with_residual = with_residual;
  work.with_bias = with_residual && call.operands.reads() == 3;
  work.with_mask = call.operands.writes() == 2;
  if (!work.with_mask && placement.dropout > 0) call.operands.refuse("it drops but keeps no mask");
  work.x = call.read(0, count);
  if (work.with_bias) work.bias = call.read(1, kernel.columns);
  if (with_residual) work.residual = call.read(work.with_bias ? 2 : 1, count);
  work.y = call.write(0, count);
  if (work.with_mask) work.mask = call.write(1, count);
  work.columns = kernel.columns;
  work.dropout = placement.dropout;
  work.scale = static_cast<T>(1.0 / (1.0 - placement.dropout));
  work.key = CounterRandom(placement.seed, placement.site).key();
  work.first_token = placement.first_token;
  work.first_column = placement.first_column;
  if (work.dropout > 0) work.tokens = row_tokens(call, kernel.rows);
  const bool by_fours = wide(kernel.columns, {work.x, work.bias, work.residual, work.y});
  each_element(work, count, by_fours, call.stream.get());
}

template <typename T>
void backward(const Kernel& kernel, const DeviceCall& call) {
  const std::int64_t count = kernel.rows * kernel.columns;
  const OperandsOf& operands = call.operands;
  Backward<T> work;
  work.with_mask = operands.reads() >= 2 && operands.read(1).type == DataType::kBool;
  const bool with_bias = operands.writes() == 2;
  if (!work.with_mask && call.placement.dropout > 0) {
    operands.refuse("it drops but was given no mask");
  }
  work.dy = call.read(0, count);
  if (work.with_mask) work.mask = call.read(1, count);
  work.dx = call.write(0, count);
  work.columns = kernel.columns;
  work.scale = static_cast<T>(1.0 / (1.0 - call.placement.dropout));
  if (with_bias) {
    operands.read(work.with_mask ? 2 : 1, kernel.columns);
    work.dbias = call.write(1, kernel.columns);
    sum_columns<T>(work, kernel.rows, kernel.columns, call.stream.get());
  }
  each_element(work, count, wide(kernel.columns, {work.dy, work.dx}), call.stream.get());
}

}  // namespace

template <typename T>
void device_dropout(const Kernel& kernel, const DeviceCall& call) {
  switch (kernel.kind) {
    case KernelKind::kDropoutForward:
      return forward<T>(kernel, call, false);
    case KernelKind::kBiasDropoutAddForward:
      return forward<T>(kernel, call, true);
    default:
      return backward<T>(kernel, call);
  }
}

template void device_dropout<float>(const Kernel&, const DeviceCall&);
template void device_dropout<double>(const Kernel&, const DeviceCall&);

}  // namespace headway
