// A mixture of experts on a device: rows of tokens are moved and added by kernels; which expert a
// token chooses, and where its row goes, are few numbers that the host computes by kernels/cpu (it
// waits for them), so that ties and capacities are decided by one rule.
#include <memory>
#include <stdexcept>

#include "kernels/cuda/device_call.hpp"
#include "kernels/cuda/device_transfer.hpp"
#include "kernels/cuda/each.hpp"

namespace headway {
namespace {

// The operation by the CPU's kernel, on copies.
void compute_on_host(const Routing& routing, std::span<const Operand> reads,
                     std::span<const Operand> writes, const DeviceCall& call) {
  std::vector<std::unique_ptr<std::uint64_t[]>> memory;
  const auto host_copy = [&](const Operand& device) {
    const std::size_t bytes = static_cast<std::size_t>(device.elements()) * held_size(device.type);
    Operand host = device;
    host.data = memory.emplace_back(std::make_unique<std::uint64_t[]>((bytes + 7) / 8)).get();
    return host;
  };
  std::vector<Operand> inputs, outputs;
  for (const Operand& read : reads) {
    const std::vector<double> values = download(read, call.stream);
    store(inputs.emplace_back(host_copy(read)), 0, read.elements(), values.data());
  }
  for (const Operand& write : writes) outputs.push_back(host_copy(write));
  compute(routing, inputs, outputs, call.placement);
  for (std::size_t i = 0; i < writes.size(); ++i) {
    std::vector<double> values(static_cast<std::size_t>(writes[i].elements()));
    load(outputs[i], 0, writes[i].elements(), values.data());
    upload(writes[i], values, call.stream);
  }
}

// y's row `to[i]` is x's row `from[i]`.
template <typename T>
struct MoveRows {
  Elements x, y;
  const std::int32_t* from;
  const std::int32_t* to;
  std::int64_t columns;
  template <int W>
  HEADWAY_DEVICE void at(std::int64_t i) const {
    const std::int64_t row = i / columns, column = i % columns;
    T v[W];
    x.load<W>((from == nullptr ? row : from[row]) * columns + column, v);
    y.store<W>((to == nullptr ? row : to[row]) * columns + column, v);
  }
};

// What a token's choices are: `rows[choice]` is where it stands among what was sent; -1: dropped.
template <typename T>
struct TokenRows {
  Elements tokens, sent, weights, dweights;
  const std::int32_t* rows;
  std::int64_t per_token, columns;
  int kind;  // see below
  enum { kPermute, kPermuteBackward, kCombine, kCombineBackward };

  template <int W>
  HEADWAY_DEVICE void at(std::int64_t i) const {
    const std::int64_t token = i / columns, column = i % columns;
    T sum[W] = {}, v[W], g[W];
    if (kind == kPermute || kind == kCombineBackward) tokens.load<W>(i, g);
    for (std::int64_t choice = token * per_token; choice < (token + 1) * per_token; ++choice) {
      if (rows[choice] < 0) continue;
      const std::int64_t at = rows[choice] * columns + column;
      const bool weighted = kind == kCombine || kind == kCombineBackward;
      const T weight = weighted ? weights.load<T>(choice) : T{1};
      if (kind == kPermute || kind == kCombineBackward) {
        for (int w = 0; w < W; ++w) v[w] = weight * g[w];
        sent.store<W>(at, v);
      } else {
        sent.load<W>(at, v);
        for (int w = 0; w < W; ++w) sum[w] += weight * v[w];
      }
    }
    if (kind == kPermuteBackward || kind == kCombine) tokens.store<W>(i, sum);
  }
};

// A block for each choice: the gradient of its weight is y . dout.
template <typename T>
__global__ void weight_gradient_kernel(Elements dout, Elements y, Elements dweights,
                                       const std::int32_t* rows, std::int64_t choices,
                                       std::int64_t per_token, std::int64_t columns) {
  for (std::int64_t choice = blockIdx.x; choice < choices; choice += gridDim.x) {
    T sum = 0;
    if (rows[choice] >= 0) {
      for (std::int64_t c = threadIdx.x; c < columns; c += kThreads) {
        sum +=
            y.load<T>(rows[choice] * columns + c) * dout.load<T>(choice / per_token * columns + c);
      }
    }
    sum = over_block(sum, Plus{});
    if (threadIdx.x == 0) dweights.store(choice, sum);
  }
}

void zero(const Operand& operand, DeviceStream& stream) {
  checked(cudaMemsetAsync(operand.data, 0,
                          static_cast<std::size_t>(size_of(operand.type, operand.elements()).count),
                          stream.get()));
}

// Row numbers come from other ranks: what does not fit ends the run with a message, not in foreign
// memory. So the host reads them.
const std::int32_t* checked_rows(const Operand& rows, const Operand& sent, const Routing& routing,
                                 const DeviceCall& call) {
  for (const std::int32_t row : call.stream.download(rows.data, rows.elements())) {
    if ((row + std::int64_t{1}) * routing.columns > sent.elements()) {
      throw std::out_of_range("routing asks for row " + std::to_string(row) + " of " +
                              std::to_string(sent.elements() / routing.columns));
    }
  }
  return static_cast<const std::int32_t*>(rows.data);
}

template <typename T>
void move_tokens(const Routing& routing, const DeviceCall& call) {
  const OperandsOf& operands = call.operands;
  const std::int64_t choices = routing.tokens * routing.per_token;
  const std::int64_t count = routing.tokens * routing.columns;
  TokenRows<T> work{};
  work.per_token = routing.per_token;
  work.columns = routing.columns;
  const bool to_sent = routing.kind == RoutingKind::kPermute;
  const bool combines_back = routing.kind == RoutingKind::kCombineBackward;
  const Operand& sent = to_sent || combines_back ? operands.write(0) : operands.read(0);
  const Operand& rows = operands.read(combines_back ? 2 : 1, choices);
  work.rows = checked_rows(rows, sent, routing, call);
  work.sent = elements(sent);
  switch (routing.kind) {
    case RoutingKind::kPermute:
      work.kind = TokenRows<T>::kPermute;
      work.tokens = call.read(0, count);
      break;
    case RoutingKind::kPermuteBackward:
      work.kind = TokenRows<T>::kPermuteBackward;
      work.tokens = call.write(0, count);
      break;
    case RoutingKind::kCombine:
      work.kind = TokenRows<T>::kCombine;
      work.tokens = call.write(0, count);
      work.weights = call.read(2, choices);
      break;
    default:
      work.kind = TokenRows<T>::kCombineBackward;
      work.tokens = call.read(0, count);
      work.weights = call.read(3, choices);
      launch(weight_gradient_kernel<T>, blocks_for(choices, 1), kThreads, call.stream.get(),
             work.tokens, call.read(1, sent.elements()), call.write(1, choices), work.rows, choices,
             routing.per_token, routing.columns);
      break;
  }
  if (to_sent || combines_back) zero(sent, call.stream);
  each_element(work, count, wide(routing.columns, {work.tokens, work.sent}), call.stream.get());
}

// From source-major to expert-major, or back; zeros behind the last row.
template <typename T>
void sort(const Routing& routing, const DeviceCall& call) {
  const OperandsOf& operands = call.operands;
  const std::int64_t local = routing.local_experts, columns = routing.columns;
  const Operand& x = operands.read(0);
  const Operand& y = operands.write(0, x.elements());
  const Operand& held = operands.read(1, routing.parts * local);
  const std::vector<std::int32_t> counts = call.stream.download(held.data, held.elements());
  std::vector<std::int64_t> firsts(counts.size());
  std::int64_t rows = 0;
  for (std::int64_t e = 0; e < local; ++e) {
    for (std::int64_t p = 0; p < routing.parts; ++p) {
      firsts[static_cast<std::size_t>(p * local + e)] = rows;
      rows += counts[static_cast<std::size_t>(p * local + e)];
    }
  }
  std::vector<std::int32_t> places;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] < 0 || rows * columns > x.elements()) {
      throw std::out_of_range("routing asks for more rows than there are");
    }
    for (std::int32_t r = 0; r < counts[i]; ++r) {
      places.push_back(static_cast<std::int32_t>(firsts[i] + r));
    }
  }
  const std::size_t bytes = places.size() * sizeof(std::int32_t);
  auto* uploaded = static_cast<std::int32_t*>(call.stream.scratch(std::max<std::size_t>(bytes, 4)));
  checked(
      cudaMemcpyAsync(uploaded, places.data(), bytes, cudaMemcpyHostToDevice, call.stream.get()));
  zero(y, call.stream);
  const bool back = routing.kind == RoutingKind::kUnsort;
  const MoveRows<T> work{elements(x), elements(y), back ? uploaded : nullptr,
                         back ? nullptr : uploaded, columns};
  each_element(work, rows * columns, wide(columns, {work.x, work.y}), call.stream.get());
}

}  // namespace

template <typename T>
void device_routing(const Routing& routing, const DeviceCall& call) {
  const OperandsOf& operands = call.operands;
  switch (routing.kind) {
    case RoutingKind::kChoose:
    case RoutingKind::kChooseBackward:
    case RoutingKind::kAssign:
    case RoutingKind::kSplits:
      return compute_on_host(routing, operands.read_group(0, operands.reads()),
                             operands.write_group(0, operands.writes()), call);
    case RoutingKind::kSort:
    case RoutingKind::kUnsort:
      return sort<T>(routing, call);
    default:
      return move_tokens<T>(routing, call);
  }
}

template void device_routing<float>(const Routing&, const DeviceCall&);
template void device_routing<double>(const Routing&, const DeviceCall&);

}  // namespace headway
