#include "kernels/cpu/routing.hpp"

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <string>

namespace headway {
namespace {

std::int64_t at(const std::vector<std::int64_t>& values, std::int64_t index) {
  return values[static_cast<std::size_t>(index)];
}

// The choices (token x per_token + slot) that an expert takes of one run of tokens, in their order.
// Unless by score, all tokens' first choices come before any second (GShard, arXiv 2006.16668,
// algorithm 1).
template <typename T>
std::vector<std::int64_t> taken(const Routing& routing, std::vector<std::int64_t> wanting,
                                const Input<T>& weights) {
  const auto room = static_cast<std::size_t>(routing.capacity);
  if (routing.capacity == 0 || wanting.size() <= room) return wanting;
  if (routing.by_score) {
    std::stable_sort(wanting.begin(), wanting.end(),
                     [&](std::int64_t a, std::int64_t b) { return weights[a] > weights[b]; });
  } else {
    std::stable_sort(wanting.begin(), wanting.end(), [&](std::int64_t a, std::int64_t b) {
      return a % routing.per_token < b % routing.per_token;
    });
  }
  wanting.resize(room);
  std::sort(wanting.begin(), wanting.end());
  return wanting;
}

template <typename T>
void assign(const Routing& routing, const OperandsOf& operands, const Placement& placement) {
  const std::int64_t choices = routing.tokens * routing.per_token;
  const std::vector<std::int64_t> choice = integers(operands.read(0, choices));
  const Input<T> weights(operands.read(1, choices));
  const std::int64_t run = choices / routing.token_groups;
  // Those whose rows are asked for: of the rank, or all.
  const std::int64_t experts = routing.own_experts ? routing.local_experts : routing.experts;
  const std::int64_t first_expert = routing.own_experts ? placement.expert_rank * experts : 0;
  std::vector<std::int64_t> counts(static_cast<std::size_t>(experts)), chosen = counts;
  std::vector<std::int64_t> rows(static_cast<std::size_t>(choices), -1);
  std::vector<std::vector<std::int64_t>> wanting(
      static_cast<std::size_t>(experts * routing.token_groups));
  for (std::int64_t c = 0; c < choices; ++c) {
    const std::int64_t expert = at(choice, c) - first_expert;
    if (expert < 0 || expert >= experts) continue;
    wanting[static_cast<std::size_t>(expert * routing.token_groups + c / run)].push_back(c);
    ++chosen[static_cast<std::size_t>(expert)];
  }
  std::int64_t next = 0;
  for (std::size_t w = 0; w < wanting.size(); ++w) {
    std::int64_t& count = counts[w / static_cast<std::size_t>(routing.token_groups)];
    const std::int64_t first = next;
    for (const std::int64_t c : taken(routing, std::move(wanting[w]), weights)) {
      rows[static_cast<std::size_t>(c)] = next++;
    }
    if (routing.padded) next = first + routing.capacity;
    count += next - first;
  }
  store(operands.write(0, experts), 0, experts, counts.data());
  store(operands.write(1, choices), 0, choices, rows.data());
  if (!routing.with_chosen) return;
  store(operands.write(2, experts), 0, experts, chosen.data());
}

void splits(const Routing& routing, const OperandsOf& operands, const Placement& placement) {
  const std::int64_t local = routing.local_experts, sharers = routing.experts / local;
  const std::int64_t slices = routing.parts / sharers;
  const std::vector<std::int64_t> all = integers(operands.read(0, routing.parts * routing.experts));
  std::vector<std::int64_t> received, gathered;
  for (std::int64_t slice = 0; slice < slices; ++slice) {
    for (std::int64_t from = 0; from < sharers; ++from) {
      const std::int64_t rank =
          placement.slices_innermost ? from * slices + slice : slice * sharers + from;
      const auto first = all.begin() + rank * routing.experts + placement.expert_rank * local;
      gathered.insert(gathered.end(), first, first + local);
      if (slice == placement.expert_slice) received.insert(received.end(), first, first + local);
    }
  }
  store(operands.write(0, sharers * local), 0, sharers * local, received.data());
  store(operands.write(1, routing.parts * local), 0, routing.parts * local, gathered.data());
}

// Counts and row numbers are data that other ranks sent: what does not fit ends the rank with a
// message, not in foreign memory.
void expect_rows(std::int64_t rows, std::int64_t columns, const Operand& operand) {
  if (rows < 0 || rows * columns > operand.elements()) {
    throw std::out_of_range("routing asks for " + std::to_string(rows) + " rows of " +
                            std::to_string(columns) + ", where there are " +
                            std::to_string(operand.elements()) + " elements");
  }
}

// The destination of each row that comes source-major: by local expert, which begins at a multiple
// of `multiple`, then by source.
std::vector<std::int64_t> sorted_places(const Routing& routing, const OperandsOf& operands,
                                        const Operand& sorted) {
  const std::int64_t local = routing.local_experts;
  const std::vector<std::int64_t> counts = integers(operands.read(1, routing.parts * local));
  std::vector<std::int64_t> firsts(counts.size());
  std::int64_t next = 0;
  for (std::int64_t e = 0; e < local; ++e) {
    next = (next + routing.multiple - 1) / routing.multiple * routing.multiple;
    for (std::int64_t p = 0; p < routing.parts; ++p) {
      firsts[static_cast<std::size_t>(p * local + e)] = next;
      next += at(counts, p * local + e);
    }
  }
  for (const std::int64_t count : counts) expect_rows(count, routing.columns, sorted);
  expect_rows(next, routing.columns, sorted);
  std::vector<std::int64_t> places;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    for (std::int64_t r = 0; r < counts[i]; ++r) places.push_back(firsts[i] + r);
  }
  return places;
}

template <typename T>
void sort(const Routing& routing, const OperandsOf& operands) {
  const bool back = routing.kind == RoutingKind::kUnsort;
  const Operand& sorted = back ? operands.read(0) : operands.write(0);
  const std::vector<std::int64_t> places = sorted_places(routing, operands, sorted);
  const std::int64_t columns = routing.columns;
  expect_rows(static_cast<std::int64_t>(places.size()), columns,
              back ? operands.write(0) : operands.read(0));
  const Input<T> x(operands.read(0));
  Output<T> y(operands.write(0), false);
  std::fill(y.data(), y.data() + operands.write(0).elements(), T{0});
  for (std::size_t i = 0; i < places.size(); ++i) {
    const auto row = static_cast<std::int64_t>(i);
    std::copy_n(x.data() + (back ? places[i] : row) * columns, columns,
                y.data() + (back ? row : places[i]) * columns);
  }
}

// Calls each(token, choice, row) for every choice that was not dropped; `routed` has the rows.
template <typename Each>
void for_each_row(const Routing& routing, const std::vector<std::int64_t>& rows,
                  const Operand& routed, Each each) {
  for (std::int64_t c = 0; c < routing.tokens * routing.per_token; ++c) {
    if (at(rows, c) < 0) continue;
    expect_rows(at(rows, c) + 1, routing.columns, routed);
    each(c / routing.per_token, c, at(rows, c));
  }
}

template <typename T>
void permute(const Routing& routing, const OperandsOf& operands) {
  const bool back = routing.kind == RoutingKind::kPermuteBackward;
  const std::int64_t columns = routing.columns;
  const Input<T> x(operands.read(0));
  const std::vector<std::int64_t> rows =
      integers(operands.read(1, routing.tokens * routing.per_token));
  Output<T> y(operands.write(0), false);
  std::fill(y.data(), y.data() + operands.write(0).elements(), T{0});
  const Operand& routed = back ? operands.read(0) : operands.write(0);
  for_each_row(routing, rows, routed, [&](std::int64_t token, std::int64_t, std::int64_t row) {
    const T* from = x.data() + (back ? row : token) * columns;
    T* to = y.data() + (back ? token : row) * columns;
    for (std::int64_t h = 0; h < columns; ++h) to[h] += from[h];
  });
}

template <typename T>
void combine(const Routing& routing, const OperandsOf& operands) {
  const std::int64_t columns = routing.columns, choices = routing.tokens * routing.per_token;
  const Input<T> y(operands.read(0)), weights(operands.read(2, choices));
  const std::vector<std::int64_t> rows = integers(operands.read(1, choices));
  Output<T> out(operands.write(0, routing.tokens * columns), false);
  std::fill(out.data(), out.data() + routing.tokens * columns, T{0});
  for_each_row(routing, rows, operands.read(0),
               [&](std::int64_t token, std::int64_t choice, std::int64_t row) {
                 for (std::int64_t h = 0; h < columns; ++h) {
                   out[token * columns + h] += weights[choice] * y[row * columns + h];
                 }
               });
}

template <typename T>
void combine_backward(const Routing& routing, const OperandsOf& operands) {
  const std::int64_t columns = routing.columns, choices = routing.tokens * routing.per_token;
  const Input<T> dout(operands.read(0, routing.tokens * columns)), y(operands.read(1));
  const std::vector<std::int64_t> rows = integers(operands.read(2, choices));
  const Input<T> weights(operands.read(3, choices));
  Output<T> dy(operands.write(0, operands.read(1).elements()), false);
  Output<T> dweights(operands.write(1, choices), false);
  std::fill(dy.data(), dy.data() + operands.write(0).elements(), T{0});
  std::fill(dweights.data(), dweights.data() + choices, T{0});
  for_each_row(routing, rows, operands.read(1),
               [&](std::int64_t token, std::int64_t choice, std::int64_t row) {
                 for (std::int64_t h = 0; h < columns; ++h) {
                   dy[row * columns + h] = weights[choice] * dout[token * columns + h];
                   dweights[choice] += y[row * columns + h] * dout[token * columns + h];
                 }
               });
}

}  // namespace

std::vector<std::int64_t> integers(const Operand& operand) {
  std::vector<std::int64_t> values(static_cast<std::size_t>(operand.elements()));
  load(operand, 0, operand.elements(), values.data());
  return values;
}

template <typename T>
void compute_routing(const Routing& routing, const OperandsOf& operands,
                     const Placement& placement) {
  switch (routing.kind) {
    case RoutingKind::kChoose:
      return choose<T>(routing, operands, placement);
    case RoutingKind::kChooseBackward:
      return choose_backward<T>(routing, operands);
    case RoutingKind::kAssign:
      return assign<T>(routing, operands, placement);
    case RoutingKind::kSplits:
      return splits(routing, operands, placement);
    case RoutingKind::kSort:
    case RoutingKind::kUnsort:
      return sort<T>(routing, operands);
    case RoutingKind::kPermute:
    case RoutingKind::kPermuteBackward:
      return permute<T>(routing, operands);
    case RoutingKind::kCombine:
      return combine<T>(routing, operands);
    case RoutingKind::kCombineBackward:
      return combine_backward<T>(routing, operands);
  }
  operands.refuse("the CPU executor does not know this kernel");
}

template void compute_routing<float>(const Routing&, const OperandsOf&, const Placement&);
template void compute_routing<double>(const Routing&, const OperandsOf&, const Placement&);

}  // namespace headway
