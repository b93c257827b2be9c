#include <cmath>

#include "kernels/cuda/device_call.hpp"
#include "kernels/cuda/each.hpp"

namespace headway {
namespace {

constexpr double kClipGuard = 1e-6;  // torch.nn.utils.clip_grad_norm_: limit / (norm + 1e-6)

// Sums of squares by block, then one block adds those up: in one order, whatever runs first.
__global__ void squares_kernel(Elements x, std::int64_t count, double* partial) {
  double sum = 0;
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count;
       i += stride) {
    const double value = x.load<double>(i);
    sum += value * value;
  }
  sum = over_block(sum, Plus{});
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}
__global__ void add_partials_kernel(const double* partial, std::int64_t count, Elements total) {
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += kThreads) sum += partial[i];
  sum = over_block(sum, Plus{});
  if (threadIdx.x == 0) total.store(0, total.load<double>(0) + sum);
}

template <typename T>
struct Clip {
  Elements total, x, y;
  double limit;
  template <int W>
  HEADWAY_DEVICE void at(std::int64_t i) const {
    const double wanted = limit / (std::sqrt(total.load<double>(0)) + kClipGuard);
    const T factor = static_cast<T>(limit > 0 && wanted < 1.0 ? wanted : 1.0);
    T v[W];
    x.load<W>(i, v);
    for (int w = 0; w < W; ++w) v[w] *= factor;
    y.store<W>(i, v);
  }
};

template <typename T>
struct Sgd {
  Elements master, gradient;
  T rate;
  template <int W>
  HEADWAY_DEVICE void at(std::int64_t i) const {
    T v[W], g[W];
    master.load<W>(i, v);
    gradient.load<W>(i, g);
    for (int w = 0; w < W; ++w) v[w] -= rate * g[w];
    master.store<W>(i, v);
  }
};

// AdamW with decoupled decay and bias correction, as torch.optim.AdamW.
template <typename T>
struct Adam {
  Elements master, gradient, first, second;
  T rate, decay, correction1, correction2, beta1, beta2, epsilon;
  template <int W>
  HEADWAY_DEVICE void at(std::int64_t i) const {
    T v[W], g[W] = {}, m[W], s[W];
    if (gradient.data != nullptr) gradient.load<W>(i, g);
    first.load<W>(i, m);
    second.load<W>(i, s);
    if (master.data != nullptr) master.load<W>(i, v);
    for (int w = 0; w < W; ++w) {
      m[w] = beta1 * m[w] + (T{1} - beta1) * g[w];
      s[w] = beta2 * s[w] + (T{1} - beta2) * g[w] * g[w];
      const T denominator = std::sqrt(s[w] / correction2) + epsilon;
      if (master.data != nullptr) v[w] = v[w] * decay - rate * (m[w] / correction1) / denominator;
    }
    first.store<W>(i, m);
    second.store<W>(i, s);
    if (master.data != nullptr) master.store<W>(i, v);
  }
};

void squared_norm(const DeviceCall& call) {
  const OperandsOf& operands = call.operands;
  if (operands.reads() < 2) operands.refuse("expected gradients and the total");
  operands.read(operands.reads() - 1, 1);
  const Elements total = call.write(0, 1);
  for (std::size_t i = 0; i + 1 < operands.reads(); ++i) {
    const Operand& x = operands.read(i);
    const dim3 blocks = blocks_for(x.elements());
    if (blocks.x == 0) continue;
    auto* partial = static_cast<double*>(call.stream.scratch(blocks.x * sizeof(double)));
    launch(squares_kernel, blocks, kThreads, call.stream.get(), elements(x), x.elements(), partial);
    launch(add_partials_kernel, dim3(1), kThreads, call.stream.get(), partial,
           std::int64_t{blocks.x}, total);
  }
}

template <typename T>
void clip(const DeviceCall& call) {
  const Elements total = call.read(0, 1);
  for (std::size_t i = 0; i < call.operands.writes(); ++i) {
    const std::int64_t count = call.operands.write(i).elements();
    const Clip<T> work{total, call.read(i + 1, count), call.write(i, count),
                       call.placement.clip_norm};
    each_element(work, count, wide(kWide, {work.x, work.y}), call.stream.get());
  }
}

// The host waits for the norm, as whoever decides whether to roll a step back must.
void validate_norm(const DeviceCall& call) {
  double total = 0;
  const Operand& held = call.operands.read(0, 1);
  const Operand& validated = call.operands.write(0, 1);
  if (held.type != DataType::kFp64) call.operands.refuse("the total must be fp64");
  checked(
      cudaMemcpyAsync(&total, held.data, sizeof total, cudaMemcpyDeviceToHost, call.stream.get()));
  call.stream.synchronise();
  const double limit = call.placement.clip_norm;
  if (limit > 0 && !(std::sqrt(total) <= limit)) {
    call.operands.refuse("the gradient's norm " + std::to_string(std::sqrt(total)) +
                         " is over the limit " + std::to_string(limit) +
                         ": the optimizer's step would be rolled back and done again clipped, "
                         "which is not executed");
  }
  if (validated.data == held.data) return;
  checked(cudaMemcpyAsync(validated.data, held.data, sizeof total, cudaMemcpyDeviceToDevice,
                          call.stream.get()));
}

// The masters (all written but `states`) and the gradients (all read but masters and states).
struct FlatUpdate {
  FlatUpdate(const OperandsOf& operands, std::size_t states)
      : masters(operands.write_group(0, operands.writes() - states)) {
    if (operands.reads() < masters.size() + states + 1) operands.refuse("it reads no gradient");
    gradients = operands.read_group(masters.size(), operands.reads() - masters.size() - states);
  }
  std::span<const Operand> masters, gradients;
};

template <typename T>
void sgd(const DeviceCall& call) {
  const FlatUpdate flat(call.operands, 0);
  for (const GroupRun& run : runs_of(flat.masters, flat.gradients)) {
    if (run.a.data == nullptr || run.b.data == nullptr) continue;
    const Sgd<T> work{run.a, run.b, static_cast<T>(call.placement.learning_rate)};
    each_element(work, run.count, wide(kWide, {run.a, run.b}), call.stream.get());
  }
}

template <typename T>
void adam(const DeviceCall& call) {
  const OperandsOf& operands = call.operands;
  if (operands.writes() < 3) operands.refuse("it writes no master copy and two moments");
  const FlatUpdate flat(operands, 2);
  const std::size_t masters = flat.masters.size();
  const Operand& first = operands.write(masters);
  const Operand& second = operands.write(masters + 1, first.elements());
  if (operands.read(operands.reads() - 2, first.elements()).data != first.data ||
      operands.read(operands.reads() - 1, first.elements()).data != second.data) {
    operands.refuse("the moments are updated in place");
  }
  const OptimizerConstants& c = call.placement.optimizer;
  const auto step = static_cast<double>(call.placement.step);
  for (const GroupRun& run : runs_of(flat.masters, flat.gradients)) {
    if (run.at >= first.elements()) {
      if (run.a.data != nullptr) operands.refuse("the moments are shorter than the master");
      continue;
    }
    const std::int64_t count = std::min(run.count, first.elements() - run.at);
    const Adam<T> work{run.a,
                       run.b,
                       from(first, run.at),
                       from(second, run.at),
                       static_cast<T>(call.placement.learning_rate),
                       static_cast<T>(1.0 - call.placement.learning_rate * c.weight_decay),
                       static_cast<T>(1.0 - std::pow(c.beta1, step)),
                       static_cast<T>(1.0 - std::pow(c.beta2, step)),
                       static_cast<T>(c.beta1),
                       static_cast<T>(c.beta2),
                       static_cast<T>(c.epsilon)};
    each_element(work, count, wide(kWide, {work.master, work.gradient, work.first, work.second}),
                 call.stream.get());
  }
}

}  // namespace

template <typename T>
void device_update(const Kernel& kernel, const DeviceCall& call) {
  switch (kernel.kind) {
    case KernelKind::kSquaredNorm:
      return squared_norm(call);
    case KernelKind::kClip:
      return clip<T>(call);
    case KernelKind::kValidateNorm:
      return validate_norm(call);
    case KernelKind::kSgd:
      return sgd<T>(call);
    default:
      return adam<T>(call);
  }
}

template void device_update<float>(const Kernel&, const DeviceCall&);
template void device_update<double>(const Kernel&, const DeviceCall&);

}  // namespace headway
