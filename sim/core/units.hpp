// Distinct types for the dimensioned quantities of the simulator, and the only conversions between
// them. Time is an integer number of picoseconds, rounded once where a real quantity becomes a time,
// so that equal inputs give byte-equal outputs. GB means 1e9 bytes, GiB 2^30.
#pragma once

#include <cmath>
#include <compare>
#include <cstdint>
#include <limits>

namespace headway {

// A point on, or a length of, the simulated clock. Range: +-106 days.
struct Time {
  std::int64_t picoseconds = 0;

  static constexpr Time zero() { return {0}; }
  static constexpr Time max() { return {std::numeric_limits<std::int64_t>::max()}; }
  // Rounds to the nearest picosecond. REQUIRES: finite and |seconds| < 9e6.
  static Time from_seconds(double seconds) { return {std::llround(seconds * 1e12)}; }
  static Time from_microseconds(double microseconds) {
    return {std::llround(microseconds * 1e6)};
  }
  constexpr double seconds() const { return static_cast<double>(picoseconds) * 1e-12; }
  constexpr double microseconds() const { return static_cast<double>(picoseconds) * 1e-6; }

  friend constexpr auto operator<=>(Time, Time) = default;
  friend constexpr Time operator+(Time a, Time b) { return {a.picoseconds + b.picoseconds}; }
  friend constexpr Time operator-(Time a, Time b) { return {a.picoseconds - b.picoseconds}; }
  friend constexpr Time operator*(Time a, std::int64_t n) { return {a.picoseconds * n}; }
  friend constexpr Time operator*(std::int64_t n, Time a) { return {a.picoseconds * n}; }
  constexpr Time& operator+=(Time other) { return *this = *this + other; }
  constexpr Time& operator-=(Time other) { return *this = *this - other; }
};

// An amount of memory or traffic.
struct Bytes {
  std::int64_t count = 0;

  constexpr double gib() const { return static_cast<double>(count) / 1073741824.0; }

  friend constexpr auto operator<=>(Bytes, Bytes) = default;
  friend constexpr Bytes operator+(Bytes a, Bytes b) { return {a.count + b.count}; }
  friend constexpr Bytes operator-(Bytes a, Bytes b) { return {a.count - b.count}; }
  friend constexpr Bytes operator*(Bytes a, std::int64_t n) { return {a.count * n}; }
  friend constexpr Bytes operator*(std::int64_t n, Bytes a) { return {a.count * n}; }
  constexpr Bytes& operator+=(Bytes other) { return *this = *this + other; }
  constexpr Bytes& operator-=(Bytes other) { return *this = *this - other; }
};

// Floating-point operations, a multiply-add counting two. A double: a step of a trillion-parameter
// model (5e19) does not fit 64 bits, and 53 bits of mantissa are exact far beyond any use.
struct Flops {
  double count = 0;

  friend constexpr auto operator<=>(Flops, Flops) = default;
  friend constexpr Flops operator+(Flops a, Flops b) { return {a.count + b.count}; }
  friend constexpr Flops operator*(Flops a, double n) { return {a.count * n}; }
  constexpr Flops& operator+=(Flops other) { return *this = *this + other; }
};

// Bytes per second in one direction.
struct Bandwidth {
  double bytes_per_second = 0;

  friend constexpr auto operator<=>(Bandwidth, Bandwidth) = default;
  friend constexpr Bandwidth operator*(Bandwidth a, double n) { return {a.bytes_per_second * n}; }
};

// Floating-point operations per second.
struct FlopRate {
  double per_second = 0;

  friend constexpr auto operator<=>(FlopRate, FlopRate) = default;
  friend constexpr FlopRate operator*(FlopRate a, double n) { return {a.per_second * n}; }
};

// REQUIRES: a positive rate.
inline Time operator/(Bytes bytes, Bandwidth rate) {
  return Time::from_seconds(static_cast<double>(bytes.count) / rate.bytes_per_second);
}
inline Time operator/(Flops flops, FlopRate rate) {
  return Time::from_seconds(flops.count / rate.per_second);
}

}  // namespace headway
