// One in-order stream of a device with what operations on it need: workspace for matrix
// multiplications, scratch memory, and tables that the host uploads. Whatever is enqueued here runs
// in order, so scratch memory may be used again by the next operation without waiting. Not
// thread-safe.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "sim/model/precision.hpp"

namespace headway {

// Bytes of one element on a device: what the type declares, and one for a truth value.
std::size_t device_size(DataType type);

// Memory of the device, freed with it.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  // Throws DeviceFailure. What it holds is undefined.
  explicit DeviceMemory(std::size_t bytes);
  DeviceMemory(DeviceMemory&& other) noexcept { *this = std::move(other); }
  DeviceMemory& operator=(DeviceMemory&& other) noexcept;
  ~DeviceMemory();
  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// Memory of the host that the device copies from and to while the host goes on.
class PinnedMemory {
 public:
  explicit PinnedMemory(std::size_t bytes);
  PinnedMemory(PinnedMemory&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
  PinnedMemory& operator=(PinnedMemory&& other) noexcept {
    std::swap(data_, other.data_);
    return *this;
  }
  ~PinnedMemory();
  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
};

class DeviceEvent {
 public:
  // An event that is not timed costs the device less.
  explicit DeviceEvent(bool timed);
  DeviceEvent(DeviceEvent&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  DeviceEvent& operator=(DeviceEvent&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }
  ~DeviceEvent();
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

// The library of matrix multiplications, for all streams of a device.
class GemmLibrary {
 public:
  GemmLibrary();
  GemmLibrary(const GemmLibrary&) = delete;
  GemmLibrary& operator=(const GemmLibrary&) = delete;
  ~GemmLibrary();
  cublasLtHandle_t handle() const { return handle_; }

  // The library's first choice for a multiplication, asked for once; `ask` is that question.
  using Shape = std::tuple<int, int, int, int, int, std::int64_t, std::int64_t, std::int64_t, int>;
  const cublasLtMatmulAlgo_t& algorithm(const Shape& shape,
                                        const std::function<cublasLtMatmulAlgo_t()>& ask);

 private:
  cublasLtHandle_t handle_ = nullptr;
  std::map<Shape, cublasLtMatmulAlgo_t> algorithms_;
};

class DeviceStream {
 public:
  // A stream of its own; or one that was made elsewhere (of a green context), which it then owns.
  // `library` outlives it.
  explicit DeviceStream(GemmLibrary& library, cudaStream_t made = nullptr);
  DeviceStream(const DeviceStream&) = delete;
  DeviceStream& operator=(const DeviceStream&) = delete;
  ~DeviceStream();

  cudaStream_t get() const { return stream_; }
  GemmLibrary& library() const { return library_; }

  // Memory of at least so many bytes for one operation at a time; of the same place for equal
  // `slot`, so that an operation that needs two names two.
  void* scratch(std::size_t bytes, int slot = 0);
  void* workspace();
  static constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;

  // A table of the device, made and uploaded when its key is first seen.
  using Table = std::vector<std::int32_t>;
  const std::int32_t* table(const std::vector<std::int64_t>& key,
                            const std::function<Table()>& make);
  // The first `count` values of a device's int32 array, when everything before has ended: the host
  // waits.
  std::vector<std::int32_t> download(const void* from, std::int64_t count);

  // What is enqueued after this runs after `event`.
  void wait(const DeviceEvent& event);
  void record(const DeviceEvent& event);
  void synchronise();

 private:
  GemmLibrary& library_;
  cudaStream_t stream_ = nullptr;
  DeviceMemory workspace_;
  std::map<int, DeviceMemory> scratch_;
  // Work that is under way may still use what was outgrown.
  std::vector<DeviceMemory> outgrown_;
  std::map<std::vector<std::int64_t>, DeviceMemory> tables_;
};

}  // namespace headway
