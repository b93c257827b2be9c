// What the functions that start one operation's kernels are given: its operands, with their shapes
// checked by name, where they lie in the whole, and the stream. Each mirrors the function of the
// same name in kernels/cpu; operand orders are in sim/model/operation.hpp.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "kernels/cpu/operands_of.hpp"
#include "kernels/cpu/operators.hpp"
#include "kernels/cuda/device_stream.hpp"
#include "kernels/cuda/elements.hpp"

namespace headway {

struct DeviceCall {
  const OperandsOf& operands;
  const Placement& placement;
  DeviceStream& stream;

  Elements read(std::size_t i, std::int64_t count) const {
    return elements(operands.read(i, count));
  }
  Elements write(std::size_t i, std::int64_t count) const {
    return elements(operands.write(i, count));
  }
};

// Whether matrices of so many columns may be read by fours.
inline bool wide(std::int64_t columns, std::initializer_list<Elements> all) {
  if (columns % kWide != 0) return false;
  for (const Elements& each : all) {
    if (!each.aligned()) return false;
  }
  return true;
}

// By local row, from `placement.first_row` on: its position in its sequence; its token, counted
// from the micro-batch's first. On the device.
const std::int32_t* row_positions(const DeviceCall& call, std::int64_t rows);
const std::int32_t* row_tokens(const DeviceCall& call, std::int64_t rows);
// The key of a table about a token map.
std::vector<std::int64_t> key_of(std::int64_t table, const TokenMap& map);

template <typename T>
void device_norm(const Kernel& kernel, const DeviceCall& call);
template <typename T>
void device_activation(const Kernel& kernel, const DeviceCall& call);
template <typename T>
void device_embedding(const Kernel& kernel, const DeviceCall& call);
template <typename T>
void device_dropout(const Kernel& kernel, const DeviceCall& call);
template <typename T>
void device_cross_entropy(const Kernel& kernel, const DeviceCall& call);
template <typename T>
void device_elementwise(const Kernel& kernel, const DeviceCall& call);
template <typename T>
void device_columns(const Kernel& kernel, const DeviceCall& call);
template <typename T>
void device_update(const Kernel& kernel, const DeviceCall& call);
template <typename T>
void device_attention(const Attention& attention, const DeviceCall& call);
template <typename T>
void device_routing(const Routing& routing, const DeviceCall& call);
void device_gemm(const Gemm& gemm, const DeviceCall& call);
void device_grouped_gemm(const GroupedGemm& gemm, const DeviceCall& call);

// Runs of flat groups that lie in one buffer each: `a` from `first_a` on and `b` from `first_b` on
// hold the same `count` elements of two groups, `at` of the whole. A group that has ended gives no
// data (nullptr): its elements are zeros.
struct GroupRun {
  Elements a, b;
  std::int64_t at = 0, count = 0;
};
std::vector<GroupRun> runs_of(std::span<const Operand> a, std::span<const Operand> b);
// The element `i` of a buffer and what follows it.
Elements from(const Operand& operand, std::int64_t i);

}  // namespace headway
