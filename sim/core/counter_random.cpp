#include "sim/core/counter_random.hpp"

#include <cmath>
#include <numbers>

namespace headway {
namespace {

// SplitMix64's increment and multipliers.
constexpr std::uint64_t kGamma = 0x9e3779b97f4a7c15ULL;

std::uint64_t mixed(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

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
    : key_(mixed(mixed(seed + kGamma) ^ hash(name))) {}

CounterRandom CounterRandom::child(std::uint64_t index) const {
  return CounterRandom(mixed(key_ ^ mixed(index + kGamma)));
}

std::uint64_t CounterRandom::bits(std::uint64_t counter) const {
  return mixed(key_ + mixed(counter * kGamma + kGamma));
}

double CounterRandom::uniform(std::uint64_t counter) const {
  return static_cast<double>(bits(counter) >> 11) * 0x1.0p-53;
}

double CounterRandom::normal(std::uint64_t counter) const {
  const double u = 1.0 - uniform(2 * counter);  // (0, 1]
  const double v = uniform(2 * counter + 1);
  return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v);
}

}  // namespace headway
