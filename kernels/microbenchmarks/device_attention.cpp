#include <memory>

#include "kernels/microbenchmarks/device_points.hpp"
#include "kernels/microbenchmarks/operation_operands.hpp"

namespace headway {
namespace {

DevicePoint point(bool backward, DataType type, std::int64_t batch, std::int64_t heads,
                  std::int64_t kv_heads, std::int64_t sequence, std::int64_t head_dim) {
  const OperationBenchmark made =
      attention_benchmark(backward, type, batch, heads, kv_heads, sequence, head_dim);
  const auto small = std::make_shared<OperationBenchmark>(
      attention_benchmark(backward, type, 1, 2, 1, 70, head_dim));
  return {made.name, [=](DeviceSampling& sampling) {
            return sampling.sample(made, Load::kBurst, Caches::kCold, small.get());
          }};
}

}  // namespace

// By this project's own kernels: what its executed steps take, not what a framework's fused kernels
// would.
DevicePoints attention_points(bool quick) {
  using Sizes = std::vector<std::int64_t>;
  DevicePoints points;
  for (const bool backward : {true, false}) {
    for (const std::int64_t sequence : quick ? Sizes{1024} : Sizes{2048, 1024, 4096, 512, 8192}) {
      for (const std::int64_t heads : quick ? Sizes{16} : Sizes{16, 32, 8}) {
        for (const std::int64_t head_dim : quick ? Sizes{128} : Sizes{128, 64}) {
          points.push_back(point(backward, DataType::kBf16, 1, heads, heads, sequence, head_dim));
        }
      }
    }
    if (quick) continue;
    points.push_back(point(backward, DataType::kBf16, 1, 32, 8, 4096, 128));
    points.push_back(point(backward, DataType::kBf16, 4, 16, 16, 1024, 128));
    points.push_back(point(backward, DataType::kFp32, 1, 16, 16, 1024, 64));
  }
  return points;
}

}  // namespace headway
