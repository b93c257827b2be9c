// Random numbers that depend on what they are for and on nothing else: a pure function of a key and
// a counter, so that every sharding of a tensor, every order of execution and every recomputation
// draws the same values. The mixing function is SplitMix64's (Steele, Lea, Flood: "Fast splittable
// pseudorandom number generators", 2014), applied to key and counter in turn.
#pragma once

#include <cstdint>
#include <string_view>

namespace headway {

class CounterRandom {
 public:
  // A stream of numbers named by a seed and a text: "layers.3.attention.query".
  CounterRandom(std::uint64_t seed, std::string_view name);

  // The stream of an element of this one: a row, a head.
  CounterRandom child(std::uint64_t index) const;

  std::uint64_t bits(std::uint64_t counter) const;
  double uniform(std::uint64_t counter) const;  // [0, 1)
  double normal(std::uint64_t counter) const;   // mean 0, deviation 1 (Box and Muller 1958)

  // What counter_bits() takes, for a device that draws the same numbers.
  std::uint64_t key() const { return key_; }

 private:
  explicit CounterRandom(std::uint64_t key) : key_(key) {}

  std::uint64_t key_;
};

}  // namespace headway
