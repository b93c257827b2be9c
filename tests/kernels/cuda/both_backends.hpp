// Runs an operation by the CPU's kernels and by those of kernels/cuda on equal operands, and
// compares what they write. The same tests are built twice: for the emulated device, which every
// machine has, and for a real one, where they skip if there is none.
#pragma once

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "kernels/cuda/device_operators.hpp"
#include "kernels/cuda/device_transfer.hpp"

namespace headway {

// An operand to be made: of normal values, or integers below `below`, or truth values.
struct Shape {
  DataType type = DataType::kFp32;
  std::int64_t rows = 0, columns = 0;
  int same_as = -1;  // the place of an earlier operand, through reads and writes
  std::int64_t below = 0;
  std::vector<double> values = {};  // where they matter
};

inline bool has_device() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
}

#define SKIP_WITHOUT_DEVICE() \
  if (!has_device()) GTEST_SKIP() << "no CUDA device here: this runs where there is one"

class BothBackends {
 public:
  explicit BothBackends(unsigned seed = 1) : engine_(seed), stream_(library_) {}

  // The largest difference between a number written by one and by the other, over the largest
  // magnitude of that operand.
  double run(const Operation& operation, const std::vector<Shape>& reads,
             const std::vector<Shape>& writes, const Placement& placement = {}) {
    const Operands cpu = make(reads, writes);
    compute(operation, cpu.host_reads, cpu.host_writes, placement);
    compute_on_device(operation, cpu.device_reads, cpu.device_writes, placement, stream_);
    return compare(cpu);
  }

  double communicate(const Collective& collective, const std::vector<std::vector<Shape>>& reads,
                     const std::vector<std::vector<Shape>>& writes) {
    std::vector<Operands> all;
    std::vector<CollectiveMember> host, device;
    for (std::size_t m = 0; m < reads.size(); ++m) {
      all.push_back(make(reads[m], writes[m]));
      host.push_back({all.back().host_reads, all.back().host_writes});
      device.push_back({all.back().device_reads, all.back().device_writes});
    }
    headway::communicate(collective, host);
    communicate_on_device(collective, device, stream_);
    double worst = 0;
    for (const Operands& each : all) worst = std::max(worst, compare(each));
    return worst;
  }

  DeviceStream& stream() { return stream_; }

 private:
  struct Operands {
    std::vector<Operand> host_reads, host_writes, device_reads, device_writes;
  };

  Operands make(const std::vector<Shape>& reads, const std::vector<Shape>& writes) {
    Operands made;
    const auto nth = [&](const std::vector<Operand>& first, const std::vector<Operand>& second,
                         int i) {
      const auto at = static_cast<std::size_t>(i);
      return at < first.size() ? first[at] : second[at - first.size()];
    };
    for (const bool is_write : {false, true}) {
      for (const Shape& shape : is_write ? writes : reads) {
        auto& host_list = is_write ? made.host_writes : made.host_reads;
        auto& device_list = is_write ? made.device_writes : made.device_reads;
        if (shape.same_as >= 0) {
          host_list.push_back(nth(made.host_reads, made.host_writes, shape.same_as));
          device_list.push_back(nth(made.device_reads, made.device_writes, shape.same_as));
          continue;
        }
        host_list.push_back(host_operand(shape));
        Operand device = host_list.back();
        device.data =
            device_
                .emplace_back(static_cast<std::size_t>(
                    size_of(device.type, std::max<std::int64_t>(device.elements(), 1)).count))
                .data();
        // What is only written begins with nothing on the device, to be seen if it is kept.
        if (!is_write) upload(device, numbers(host_list.back()), stream_);
        device_list.push_back(device);
      }
    }
    return made;
  }

  Operand host_operand(const Shape& shape) {
    auto& memory = host_.emplace_back(
        (static_cast<std::size_t>(shape.rows * shape.columns) * held_size(shape.type) + 7) / 8);
    const Operand operand{shape.type, shape.rows, shape.columns, memory.data()};
    std::normal_distribution<double> normal(0.0, 0.5);
    for (std::int64_t i = 0; i < operand.elements(); ++i) {
      double value = normal(engine_);
      if (shape.below > 0)
        value = static_cast<double>(engine_() % static_cast<std::uint64_t>(shape.below));
      if (shape.type == DataType::kBool) value = value > 0 ? 1 : 0;
      if (!shape.values.empty()) value = shape.values[static_cast<std::size_t>(i)];
      store(operand, i, 1, &value);
    }
    return operand;
  }

  static std::vector<double> numbers(const Operand& host) {
    std::vector<double> values(static_cast<std::size_t>(host.elements()));
    load(host, 0, host.elements(), values.data());
    return values;
  }

  double compare(const Operands& of) {
    double worst = 0;
    for (std::size_t i = 0; i < of.host_writes.size(); ++i) {
      const std::vector<double> expected = numbers(of.host_writes[i]);
      const std::vector<double> found = download(of.device_writes[i], stream_);
      double largest = 1e-3, difference = 0;
      for (std::size_t e = 0; e < expected.size(); ++e) {
        if (std::isinf(expected[e]) && expected[e] == found[e]) continue;
        largest = std::max(largest, std::fabs(expected[e]));
        const double off = std::fabs(expected[e] - found[e]);
        difference = std::isnan(off) ? INFINITY : std::max(difference, off);
      }
      worst = std::max(worst, difference / largest);
    }
    return worst;
  }

  std::mt19937_64 engine_;
  GemmLibrary library_;
  DeviceStream stream_;
  std::vector<std::vector<double>> host_;
  std::vector<DeviceMemory> device_;
};

// What two orders of adding, and one rounding more, leave between two results of a type.
inline double tolerance(DataType type) {
  switch (type) {
    case DataType::kFp64:
      return 1e-12;
    case DataType::kFp32:
      return 2e-5;
    case DataType::kFp16:
      return 4e-3;
    default:
      return 2e-2;
  }
}

}  // namespace headway
