#include "kernels/cuda/initial_values.hpp"

#include <cmath>

#include "kernels/cuda/each.hpp"
#include "kernels/cuda/elements.hpp"
#include "sim/core/counter_bits.hpp"

namespace headway {
namespace {

constexpr double kTwoPi = 6.283185307179586;

struct Normal {
  Elements y;
  std::uint64_t key, counter;
  std::int64_t first;
  double scale, mean;
  template <int W>
  HEADWAY_DEVICE void at(std::int64_t i) const {
    // As CounterRandom::normal.
    const std::uint64_t n = counter + static_cast<std::uint64_t>(i);
    const double u = 1.0 - counter_uniform(key, 2 * n), v = counter_uniform(key, 2 * n + 1);
    y.store(first + i, mean + scale * (std::sqrt(-2.0 * std::log(u)) * std::cos(kTwoPi * v)));
  }
};

struct Value {
  Elements y;
  double value;
  template <int W>
  HEADWAY_DEVICE void at(std::int64_t i) const {
    y.store(i, value);
  }
};

}  // namespace

void fill_normal(const Operand& operand, std::int64_t first, std::int64_t count, std::uint64_t key,
                 std::uint64_t counter, double scale, DeviceStream& stream, double mean) {
  each_element(Normal{elements(operand), key, counter, first, scale, mean}, count, false,
               stream.get());
}

void fill_value(const Operand& operand, double value, DeviceStream& stream) {
  each_element(Value{elements(operand), value}, operand.elements(), false, stream.get());
}

}  // namespace headway
