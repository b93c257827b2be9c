// Dimensioned values as people write them: a number, a space, a unit. "450 GB/s" and "200 Gbit/s"
// are bandwidths per direction (decimal prefixes), "80 GB" and "80 GiB" amounts, "5 us" a time,
// "312 TFLOP/s" a rate, "400 W" a power, "2 $/h" a price. A bare number where a unit belongs is an
// error.
#pragma once

#include <string>
#include <string_view>

#include "sim/core/units.hpp"

namespace headway {

// Each throws std::invalid_argument with what was found and which units are allowed; a negative
// value, NaN or infinity is refused too. The JSON reader turns it into a Problem with its place.
Bandwidth parse_bandwidth(std::string_view text);
Bytes parse_bytes(std::string_view text);
Time parse_time(std::string_view text);
FlopRate parse_flop_rate(std::string_view text);
double parse_watts(std::string_view text);
double parse_dollars_per_hour(std::string_view text);

// The shortest usual form: "450 GB/s", "12.4 GiB", "16.07 s", "3.1 ms", "135 TFLOP/s".
std::string to_text(Bandwidth bandwidth);
std::string to_text(Bytes bytes);
std::string to_text(Time time);
std::string to_text(FlopRate rate);

}  // namespace headway
