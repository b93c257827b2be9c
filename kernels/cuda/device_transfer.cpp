#include "kernels/cuda/device_transfer.hpp"

#include "kernels/cuda/cuda_error.hpp"
#include "kernels/cuda/elements.hpp"

namespace headway {
namespace {

std::vector<char> bytes_for(DataType type, std::int64_t count) {
  return std::vector<char>(static_cast<std::size_t>(size_of(type, count).count));
}

}  // namespace

std::vector<double> numbers_of(const void* bytes, DataType type, std::int64_t count) {
  const Elements held{const_cast<void*>(bytes), type};
  std::vector<double> values(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    values[static_cast<std::size_t>(i)] = held.load<double>(i);
  }
  return values;
}

std::vector<double> download(const Operand& device, DeviceStream& stream) {
  std::vector<char> bytes = bytes_for(device.type, device.elements());
  checked(cudaMemcpyAsync(bytes.data(), device.data, bytes.size(), cudaMemcpyDeviceToHost,
                          stream.get()));
  stream.synchronise();
  return numbers_of(bytes.data(), device.type, device.elements());
}

void upload(const Operand& device, const std::vector<double>& values, DeviceStream& stream) {
  std::vector<char> bytes = bytes_for(device.type, device.elements());
  const Elements held{bytes.data(), device.type};
  for (std::int64_t i = 0; i < device.elements(); ++i) {
    held.store(i, values[static_cast<std::size_t>(i)]);
  }
  checked(cudaMemcpyAsync(device.data, bytes.data(), bytes.size(), cudaMemcpyHostToDevice,
                          stream.get()));
  stream.synchronise();
}

}  // namespace headway
