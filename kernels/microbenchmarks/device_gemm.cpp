#include <algorithm>
#include <memory>
#include <set>

#include "kernels/cuda/device_operators.hpp"
#include "kernels/microbenchmarks/device_points.hpp"
#include "kernels/microbenchmarks/operation_operands.hpp"

namespace headway {
namespace {

constexpr GemmRole kRoles[] = {GemmRole::kWeightGradient, GemmRole::kInputGradient,
                               GemmRole::kForward};

using Outputs = std::pair<std::int64_t, std::int64_t>;  // outputs, inputs

// The products of dense layers of these widths, whole and cut over 2, 4 and 8 ranks; and heads.
std::vector<Outputs> shapes(bool quick) {
  std::set<Outputs> all;
  const std::vector<std::int64_t> widths =
      quick ? std::vector<std::int64_t>{4096}
            : std::vector<std::int64_t>{2048, 4096, 5120, 8192, 12288};
  for (const std::int64_t width : widths) {
    for (const std::int64_t ranks :
         quick ? std::vector<std::int64_t>{1} : std::vector<std::int64_t>{1, 2, 4, 8}) {
      all.insert({3 * width / ranks, width});
      all.insert({width, width / ranks});
      all.insert({4 * width / ranks, width});
      all.insert({width, 4 * width / ranks});
    }
  }
  // Gated layers of Llama 3 (8B, 70B), and its head, whole and cut.
  for (const Outputs& shape : {Outputs{28672, 4096}, Outputs{4096, 14336}, Outputs{57344, 8192},
                               Outputs{8192, 28672}, Outputs{128256, 4096}, Outputs{16032, 8192}}) {
    if (!quick) all.insert(shape);
  }
  return {all.begin(), all.end()};
}

DataType result_of(GemmRole role, DataType type) {
  if (type == DataType::kFp64) return type;
  return role == GemmRole::kWeightGradient ? DataType::kFp32
         : type == DataType::kFp8          ? DataType::kBf16
         : type == DataType::kTf32         ? DataType::kFp32
                                           : type;
}

OperationBenchmark product(GemmRole role, DataType type, std::int64_t m, std::int64_t n,
                           std::int64_t k) {
  OperationBenchmark made = gemm_benchmark(role, type, result_of(role, type), m, n, k);
  return made;
}

DevicePoint point(const char* what, GemmRole role, DataType type, std::int64_t m, Outputs shape,
                  Load load, Caches caches) {
  OperationBenchmark made = product(role, type, m, shape.first, shape.second);
  made.name = what + made.name.substr(made.name.find('/'));
  // tf32 and 8 bits are cut by the tensor cores, not as the CPU cuts them.
  constexpr std::int64_t kSmall = 64;
  std::shared_ptr<OperationBenchmark> small;
  if (type != DataType::kFp8 && type != DataType::kTf32) {
    small = std::make_shared<OperationBenchmark>(product(role, type, kSmall, kSmall, kSmall));
  }
  return {made.name, [=](DeviceSampling& sampling) {
            return sampling.sample(made, load, caches, small.get());
          }};
}

// One product after another, as many as there are groups, of rows that follow one another: what a
// grouped product costs without a kernel of its own.
DevicePoint grouped(GemmRole role, std::int64_t groups, std::int64_t tokens, Outputs shape) {
  const OperationBenchmark one = product(role, DataType::kBf16, tokens, shape.first, shape.second);
  const std::string name = "grouped_gemm/" + std::string(headway::name(role)) + "/bf16/" +
                           std::to_string(groups) + "/" + std::to_string(tokens) + "/" +
                           std::to_string(shape.first) + "/" + std::to_string(shape.second);
  return {name, [=](DeviceSampling& sampling) {
            std::vector<std::unique_ptr<DeviceOperands>> sets;
            for (std::int64_t group = 0; group < groups; ++group) {
              sets.push_back(std::make_unique<DeviceOperands>(
                  one, static_cast<std::uint64_t>(group), sampling.stream()));
            }
            return sampling.sample(
                name,
                [&](DeviceStream& stream) {
                  for (const auto& set : sets) {
                    compute_on_device(one.operation, set->reads(), set->writes(), one.placement,
                                      stream);
                  }
                },
                Load::kBurst);
          }};
}

}  // namespace

DevicePoints gemm_points(bool quick) {
  DevicePoints points;
  const std::vector<std::int64_t> tokens =
      quick ? std::vector<std::int64_t>{4096}
            : std::vector<std::int64_t>{4096, 8192, 2048, 16384, 1024};
  for (const std::int64_t m : tokens) {
    for (const GemmRole role : kRoles) {
      for (const Outputs& shape : shapes(quick)) {
        points.push_back(
            point("gemm", role, DataType::kBf16, m, shape, Load::kBurst, Caches::kCold));
      }
    }
  }
  // Under load, in the caches, in other types, in groups: fewer shapes.
  const std::vector<Outputs> few = {{12288, 4096}, {4096, 4096}, {16384, 4096}, {4096, 16384}};
  for (const GemmRole role : kRoles) {
    for (const Outputs& shape : few) {
      points.push_back(point("gemm_sustained", role, DataType::kBf16, 8192, shape, Load::kSustained,
                             Caches::kCold));
      points.push_back(
          point("gemm_hot", role, DataType::kBf16, 1024, shape, Load::kBurst, Caches::kHot));
      points.push_back(grouped(role, 8, 1024, shape));
      points.push_back(grouped(role, 32, 256, {shape.first / 4, shape.second}));
      if (quick) continue;
      for (const DataType type : {DataType::kFp16, DataType::kTf32, DataType::kFp32}) {
        points.push_back(point("gemm", role, type, 4096, shape, Load::kBurst, Caches::kCold));
      }
    }
  }
  // cuBLASLt multiplies 8 bits only with the depth of both operands contiguous: the gradients'
  // shapes stand as forward products of transposed copies, as Transformer Engine runs them.
  for (const Outputs& shape : few) {
    for (const std::int64_t m :
         quick ? std::vector<std::int64_t>{8192} : std::vector<std::int64_t>{2048, 8192, 16384}) {
      points.push_back(
          point("gemm", GemmRole::kForward, DataType::kFp8, m, shape, Load::kBurst, Caches::kCold));
    }
  }
  return points;
}

// A multiplication that fills the device, without a pause: how its clocks settle.
DevicePoints clock_points(bool quick) {
  DevicePoints points;
  const OperationBenchmark of =
      gemm_benchmark(GemmRole::kForward, DataType::kBf16, DataType::kBf16, 8192, 8192, 8192);
  for (int second = 0; second < (quick ? 2 : 20); ++second) {
    const std::string name = "clock/" + std::to_string(second);
    points.push_back({name, [=](DeviceSampling& sampling) {
                        OperationBenchmark named = of;
                        named.name = name;
                        return sampling.sample(named, Load::kSustained, Caches::kCold, nullptr);
                      }});
  }
  return points;
}

}  // namespace headway
