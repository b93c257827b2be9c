#include "sim/core/quantity.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "sim/core/error.hpp"

namespace headway {

namespace {

struct Unit {
  std::string_view name;
  double factor;
};

constexpr Unit kBandwidthUnits[] = {
    {"B/s", 1},         {"kB/s", 1e3},         {"MB/s", 1e6},
    {"GB/s", 1e9},      {"TB/s", 1e12},        {"KiB/s", 1024},
    {"MiB/s", 1048576}, {"GiB/s", 1073741824}, {"TiB/s", 1099511627776},
    {"bit/s", 0.125},   {"kbit/s", 125},       {"Mbit/s", 125e3},
    {"Gbit/s", 125e6},  {"Tbit/s", 125e9},
};
constexpr Unit kByteUnits[] = {
    {"B", 1},         {"kB", 1e3},         {"MB", 1e6},
    {"GB", 1e9},      {"TB", 1e12},        {"KiB", 1024},
    {"MiB", 1048576}, {"GiB", 1073741824}, {"TiB", 1099511627776},
};
constexpr Unit kTimeUnits[] = {
    {"ps", 1e-12}, {"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}, {"min", 60}, {"h", 3600},
};
constexpr Unit kFlopRateUnits[] = {
    {"FLOP/s", 1},     {"MFLOP/s", 1e6},  {"GFLOP/s", 1e9},
    {"TFLOP/s", 1e12}, {"PFLOP/s", 1e15}, {"EFLOP/s", 1e18},
};
constexpr Unit kPowerUnits[] = {{"W", 1}, {"kW", 1e3}, {"MW", 1e6}};
constexpr Unit kPriceUnits[] = {{"$/h", 1}};

// Times fit an int64 of picoseconds up to here (units.hpp).
constexpr double kLongestSeconds = 9e6;
// The largest double below 2^63.
constexpr double kMostBytes = 9223372036854774784.0;

[[noreturn]] void refuse(std::string_view text, std::span<const Unit> units, std::string_view what,
                         std::string_view why) {
  std::vector<std::string> names;
  for (const Unit& unit : units) names.emplace_back(unit.name);
  throw std::invalid_argument('"' + std::string(text) + "\" is not " + std::string(what) + ": " +
                              std::string(why) + "; expected a number and " + any_of(names));
}

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(' ');
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(' ') - first + 1);
}

// The number before the unit times the unit's factor; finite and not negative.
double parse(std::string_view text, std::span<const Unit> units, std::string_view what) {
  const std::string_view content = trimmed(text);
  double number = 0;
  const auto [end, error] =
      std::from_chars(content.data(), content.data() + content.size(), number);
  if (error == std::errc::result_out_of_range) refuse(text, units, what, "the number is too large");
  // from_chars also takes "inf" and "nan".
  if (error != std::errc() || !std::isfinite(number)) {
    refuse(text, units, what, "it does not begin with a number");
  }
  if (std::signbit(number) && number != 0) refuse(text, units, what, "it is negative");
  const std::string_view name =
      trimmed(content.substr(static_cast<std::size_t>(end - content.data())));
  if (name.empty()) refuse(text, units, what, "the unit is missing");
  for (const Unit& unit : units) {
    if (unit.name != name) continue;
    const double value = std::fabs(number) * unit.factor;
    if (!std::isfinite(value)) refuse(text, units, what, "the number is too large");
    return value;
  }
  refuse(text, units, what, "the unit \"" + std::string(name) + "\" does not belong here");
}

// Up to four significant digits without trailing zeros; whole numbers in full.
std::string digits(double number) {
  std::array<char, 400> buffer{};
  char* const begin = buffer.data();
  char* const limit = begin + buffer.size();
  const char* end = std::fabs(number) >= 1000
                        ? std::to_chars(begin, limit, number, std::chars_format::fixed, 0).ptr
                        : std::to_chars(begin, limit, number, std::chars_format::general, 4).ptr;
  return {static_cast<const char*>(begin), end};
}

// In the largest of `units` (ascending) of which there is at least one after rounding.
std::string scaled(double number, std::span<const Unit> units) {
  const Unit* chosen = &units.front();
  for (const Unit& unit : units) {
    // 0.99995 of a unit is written as 1 of it.
    if (std::fabs(number) / unit.factor >= 0.99995) chosen = &unit;
  }
  if (number == 0) chosen = &units.back();
  return digits(number / chosen->factor) + ' ' + std::string(chosen->name);
}

}  // namespace

Bandwidth parse_bandwidth(std::string_view text) {
  return {parse(text, kBandwidthUnits, "a bandwidth")};
}

Bytes parse_bytes(std::string_view text) {
  const double bytes = parse(text, kByteUnits, "an amount of memory");
  if (bytes > kMostBytes) {
    refuse(text, kByteUnits, "an amount of memory", "the number is too large");
  }
  return {std::llround(bytes)};
}

Time parse_time(std::string_view text) {
  const double seconds = parse(text, kTimeUnits, "a time");
  if (seconds >= kLongestSeconds) refuse(text, kTimeUnits, "a time", "it is over 100 days");
  return Time::from_seconds(seconds);
}

FlopRate parse_flop_rate(std::string_view text) {
  return {parse(text, kFlopRateUnits, "a rate of computation")};
}

double parse_watts(std::string_view text) { return parse(text, kPowerUnits, "a power"); }

double parse_dollars_per_hour(std::string_view text) { return parse(text, kPriceUnits, "a price"); }

std::string to_text(Bandwidth bandwidth) {
  return scaled(bandwidth.bytes_per_second, std::span(kBandwidthUnits).first(5));
}

std::string to_text(Bytes bytes) {
  constexpr Unit kBinary[] = {kByteUnits[0], kByteUnits[5], kByteUnits[6], kByteUnits[7],
                              kByteUnits[8]};
  if (bytes.count == 0) return "0 B";
  return scaled(static_cast<double>(bytes.count), kBinary);
}

std::string to_text(Time time) { return scaled(time.seconds(), std::span(kTimeUnits).first(5)); }

std::string to_text(FlopRate rate) { return scaled(rate.per_second, kFlopRateUnits); }

}  // namespace headway
