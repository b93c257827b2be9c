#include "kernels/microbenchmarks/sampling.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/execute/resident_memory.hpp"

namespace headway {
namespace {

using Clock = std::chrono::steady_clock;

// The median of n samples is off by about spread / sqrt(n).
constexpr double kWantedError = 0.01;
constexpr int kFewestSamples = 5;
double longest_s = 0.4;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Additions that wait for each other take a cycle each on every x86-64 and Arm core.
double clock_ghz() {
  constexpr int kAdditions = 1'000'000;
  std::uint64_t sum = 1;
  const auto start = Clock::now();
  for (int i = 0; i < kAdditions; ++i) {
    sum += sum;
    benchmark::DoNotOptimize(sum);
  }
  return kAdditions / seconds_since(start) * 1e-9;
}

double median_of(std::vector<double> samples) {
  const auto middle = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2);
  std::nth_element(samples.begin(), middle, samples.end());
  return *middle;
}

// Median distance from the median, scaled to the standard deviation of a normal, relative.
double spread_of(const std::vector<double>& samples, double median) {
  constexpr double kOfNormal = 1.4826;
  std::vector<double> distances;
  for (const double sample : samples) distances.push_back(std::fabs(sample - median));
  return kOfNormal * median_of(distances) / median;
}

}  // namespace

double timed(const std::function<void()>& body) {
  const auto start = Clock::now();
  body();
  return seconds_since(start);
}

void report_median(benchmark::State& state, double seconds, int samples, double spread) {
  for ([[maybe_unused]] auto iteration : state) state.SetIterationTime(seconds);
  state.counters["samples"] = samples;
  state.counters["spread"] = spread;
}

void report_samples(benchmark::State& state, const std::function<double()>& once) {
  const double before = clock_ghz();
  once();  // cold code and fresh pages are not the thing
  std::vector<double> samples;
  double median = 0, spread = 0;
  const auto start = Clock::now();
  do {
    samples.push_back(once());
    median = median_of(samples);
    spread = spread_of(samples, median);
  } while (static_cast<int>(samples.size()) < kFewestSamples ||
           (spread / std::sqrt(static_cast<double>(samples.size())) > kWantedError &&
            seconds_since(start) < longest_s));
  report_median(state, median, static_cast<int>(samples.size()), spread);
  state.counters["clock_ghz_before"] = before;
  state.counters["clock_ghz_after"] = clock_ghz();
}

int run_microbenchmarks(int count, char** values, const std::function<void(bool quick)>& add) {
  bool quick = false;
  std::vector<char*> kept;
  for (int i = 0; i < count; ++i) {
    if (std::strcmp(values[i], "--quick") == 0) {
      quick = true;
    } else {
      kept.push_back(values[i]);
    }
  }
  if (quick) longest_s = 0.05;
  keep_freed_memory();  // as the executor does
  int left = static_cast<int>(kept.size());
  add(quick);
  benchmark::Initialize(&left, kept.data());
  if (benchmark::ReportUnrecognizedArguments(left, kept.data())) return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}

}  // namespace headway
