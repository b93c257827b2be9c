#include "kernels/cpu/operand.hpp"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace headway {
namespace {

// fp16: 11 significant bits, smallest normal 2^-14, largest finite 65504.
constexpr int kHalfMantissaBits = 11;
constexpr int kHalfMinExponent = -14;
constexpr double kHalfOverflow = 65520.0;  // the midpoint above 65504: rounds to infinity
// bf16 keeps the upper 16 bits of fp32, tf32 the upper 19, e4m3 the significand of the upper 12.
constexpr unsigned kBf16DroppedBits = 16;
constexpr unsigned kTf32DroppedBits = 13;
constexpr unsigned kE4M3DroppedBits = 20;

float drop_bits(float value, unsigned dropped) {
  if (!std::isfinite(value)) return value;
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t half = (1U << (dropped - 1)) - 1U + ((bits >> dropped) & 1U);
  const std::uint32_t kept = (bits + half) & ~((1U << dropped) - 1U);
  return std::bit_cast<float>(kept);
}

float to_half(float value) {
  if (!std::isfinite(value) || value == 0.0F) return value;
  if (std::fabs(static_cast<double>(value)) >= kHalfOverflow) {
    return std::copysign(std::numeric_limits<float>::infinity(), value);
  }
  const int exponent = std::max(std::ilogb(value), kHalfMinExponent) - (kHalfMantissaBits - 1);
  return std::ldexp(std::nearbyint(std::ldexp(value, -exponent)), exponent);
}

template <typename Held, typename T>
void load_as(const Operand& operand, std::int64_t first, std::int64_t count, T* target) {
  const auto* held = static_cast<const Held*>(operand.data) + first;
  for (std::int64_t i = 0; i < count; ++i) target[i] = static_cast<T>(held[i]);
}

template <typename Held, typename T>
void store_as(const Operand& operand, std::int64_t first, std::int64_t count, const T* source) {
  auto* held = static_cast<Held*>(operand.data) + first;
  for (std::int64_t i = 0; i < count; ++i) {
    if constexpr (std::is_floating_point_v<Held>) {
      held[i] = rounded(static_cast<Held>(source[i]), operand.type);
    } else {
      held[i] = static_cast<Held>(source[i]);
    }
  }
}

}  // namespace

std::size_t held_size(DataType type) {
  switch (type) {
    case DataType::kFp64:
    case DataType::kInt64:
      return 8;
    case DataType::kBool:
      return 1;
    default:
      return 4;
  }
}

float rounded(float value, DataType type) {
  switch (type) {
    case DataType::kBf16:
      return drop_bits(value, kBf16DroppedBits);
    case DataType::kTf32:
      return drop_bits(value, kTf32DroppedBits);
    case DataType::kFp16:
      return to_half(value);
    case DataType::kFp8:
      return drop_bits(value, kE4M3DroppedBits);
    default:
      return value;
  }
}

double rounded(double value, DataType type) {
  return type == DataType::kFp64 ? value
                                 : static_cast<double>(rounded(static_cast<float>(value), type));
}

template <typename T>
void load(const Operand& operand, std::int64_t first, std::int64_t count, T* target) {
  switch (operand.type) {
    case DataType::kFp64:
      return load_as<double>(operand, first, count, target);
    case DataType::kInt64:
      return load_as<std::int64_t>(operand, first, count, target);
    case DataType::kInt32:
      return load_as<std::int32_t>(operand, first, count, target);
    case DataType::kBool:
      return load_as<std::uint8_t>(operand, first, count, target);
    default:
      return load_as<float>(operand, first, count, target);
  }
}

template <typename T>
void store(const Operand& operand, std::int64_t first, std::int64_t count, const T* source) {
  switch (operand.type) {
    case DataType::kFp64:
      return store_as<double>(operand, first, count, source);
    case DataType::kInt64:
      return store_as<std::int64_t>(operand, first, count, source);
    case DataType::kInt32:
      return store_as<std::int32_t>(operand, first, count, source);
    case DataType::kBool:
      return store_as<std::uint8_t>(operand, first, count, source);
    default:
      return store_as<float>(operand, first, count, source);
  }
}

namespace {

template <typename Held>
void fill_as(const Operand& operand, double value) {
  Held held;
  const Operand one{operand.type, 1, 1, &held};
  store(one, 0, 1, &value);
  std::fill_n(static_cast<Held*>(operand.data), operand.elements(), held);
}

}  // namespace

void fill(const Operand& operand, double value) {
  switch (held_size(operand.type)) {
    case 8:
      return operand.type == DataType::kInt64 ? fill_as<std::int64_t>(operand, value)
                                              : fill_as<double>(operand, value);
    case 1:
      return fill_as<std::uint8_t>(operand, value);
    default:
      return operand.type == DataType::kInt32 ? fill_as<std::int32_t>(operand, value)
                                              : fill_as<float>(operand, value);
  }
}

namespace {

// True where the operand's elements are held as T, so that they can be used in place.
template <typename T>
bool held_as(DataType type) {
  if constexpr (std::is_same_v<T, double>) return type == DataType::kFp64;
  return type == DataType::kFp32 || type == DataType::kTf32 || type == DataType::kBf16 ||
         type == DataType::kFp16;
}

}  // namespace

template <typename T>
Input<T>::Input(const Operand& operand) {
  if (held_as<T>(operand.type)) {
    data_ = static_cast<const T*>(operand.data);
    return;
  }
  copy_.resize(static_cast<std::size_t>(operand.elements()));
  load(operand, 0, operand.elements(), copy_.data());
  data_ = copy_.data();
}

template <typename T>
Output<T>::Output(const Operand& operand, bool keep) : operand_(operand) {
  if (held_as<T>(operand.type)) {
    data_ = static_cast<T*>(operand.data);
    return;
  }
  copy_.resize(static_cast<std::size_t>(operand.elements()));
  if (keep) load(operand, 0, operand.elements(), copy_.data());
  data_ = copy_.data();
}

template <typename T>
void Output<T>::store() {
  if (copy_.empty()) {
    if (operand_.type == DataType::kFp32 || operand_.type == DataType::kFp64) return;
    for (std::int64_t i = 0; i < operand_.elements(); ++i) {
      data_[i] = rounded(data_[i], operand_.type);
    }
    return;
  }
  headway::store(operand_, 0, operand_.elements(), copy_.data());
}

std::int64_t elements_of(std::span<const Operand> group) {
  std::int64_t sum = 0;
  for (const Operand& operand : group) sum += operand.elements();
  return sum;
}

namespace {

// Calls `visit` with each operand that holds some of [first, first + count) of the group, where
// that begins in it, and where in the range. Returns how many elements the group holds of it.
template <typename Visit>
std::int64_t for_each_part(std::span<const Operand> group, std::int64_t first, std::int64_t count,
                           Visit visit) {
  std::int64_t begin = 0, held = 0;
  for (const Operand& operand : group) {
    const std::int64_t from = std::max(first, begin);
    const std::int64_t to = std::min(first + count, begin + operand.elements());
    if (from < to) {
      visit(operand, from - begin, to - from, from - first);
      held = to - first;
    }
    begin += operand.elements();
  }
  return held;
}

}  // namespace

template <typename T>
void load_range(std::span<const Operand> group, std::int64_t first, std::int64_t count, T* target) {
  const std::int64_t held =
      for_each_part(group, first, count,
                    [&](const Operand& operand, std::int64_t from, std::int64_t part,
                        std::int64_t at) { load(operand, from, part, target + at); });
  std::fill(target + held, target + count, T{0});
}

template <typename T>
void store_range(std::span<const Operand> group, std::int64_t first, std::int64_t count,
                 const T* source) {
  for_each_part(group, first, count,
                [&](const Operand& operand, std::int64_t from, std::int64_t part, std::int64_t at) {
                  store(operand, from, part, source + at);
                });
}

template <typename T>
std::vector<T> load_group(std::span<const Operand> group, std::int64_t size) {
  assert(elements_of(group) <= size);
  std::vector<T> values(static_cast<std::size_t>(size));
  load_range(group, 0, size, values.data());
  return values;
}

template <typename T>
void store_group(std::span<const Operand> group, const std::vector<T>& values) {
  assert(elements_of(group) <= static_cast<std::int64_t>(values.size()));
  store_range(group, 0, static_cast<std::int64_t>(values.size()), values.data());
}

template void load_range<float>(std::span<const Operand>, std::int64_t, std::int64_t, float*);
template void load_range<double>(std::span<const Operand>, std::int64_t, std::int64_t, double*);
template void store_range<float>(std::span<const Operand>, std::int64_t, std::int64_t,
                                 const float*);
template void store_range<double>(std::span<const Operand>, std::int64_t, std::int64_t,
                                  const double*);
template std::vector<float> load_group<float>(std::span<const Operand>, std::int64_t);
template std::vector<double> load_group<double>(std::span<const Operand>, std::int64_t);
template void store_group<float>(std::span<const Operand>, const std::vector<float>&);
template void store_group<double>(std::span<const Operand>, const std::vector<double>&);
template void load<float>(const Operand&, std::int64_t, std::int64_t, float*);
template void load<double>(const Operand&, std::int64_t, std::int64_t, double*);
template void load<std::int64_t>(const Operand&, std::int64_t, std::int64_t, std::int64_t*);
template void store<float>(const Operand&, std::int64_t, std::int64_t, const float*);
template void store<double>(const Operand&, std::int64_t, std::int64_t, const double*);
template void store<std::int64_t>(const Operand&, std::int64_t, std::int64_t, const std::int64_t*);
template class Input<float>;
template class Input<double>;
template class Input<std::int64_t>;
template class Output<float>;
template class Output<double>;

}  // namespace headway
