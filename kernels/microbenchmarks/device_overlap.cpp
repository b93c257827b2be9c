#include <algorithm>
#include <memory>

#include "kernels/cuda/cuda_error.hpp"
#include "kernels/cuda/device_operators.hpp"
#include "kernels/microbenchmarks/channel_copy.hpp"
#include "kernels/microbenchmarks/device_points.hpp"
#include "kernels/microbenchmarks/operation_operands.hpp"

namespace headway {
namespace {

constexpr int kRepeats = 20;    // of the operation, beside one long copy
constexpr double kCover = 1.5;  // the copy outlasts the operations by so much

// Something that goes on beside an operation, for about so many seconds.
struct Beside {
  std::string name;  // "channels/16/67108864"
  std::int64_t bytes = 0;
  std::function<void(int rounds, DeviceStream& stream)> start;
};

double elapsed(const DeviceEvent& from, const DeviceEvent& to) {
  float milliseconds = 0;
  checked(cudaEventElapsedTime(&milliseconds, from.get(), to.get()));
  return static_cast<double>(milliseconds) * 1e-3;
}

// The operation alone, the other alone, and the operation while the other goes on. Both are
// enqueued at once; the operation's samples are kept where the other had not ended before them.
MeasuredPoint measure(const std::string& name, const OperationBenchmark& of, const Beside& beside,
                      DeviceSampling& sampling) {
  DeviceStream own(sampling.library()), other(sampling.library());
  DeviceEvent begin(true), end(true), other_begin(true), other_end(true), go(false);
  const DeviceOperands operands(of, 1, own);
  own.synchronise();
  const auto repeat = [&](DeviceStream& stream) {
    for (int i = 0; i < kRepeats; ++i) {
      compute_on_device(of.operation, operands.reads(), operands.writes(), of.placement, stream);
    }
  };
  const auto alone = [&] {
    own.record(begin);
    repeat(own);
    own.record(end);
    own.synchronise();
    return elapsed(begin, end);
  };
  const auto other_alone = [&](int rounds) {
    other.record(other_begin);
    beside.start(rounds, other);
    other.record(other_end);
    other.synchronise();
    return elapsed(other_begin, other_end);
  };
  alone();
  other_alone(1);
  const double operation_s = alone(), round_s = std::max(other_alone(4) / 4, 1e-9);
  const int rounds = std::max(1, static_cast<int>(kCover * operation_s / round_s) + 1);
  const double other_s = other_alone(rounds);

  constexpr int kSamples = 7;
  std::vector<double> together, other_together;
  int covered = 0;
  for (int sample = 0; sample < kSamples; ++sample) {
    own.record(go);
    other.wait(go);
    other.record(other_begin);
    beside.start(2 * rounds, other);
    other.record(other_end);
    own.record(begin);
    repeat(own);
    own.record(end);
    own.synchronise();
    other.synchronise();
    together.push_back(elapsed(begin, end));
    other_together.push_back(elapsed(other_begin, other_end));
    if (elapsed(end, other_end) >= 0) ++covered;
  }
  std::sort(together.begin(), together.end());
  std::sort(other_together.begin(), other_together.end());
  MeasuredPoint point;
  point.name = name;
  point.seconds = together[kSamples / 2] / kRepeats;
  point.counters["alone_us"] = operation_s / kRepeats * 1e6;
  point.counters["beside_us"] = point.seconds * 1e6;
  point.counters["other_alone_us"] = other_s / rounds * 1e6;
  // Over the whole of its run, of which the operations took a part.
  point.counters["other_beside_us"] = other_together[kSamples / 2] / (2 * rounds) * 1e6;
  point.counters["other_bytes"] = static_cast<double>(beside.bytes);
  point.counters["covered_samples"] = covered;
  point.counters["samples"] = kSamples;
  return point;
}

struct Copy {
  explicit Copy(std::int64_t bytes)
      : from(static_cast<std::size_t>(bytes)), to(static_cast<std::size_t>(bytes)) {}
  DeviceMemory from, to;
};

DevicePoint beside_channels(const OperationBenchmark& of, const std::string& what, int channels,
                            std::int64_t bytes) {
  const std::string name =
      "overlap/" + what + "/channels/" + std::to_string(channels) + "/" + std::to_string(bytes);
  return {name, [=](DeviceSampling& sampling) {
            const Copy copy(bytes);
            const Beside beside{name, 2 * bytes, [&](int rounds, DeviceStream& stream) {
                                  copy_by_channels(copy.to.data(), copy.from.data(), bytes,
                                                   channels, rounds, stream.get());
                                }};
            return measure(name, of, beside, sampling);
          }};
}

DevicePoint beside_host_copy(const OperationBenchmark& of, const std::string& what,
                             std::int64_t bytes) {
  const std::string name = "overlap/" + what + "/to_host/" + std::to_string(bytes);
  return {name, [=](DeviceSampling& sampling) {
            const DeviceMemory device(static_cast<std::size_t>(bytes));
            const PinnedMemory host(static_cast<std::size_t>(bytes));
            const Beside beside{name, bytes, [&](int rounds, DeviceStream& stream) {
                                  for (int i = 0; i < rounds; ++i) {
                                    checked(cudaMemcpyAsync(host.data(), device.data(),
                                                            static_cast<std::size_t>(bytes),
                                                            cudaMemcpyDeviceToHost, stream.get()));
                                  }
                                }};
            return measure(name, of, beside, sampling);
          }};
}

}  // namespace

DevicePoints overlap_points(bool quick) {
  std::vector<std::pair<std::string, OperationBenchmark>> operations;
  const auto add = [&](const OperationBenchmark& of) {
    std::string what = of.name;
    std::replace(what.begin(), what.end(), '/', '-');
    operations.emplace_back(what, of);
  };
  const DataType type = DataType::kBf16;
  add(gemm_benchmark(GemmRole::kForward, type, type, 4096, 4096, 4096));
  for (const KernelOperands& kernel : training_kernels()) {
    if (kernel.kind == KernelKind::kRmsNormForward) add(benchmark_of(kernel, type, 8192, 8192));
  }
  if (!quick) {
    add(gemm_benchmark(GemmRole::kWeightGradient, type, DataType::kFp32, 8192, 8192, 8192));
    add(attention_benchmark(false, type, 1, 16, 16, 2048, 128));
    add(attention_benchmark(true, type, 1, 16, 16, 2048, 128));
  }
  DevicePoints points;
  // In the caches and beyond them; as many blocks as collectives have channels.
  for (const std::int64_t bytes : {std::int64_t{64} << 20, std::int64_t{1} << 20}) {
    for (const int channels :
         quick ? std::vector<int>{16} : std::vector<int>{16, 32, 4, 8, 64, 2}) {
      for (const auto& [what, of] : operations) {
        points.push_back(beside_channels(of, what, channels, bytes));
      }
    }
  }
  for (const auto& [what, of] : operations) {
    points.push_back(beside_host_copy(of, what, std::int64_t{64} << 20));
  }
  return points;
}

}  // namespace headway
