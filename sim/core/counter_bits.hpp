// The arithmetic of CounterRandom, for every backend: constexpr, so that device code may call it.
#pragma once

#include <cstdint>

namespace headway {

// SplitMix64's increment and multipliers.
constexpr std::uint64_t kCounterGamma = 0x9e3779b97f4a7c15ULL;

constexpr std::uint64_t mixed_bits(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

// SplitMix64's value of a state: every bit depends on every bit (Steele, Lea, Flood, OOPSLA 2014).
constexpr std::uint64_t mixed(std::uint64_t state) { return mixed_bits(state + kCounterGamma); }

// The key of the stream of element `index` of the stream with this key.
constexpr std::uint64_t child_key(std::uint64_t key, std::uint64_t index) {
  return mixed_bits(key ^ mixed(index));
}

constexpr std::uint64_t counter_bits(std::uint64_t key, std::uint64_t counter) {
  return mixed_bits(key + mixed(counter * kCounterGamma));
}

// [0, 1)
constexpr double counter_uniform(std::uint64_t key, std::uint64_t counter) {
  return static_cast<double>(counter_bits(key, counter) >> 11) * 0x1.0p-53;
}

}  // namespace headway
