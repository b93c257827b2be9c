// Numbers between a device's buffers and the host, whatever type they are held in. Both wait.
#pragma once

#include <vector>

#include "kernels/cpu/operand.hpp"
#include "kernels/cuda/device_stream.hpp"

namespace headway {

// What a buffer of the device holds when everything before on the stream has ended.
std::vector<double> download(const Operand& device, DeviceStream& stream);
// Rounded to the buffer's type. REQUIRES: as many values as it has elements.
void upload(const Operand& device, const std::vector<double>& values, DeviceStream& stream);

// Raw bytes of a buffer as numbers: for whoever has copied them itself.
std::vector<double> numbers_of(const void* bytes, DataType type, std::int64_t count);

}  // namespace headway
