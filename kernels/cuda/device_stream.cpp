#include "kernels/cuda/device_stream.hpp"

#include <algorithm>
#include <utility>

#include "kernels/cuda/cuda_error.hpp"

namespace headway {

std::size_t device_size(DataType type) { return static_cast<std::size_t>(size_of(type, 1).count); }

DeviceMemory::DeviceMemory(std::size_t bytes) : bytes_(bytes) {
  if (bytes > 0) checked(cudaMalloc(&data_, bytes));
}
DeviceMemory& DeviceMemory::operator=(DeviceMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}
// A destructor cannot tell; a device that fails here fails again at the next call.
DeviceMemory::~DeviceMemory() { static_cast<void>(cudaFree(data_)); }

PinnedMemory::PinnedMemory(std::size_t bytes) { checked(cudaMallocHost(&data_, bytes)); }
PinnedMemory::~PinnedMemory() { static_cast<void>(cudaFreeHost(data_)); }

DeviceEvent::DeviceEvent(bool timed) {
  checked(cudaEventCreateWithFlags(&event_, timed ? cudaEventDefault : cudaEventDisableTiming));
}
DeviceEvent::~DeviceEvent() {
  if (event_ != nullptr) static_cast<void>(cudaEventDestroy(event_));
}

GemmLibrary::GemmLibrary() { checked(cublasLtCreate(&handle_)); }
GemmLibrary::~GemmLibrary() { static_cast<void>(cublasLtDestroy(handle_)); }

const cublasLtMatmulAlgo_t& GemmLibrary::algorithm(
    const Shape& shape, const std::function<cublasLtMatmulAlgo_t()>& ask) {
  const auto found = algorithms_.find(shape);
  return found != algorithms_.end() ? found->second
                                    : algorithms_.emplace(shape, ask()).first->second;
}

DeviceStream::DeviceStream(GemmLibrary& library, cudaStream_t made)
    : library_(library), stream_(made) {
  if (stream_ == nullptr) checked(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
}
DeviceStream::~DeviceStream() {
  static_cast<void>(cudaStreamSynchronize(stream_));
  static_cast<void>(cudaStreamDestroy(stream_));
}

void* DeviceStream::scratch(std::size_t bytes, int slot) {
  DeviceMemory& memory = scratch_[slot];
  if (memory.bytes() < bytes) {
    outgrown_.push_back(std::move(memory));
    memory = DeviceMemory(std::max(bytes, 2 * outgrown_.back().bytes()));
  }
  return memory.data();
}

void* DeviceStream::workspace() {
  if (workspace_.data() == nullptr) workspace_ = DeviceMemory(kWorkspaceBytes);
  return workspace_.data();
}

const std::int32_t* DeviceStream::table(const std::vector<std::int64_t>& key,
                                        const std::function<Table()>& make) {
  auto found = tables_.find(key);
  if (found == tables_.end()) {
    const Table values = make();
    DeviceMemory memory(values.size() * sizeof(std::int32_t));
    // From pageable memory: the values are the driver's when the call returns.
    checked(cudaMemcpyAsync(memory.data(), values.data(), values.size() * sizeof(std::int32_t),
                            cudaMemcpyHostToDevice, stream_));
    found = tables_.emplace(key, std::move(memory)).first;
  }
  return static_cast<const std::int32_t*>(found->second.data());
}

std::vector<std::int32_t> DeviceStream::download(const void* from, std::int64_t count) {
  std::vector<std::int32_t> values(static_cast<std::size_t>(count));
  checked(cudaMemcpyAsync(values.data(), from, values.size() * sizeof(std::int32_t),
                          cudaMemcpyDeviceToHost, stream_));
  synchronise();
  return values;
}

void DeviceStream::wait(const DeviceEvent& event) {
  checked(cudaStreamWaitEvent(stream_, event.get(), 0));
}
void DeviceStream::record(const DeviceEvent& event) {
  checked(cudaEventRecord(event.get(), stream_));
}
void DeviceStream::synchronise() { checked(cudaStreamSynchronize(stream_)); }

}  // namespace headway
