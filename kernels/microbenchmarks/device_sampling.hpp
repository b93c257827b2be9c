// How everything on a device is timed: between two events of one stream, by samples that are taken
// until their median is known to a percent or time is up (nvbench's rule). In `burst` the device
// was idle just before; in `sustained` it has been under this very load for a second, as in
// training, and its clocks have settled. `cold` calls find their operands out of the caches,
// because what they use rotates through more than the last-level cache holds; `hot` calls use one
// set. Clocks and the reasons that hold them down stand beside every point.
#pragma once

#include <functional>

#include "kernels/cuda/device_stream.hpp"
#include "kernels/microbenchmarks/operation_benchmark.hpp"
#include "kernels/microbenchmarks/point_file.hpp"

namespace headway {

enum class Load : std::uint8_t { kBurst, kSustained };
enum class Caches : std::uint8_t { kCold, kHot };

class DeviceSampling {
 public:
  // Quick: fewer samples.
  explicit DeviceSampling(bool quick);

  // Enqueues the thing once, on the stream it is given.
  using Call = std::function<void(DeviceStream&)>;
  MeasuredPoint sample(const std::string& name, const Call& call, Load load);

  // An operation on operands of its own, after it was compared with the CPU's on a small shape of
  // the same kind (`small`), where there is one. Throws DeviceFailure where they differ.
  MeasuredPoint sample(const OperationBenchmark& of, Load load, Caches caches,
                       const OperationBenchmark* small);

  DeviceStream& stream() { return stream_; }
  GemmLibrary& library() { return library_; }
  // Bytes of the last-level cache.

 private:
  double time_of(const Call& call, int calls);

  bool quick_;
  std::int64_t cache_bytes_ = 0;
  GemmLibrary library_;
  DeviceStream stream_;
  DeviceEvent begin_, end_;
};

// The operands of one call on a device, of random numbers.
class DeviceOperands {
 public:
  DeviceOperands(const OperationBenchmark& of, std::uint64_t seed, DeviceStream& stream);
  const std::vector<Operand>& reads() const { return reads_; }
  const std::vector<Operand>& writes() const { return writes_; }

 private:
  Operand make(const OperandShape& shape, const OperationBenchmark& of, std::uint64_t seed,
               DeviceStream& stream);

  std::vector<DeviceMemory> memory_;
  std::vector<Operand> reads_, writes_;
};

// Bytes of all its operands.
std::int64_t bytes_of(const OperationBenchmark& of);

}  // namespace headway
