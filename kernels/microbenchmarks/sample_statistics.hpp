// When samples of a time say enough: the median of n samples is off by about their spread /
// sqrt(n).
#pragma once

#include <chrono>
#include <vector>

namespace headway {

// Of a median, relative: until it is known to that, samples are taken.
inline constexpr double kWantedError = 0.01;
inline constexpr int kFewestSamples = 5;

using SampleClock = std::chrono::steady_clock;
double seconds_since(SampleClock::time_point start);

// REQUIRES: at least one sample.
double median_of(std::vector<double> samples);

// Median distance from the median, scaled to the standard deviation of a normal, relative.
double spread_of(const std::vector<double>& samples, double median);

}  // namespace headway
