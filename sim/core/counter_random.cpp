#include "sim/core/counter_random.hpp"

#include <cmath>
#include <numbers>

#include "sim/core/counter_bits.hpp"

namespace headway {
namespace {

// FNV-1a, 64 bits.
std::uint64_t hash(std::string_view text) {
  std::uint64_t value = 0xcbf29ce484222325ULL;
  for (const char c : text) {
    value = (value ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  }
  return value;
}

}  // namespace

CounterRandom::CounterRandom(std::uint64_t seed, std::string_view name)
    : key_(mixed_bits(mixed(seed) ^ hash(name))) {}

CounterRandom CounterRandom::child(std::uint64_t index) const {
  return CounterRandom(child_key(key_, index));
}

std::uint64_t CounterRandom::bits(std::uint64_t counter) const {
  return counter_bits(key_, counter);
}

double CounterRandom::uniform(std::uint64_t counter) const {
  return counter_uniform(key_, counter);
}

double CounterRandom::normal(std::uint64_t counter) const {
  const double u = 1.0 - uniform(2 * counter);  // (0, 1]
  const double v = uniform(2 * counter + 1);
  return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v);
}

}  // namespace headway
