#include <memory>

#include "kernels/cuda/device_operators.hpp"
#include "kernels/microbenchmarks/device_points.hpp"
#include "kernels/microbenchmarks/operation_operands.hpp"

namespace headway {
namespace {

void add(const KernelOperands& kernel, DataType type, std::int64_t rows, std::int64_t columns,
         DevicePoints& points) {
  const OperationBenchmark made = benchmark_of(kernel, type, rows, columns);
  if (!not_on_device(made.operation).empty()) return;
  const auto small = std::make_shared<OperationBenchmark>(benchmark_of(kernel, type, 8, 128));
  points.push_back({made.name, [=](DeviceSampling& sampling) {
                      return sampling.sample(made, Load::kBurst, Caches::kCold, small.get());
                    }});
}

}  // namespace

DevicePoints kernel_points(bool quick) {
  using Shapes = std::vector<std::pair<std::int64_t, std::int64_t>>;
  DevicePoints points;
  for (const auto& [rows, columns] :
       quick ? Shapes{{4096, 4096}}
             : Shapes{{4096, 4096}, {8192, 8192}, {2048, 2048}, {4096, 12288}}) {
    for (const KernelOperands& kernel : training_kernels()) {
      add(kernel, DataType::kBf16, rows, columns, points);
    }
  }
  if (quick) return points;
  for (const KernelOperands& kernel : training_kernels()) {
    add(kernel, DataType::kFp32, 4096, 4096, points);
  }
  return points;
}

// Elements as of models of 4 million to 1 billion parameters on the rank.
DevicePoints optimizer_points(bool quick) {
  DevicePoints points;
  for (const std::int64_t rows :
       quick ? std::vector<std::int64_t>{16384}
             : std::vector<std::int64_t>{16384, 65536, 1024, 4096, 262144}) {
    for (const KernelOperands& kernel : optimizer_kernels()) {
      add(kernel, DataType::kFp32, rows, 4096, points);
    }
  }
  return points;
}

}  // namespace headway
