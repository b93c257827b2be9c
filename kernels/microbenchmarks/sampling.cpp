#include "kernels/microbenchmarks/sampling.hpp"

#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/execute/resident_memory.hpp"
#include "kernels/microbenchmarks/sample_statistics.hpp"

namespace headway {
namespace {

using Clock = SampleClock;

double longest_s = 0.4;

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
