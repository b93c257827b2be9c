#include "sim/core/quantity.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <random>
#include <stdexcept>

namespace headway {
namespace {

using testing::HasSubstr;

template <typename Parse>
std::string refusal(Parse parse, std::string_view text) {
  try {
    parse(text);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Quantity, ReadsBandwidthsPerSecondInBytesAndBits) {
  EXPECT_EQ(parse_bandwidth("450 GB/s").bytes_per_second, 450e9);
  EXPECT_EQ(parse_bandwidth("200 Gbit/s").bytes_per_second, 25e9);
  EXPECT_EQ(parse_bandwidth("1 GiB/s").bytes_per_second, 1073741824.0);
  EXPECT_EQ(parse_bandwidth("2.5e1 MB/s").bytes_per_second, 25e6);
  EXPECT_EQ(parse_bandwidth("  3.35TB/s ").bytes_per_second, 3.35e12);
}

TEST(Quantity, KeepsGigabytesAndGibibytesApart) {
  EXPECT_EQ(parse_bytes("80 GB").count, 80000000000);
  EXPECT_EQ(parse_bytes("80 GiB").count, 85899345920);
  EXPECT_EQ(parse_bytes("0 B").count, 0);
  EXPECT_EQ(parse_bytes("1.5 KiB").count, 1536);
}

TEST(Quantity, ReadsTimesToThePicosecond) {
  EXPECT_EQ(parse_time("5 us").picoseconds, 5000000);
  EXPECT_EQ(parse_time("1.9 ns").picoseconds, 1900);
  EXPECT_EQ(parse_time("1 ps").picoseconds, 1);
  EXPECT_EQ(parse_time("2 min").picoseconds, 120000000000000);
  EXPECT_EQ(parse_time("1 h").picoseconds, 3600000000000000);
}

TEST(Quantity, ReadsRatesPowersAndPrices) {
  EXPECT_EQ(parse_flop_rate("312 TFLOP/s").per_second, 312e12);
  EXPECT_EQ(parse_flop_rate("1.979 PFLOP/s").per_second, 1.979e15);
  EXPECT_EQ(parse_watts("6.5 kW"), 6500.0);
  EXPECT_EQ(parse_dollars_per_hour("2 $/h"), 2.0);
}

TEST(Quantity, RefusesABareNumberAndNamesTheUnits) {
  EXPECT_EQ(
      refusal(parse_time, "5"),
      "\"5\" is not a time: the unit is missing; expected a number and ps, ns, us, ms, s, min "
      "or h");
}

TEST(Quantity, RefusesTheUnitOfAnotherDimensionOrOfAnotherCase) {
  EXPECT_THAT(refusal(parse_bandwidth, "450 GB"), HasSubstr("\"GB\" does not belong here"));
  EXPECT_THAT(refusal(parse_bytes, "80 GB/s"), HasSubstr("\"GB/s\" does not belong here"));
  EXPECT_THAT(refusal(parse_bandwidth, "450 Gb/s"), HasSubstr("does not belong here"));
  EXPECT_THAT(refusal(parse_bandwidth, "450 gb/s"), HasSubstr("does not belong here"));
  EXPECT_THAT(refusal(parse_time, "5 m"), HasSubstr("does not belong here"));
  EXPECT_THAT(refusal(parse_time, "5 us us"), HasSubstr("does not belong here"));
}

TEST(Quantity, RefusesWhatIsNoFiniteNumberFromZero) {
  EXPECT_THAT(refusal(parse_bytes, "-1 GB"), HasSubstr("it is negative"));
  for (const char* text :
       {"", " ", "GB", "nan GB", "inf GB", "-inf GB", "+5 GB", "x5 GB", "0x10 GB"}) {
    EXPECT_NE(refusal(parse_bytes, text), "accepted") << text;
  }
  EXPECT_THAT(refusal(parse_bandwidth, "1e999 GB/s"), HasSubstr("too large"));
  EXPECT_THAT(refusal(parse_bandwidth, "1e308 GB/s"), HasSubstr("too large"));
  EXPECT_THAT(refusal(parse_bytes, "1e19 B"), HasSubstr("too large"));
  EXPECT_THAT(refusal(parse_time, "9000000 s"), HasSubstr("over 100 days"));
}

TEST(Quantity, WritesTheShortestUsualForm) {
  EXPECT_EQ(to_text(Bandwidth{450e9}), "450 GB/s");
  EXPECT_EQ(to_text(Bytes{13314398618}), "12.4 GiB");
  EXPECT_EQ(to_text(Time{16070000000000}), "16.07 s");
  EXPECT_EQ(to_text(Time{3100000000}), "3.1 ms");
  EXPECT_EQ(to_text(FlopRate{135e12}), "135 TFLOP/s");
  EXPECT_EQ(to_text(Time{}), "0 s");
  EXPECT_EQ(to_text(Bytes{}), "0 B");
  EXPECT_EQ(to_text(Bytes{1023}), "1023 B");
  EXPECT_EQ(to_text(Time{999999}), "1 us");
  EXPECT_EQ(to_text(Time{-3100000000}), "-3.1 ms");
  EXPECT_EQ(to_text(Time{123456789000000000}), "123457 s");
}

// What is written reads back within the four digits shown.
TEST(Quantity, ReadsBackWhatItWrites) {
  std::mt19937_64 random(5);
  for (int draw = 0; draw < 200; ++draw) {
    const double magnitude = std::pow(10.0, static_cast<double>(random() % 180) / 10.0);
    const Time time{static_cast<std::int64_t>(magnitude)};
    EXPECT_NEAR(parse_time(to_text(time)).seconds(), time.seconds(), 6e-4 * time.seconds());
    const Bytes bytes{static_cast<std::int64_t>(magnitude)};
    EXPECT_NEAR(static_cast<double>(parse_bytes(to_text(bytes)).count),
                static_cast<double>(bytes.count), 6e-4 * static_cast<double>(bytes.count) + 0.5);
    const Bandwidth bandwidth{magnitude};
    EXPECT_NEAR(parse_bandwidth(to_text(bandwidth)).bytes_per_second, magnitude, 6e-4 * magnitude);
  }
}

}  // namespace
}  // namespace headway
