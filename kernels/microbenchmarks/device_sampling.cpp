#include "kernels/microbenchmarks/device_sampling.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <thread>

#include "kernels/cuda/cuda_error.hpp"
#include "kernels/cuda/device_operators.hpp"
#include "kernels/cuda/device_transfer.hpp"
#include "kernels/cuda/initial_values.hpp"
#include "kernels/microbenchmarks/device_clock.hpp"
#include "kernels/microbenchmarks/sample_statistics.hpp"

namespace headway {
namespace {

using Clock = SampleClock;

constexpr int kMostSamples = 200;
constexpr double kLongest_s = 0.3;
// What is shorter is repeated within one sample: events tell half a microsecond.
constexpr double kShortestSample_s = 200e-6;
constexpr int kMostCalls = 2000;
constexpr double kIdle_s = 0.02;     // before a burst
constexpr double kSettling_s = 1.0;  // of load, before a sustained sample
constexpr int kMostSets = 32;        // of operands
constexpr std::int64_t kMostBytes = std::int64_t{8} << 30;

void add_clock(const char* when, MeasuredPoint& point) {
  const auto reading = read_clock();
  if (!reading) return;
  const std::string suffix = std::string("_") + when;
  point.counters["clock_mhz" + suffix] = reading->multiprocessor_mhz;
  point.counters["memory_clock_mhz" + suffix] = reading->memory_mhz;
  point.counters["clock_reasons" + suffix] = static_cast<double>(reading->reasons);
  point.counters["temperature_c" + suffix] = reading->temperature_c;
  point.counters["power_w" + suffix] = reading->power_w;
}

// Differences between two orders of adding, and one rounding more.
double tolerance(DataType type) {
  switch (type) {
    case DataType::kFp64:
      return 1e-11;
    case DataType::kFp32:
      return 1e-4;
    default:
      return 3e-2;
  }
}

Operand host_copy(const Operand& device, DeviceStream& stream,
                  std::vector<std::unique_ptr<std::uint64_t[]>>& memory) {
  const std::size_t bytes = static_cast<std::size_t>(device.elements()) * held_size(device.type);
  Operand host = device;
  host.data = memory.emplace_back(std::make_unique<std::uint64_t[]>((bytes + 7) / 8)).get();
  const std::vector<double> values = download(device, stream);
  store(host, 0, host.elements(), values.data());
  return host;
}

// The same operation by both backends on the same numbers.
void require_correct(const OperationBenchmark& of, DeviceStream& stream) {
  const DeviceOperands device(of, 1, stream);
  std::vector<std::unique_ptr<std::uint64_t[]>> memory;
  std::vector<Operand> reads, writes;
  for (const Operand& read : device.reads()) reads.push_back(host_copy(read, stream, memory));
  for (std::size_t w = 0; w < of.writes.size(); ++w) {
    const int same = of.writes[w].same_as;
    const auto at = static_cast<std::size_t>(same);
    if (same >= 0 && at >= reads.size()) {
      writes.push_back(writes[at - reads.size()]);
    } else {
      writes.push_back(same >= 0 ? reads[at] : host_copy(device.writes()[w], stream, memory));
    }
  }
  compute(of.operation, reads, writes, of.placement);
  compute_on_device(of.operation, device.reads(), device.writes(), of.placement, stream);
  for (std::size_t w = 0; w < writes.size(); ++w) {
    std::vector<double> expected(static_cast<std::size_t>(writes[w].elements()));
    load(writes[w], 0, writes[w].elements(), expected.data());
    const std::vector<double> found = download(device.writes()[w], stream);
    double largest = 1e-3, difference = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      largest = std::max(largest, std::fabs(expected[i]));
      const double off = std::fabs(expected[i] - found[i]);
      difference = std::isnan(off) ? INFINITY : std::max(difference, off);
    }
    if (!(difference <= tolerance(writes[w].type) * largest)) {
      throw DeviceFailure(of.name + " differs from the CPU's by " +
                          std::to_string(difference / largest));
    }
  }
}

}  // namespace

std::int64_t bytes_of(const OperationBenchmark& of) {
  std::int64_t bytes = 0;
  for (const auto* list : {&of.reads, &of.writes}) {
    for (const OperandShape& shape : *list) {
      if (shape.same_as < 0) bytes += size_of(shape.type, shape.rows * shape.columns).count;
    }
  }
  return bytes;
}

DeviceOperands::DeviceOperands(const OperationBenchmark& of, std::uint64_t seed,
                               DeviceStream& stream) {
  for (const OperandShape& shape : of.reads) reads_.push_back(make(shape, of, seed++, stream));
  for (const OperandShape& shape : of.writes) writes_.push_back(make(shape, of, seed++, stream));
}

Operand DeviceOperands::make(const OperandShape& shape, const OperationBenchmark& of,
                             std::uint64_t seed, DeviceStream& stream) {
  if (shape.same_as >= 0) {
    const auto at = static_cast<std::size_t>(shape.same_as);
    return at < reads_.size() ? reads_[at] : writes_[at - reads_.size()];
  }
  const auto bytes =
      static_cast<std::size_t>(size_of(shape.type, shape.rows * shape.columns).count);
  const Operand operand{shape.type, shape.rows, shape.columns, memory_.emplace_back(bytes).data()};
  // Products of numbers of either sign; kernels take roots and logarithms of some.
  const bool positive = std::holds_alternative<Kernel>(of.operation);
  const double deviation = positive ? 0.1 : 0.25, mean = positive ? 0.5 : 0;
  switch (shape.type) {
    case DataType::kInt64: {
      constexpr std::int64_t kStride = 7919;  // a prime: neighbours look up distant rows
      std::vector<double> tokens;
      for (std::int64_t i = 0; i < operand.elements(); ++i) {
        tokens.push_back(
            static_cast<double>(i * kStride % std::max<std::int64_t>(of.placement.vocabulary, 1)));
      }
      upload(operand, tokens, stream);
      return operand;
    }
    case DataType::kBool:
      fill_value(operand, 1, stream);
      return operand;
    case DataType::kFp8:
    case DataType::kFp8E5M2: {
      // Bytes of finite numbers of either sign: all but the largest exponent's.
      std::vector<unsigned char> values(bytes);
      std::uint64_t state = seed + 1;
      for (unsigned char& value : values) {
        state = state * 6364136223846793005ULL + 1442695040888963407ULL;
        value = static_cast<unsigned char>((state >> 33) & 0xbf);
      }
      checked(cudaMemcpyAsync(operand.data, values.data(), bytes, cudaMemcpyHostToDevice,
                              stream.get()));
      stream.synchronise();
      return operand;
    }
    default:
      fill_normal(operand, 0, operand.elements(), seed, 0, deviation, stream, mean);
      return operand;
  }
}

DeviceSampling::DeviceSampling(bool quick)
    : quick_(quick), stream_(library_), begin_(true), end_(true) {
  cudaDeviceProp properties{};
  checked(cudaGetDeviceProperties(&properties, 0));
  cache_bytes_ = properties.l2CacheSize;
}

double DeviceSampling::time_of(const Call& call, int calls) {
  stream_.record(begin_);
  for (int i = 0; i < calls; ++i) call(stream_);
  stream_.record(end_);
  stream_.synchronise();
  float milliseconds = 0;
  checked(cudaEventElapsedTime(&milliseconds, begin_.get(), end_.get()));
  return static_cast<double>(milliseconds) * 1e-3 / calls;
}

MeasuredPoint DeviceSampling::sample(const std::string& name, const Call& call, Load load) {
  MeasuredPoint point;
  point.name = name;
  time_of(call, 1);  // what is made in the first call: tables, workspaces, code
  const double first = std::max(time_of(call, 1), 1e-9);
  const int calls = std::clamp(static_cast<int>(kShortestSample_s / first), 1, kMostCalls);
  add_clock("before", point);
  if (load == Load::kSustained) {
    const auto start = Clock::now();
    const double settling = quick_ ? kSettling_s / 4 : kSettling_s;
    do {
      time_of(call, calls);
    } while (seconds_since(start) < settling);
  } else {
    std::this_thread::sleep_for(std::chrono::duration<double>(kIdle_s));
  }
  std::vector<double> samples;
  double median = 0, spread = 0;
  const auto start = Clock::now();
  const double longest = quick_ ? kLongest_s / 6 : kLongest_s;
  do {
    samples.push_back(time_of(call, calls));
    median = median_of(samples);
    spread = spread_of(samples, median);
  } while (static_cast<int>(samples.size()) < kFewestSamples ||
           (spread / std::sqrt(static_cast<double>(samples.size())) > kWantedError &&
            static_cast<int>(samples.size()) < kMostSamples && seconds_since(start) < longest));
  add_clock("after", point);
  point.seconds = median;
  point.counters["samples"] = static_cast<double>(samples.size());
  point.counters["calls"] = calls;
  point.counters["spread"] = spread;
  return point;
}

MeasuredPoint DeviceSampling::sample(const OperationBenchmark& of, Load load, Caches caches,
                                     const OperationBenchmark* small) {
  if (small != nullptr) require_correct(*small, stream_);
  const std::int64_t bytes = std::max<std::int64_t>(bytes_of(of), 1);
  std::int64_t wanted = caches == Caches::kHot ? 1 : 2 * cache_bytes_ / bytes + 1;
  wanted = std::clamp<std::int64_t>(wanted, 1,
                                    std::min<std::int64_t>(kMostSets, kMostBytes / bytes + 1));
  std::vector<std::unique_ptr<DeviceOperands>> sets;
  for (std::int64_t set = 0; set < wanted; ++set) {
    sets.push_back(
        std::make_unique<DeviceOperands>(of, static_cast<std::uint64_t>(100 * set), stream_));
  }
  std::size_t next = 0;
  MeasuredPoint point = sample(
      of.name,
      [&](DeviceStream& stream) {
        const DeviceOperands& set = *sets[next++ % sets.size()];
        compute_on_device(of.operation, set.reads(), set.writes(), of.placement, stream);
      },
      load);
  point.counters["operand_sets"] = static_cast<double>(wanted);
  point.counters["bytes"] = static_cast<double>(bytes);
  return point;
}

}  // namespace headway
