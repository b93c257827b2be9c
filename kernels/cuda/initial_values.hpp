// What buffers of a device begin with, made on the device: models are too large to be drawn by the
// host and carried over.
#pragma once

#include <cstdint>

#include "kernels/cpu/operand.hpp"
#include "kernels/cuda/device_stream.hpp"

namespace headway {

// Elements [first, first + count) become mean + scale x the normal numbers `counter` .. of a
// CounterRandom with this key.
void fill_normal(const Operand& operand, std::int64_t first, std::int64_t count, std::uint64_t key,
                 std::uint64_t counter, double scale, DeviceStream& stream, double mean = 0);
void fill_value(const Operand& operand, double value, DeviceStream& stream);

}  // namespace headway
