// How all microbenchmarks measure: samples of one thing until their median is known to a percent,
// or time is up; the median is the benchmark's manual time. Beside it stand the number of samples,
// their relative spread and the core's clock before and after, so that a throttled or shared core
// can be told from the file alone.
#pragma once

#include <benchmark/benchmark.h>

#include <functional>

namespace headway {

// Takes samples (`once` runs the thing and returns its seconds) and reports them.
void report_samples(benchmark::State& state, const std::function<double()>& once);

// Reports a median that was found elsewhere, from so many samples of that relative spread.
void report_median(benchmark::State& state, double seconds, int samples, double spread);

// Seconds that `body` takes.
double timed(const std::function<void()>& body);

// The main function of every microbenchmark: Google Benchmark's, with --quick beside its options
// (fewer sizes, less time for each). `add` registers the benchmarks.
int run_microbenchmarks(int count, char** values, const std::function<void(bool quick)>& add);

}  // namespace headway
