// CUDA's runtime as far as this project calls it, on the host. See blocks.hpp.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "kernels/cuda/emulation/blocks.hpp"

struct CUevent_st {
  std::uint64_t recorded = 0, completed = 0;  // how often
  std::uint64_t tick = 0;                     // when it was completed last
};

struct CUstream_st {
  struct Item {
    CUevent_st* awaited = nullptr;
    std::uint64_t version = 0;  // of the awaited event
    std::function<void()> work;
    bool ready() const { return awaited == nullptr || awaited->completed >= version; }
  };
  std::deque<Item> items;
};

namespace headway::emulation {
namespace {

class Device {
 public:
  static Device& get() {
    static Device device;
    return device;
  }

  CUstream_st* add_stream() { return streams_.emplace_back(std::make_unique<CUstream_st>()).get(); }
  void remove_stream(CUstream_st* stream) {
    run_until([&] { return stream->items.empty(); });
    std::erase_if(streams_, [&](const auto& each) { return each.get() == stream; });
  }

  // Goes on with any stream that can until `done` holds.
  template <typename Done>
  void run_until(Done done) {
    while (!done()) {
      if (!step()) {
        std::fputs("emulation: streams wait for events that nobody has recorded\n", stderr);
        std::abort();
      }
    }
  }
  void run_all() {
    run_until([&] {
      for (const auto& stream : streams_) {
        if (!stream->items.empty()) return false;
      }
      return true;
    });
  }

  std::uint64_t next_tick() { return ++tick_; }
  void pin(void* memory, std::size_t bytes) { pinned_[memory] = bytes; }
  void unpin(void* memory) { pinned_.erase(memory); }
  bool is_pinned(const void* at) const {
    auto after = pinned_.upper_bound(const_cast<void*>(at));
    if (after == pinned_.begin()) return false;
    --after;
    return static_cast<const char*>(at) < static_cast<const char*>(after->first) + after->second;
  }

 private:
  bool step() {
    std::vector<CUstream_st*> ready;
    for (const auto& stream : streams_) {
      if (!stream->items.empty() && stream->items.front().ready()) ready.push_back(stream.get());
    }
    if (ready.empty()) return false;
    // Knuth's multiplier (The Art of Computer Programming 2, section 3.3.4): any order will do.
    random_ = random_ * 6364136223846793005ULL + 1442695040888963407ULL;
    CUstream_st* stream = ready[(random_ >> 33) % ready.size()];
    const CUstream_st::Item item = std::move(stream->items.front());
    stream->items.pop_front();
    ++tick_;
    if (item.work) item.work();
    return true;
  }

  std::vector<std::unique_ptr<CUstream_st>> streams_;
  std::map<void*, std::size_t> pinned_;
  std::uint64_t tick_ = 0, random_ = 1;
};

Device& device() { return Device::get(); }

}  // namespace

void enqueue(cudaStream_t stream, std::function<void()> work) {
  if (stream == nullptr) {
    work();
  } else {
    stream->items.push_back({nullptr, 0, std::move(work)});
  }
}

}  // namespace headway::emulation

using headway::emulation::device;
using headway::emulation::enqueue;

extern "C" {

const char* CUDARTAPI cudaGetErrorName(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation" : "cudaError";
}
const char* CUDARTAPI cudaGetErrorString(cudaError_t) { return "emulated"; }
cudaError_t CUDARTAPI cudaGetLastError() { return cudaSuccess; }
cudaError_t CUDARTAPI cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaSetDevice(int) { return cudaSuccess; }
cudaError_t CUDARTAPI cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  std::strcpy(properties->name, "emulated");
  properties->multiProcessorCount = 4;
  properties->major = 9;
  properties->l2CacheSize = 1 << 20;
  properties->totalGlobalMem = std::size_t{1} << 32;
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
// No driver, so no green contexts.
cudaError_t CUDARTAPI cudaGetDriverEntryPointByVersion(const char*, void** function, unsigned,
                                                       unsigned long long,
                                                       cudaDriverEntryPointQueryResult* result) {
  *function = nullptr;
  *result = cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *total = std::size_t{1} << 32;
  *free = *total;
  return cudaSuccess;
}

cudaError_t CUDARTAPI cudaMalloc(void** memory, std::size_t bytes) {
  *memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  if (*memory == nullptr) return cudaErrorMemoryAllocation;
  std::memset(*memory, 0xff, bytes);  // NaN: nobody may count on zeros
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaFree(void* memory) {
  device().run_all();
  std::free(memory);
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaMallocHost(void** memory, std::size_t bytes) {
  *memory = std::malloc(bytes);
  device().pin(*memory, bytes);
  return *memory == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}
cudaError_t CUDARTAPI cudaFreeHost(void* memory) {
  device().run_all();
  device().unpin(memory);
  std::free(memory);
  return cudaSuccess;
}

cudaError_t CUDARTAPI cudaMemcpyAsync(void* to, const void* from, std::size_t bytes,
                                      cudaMemcpyKind kind, cudaStream_t stream) {
  if (kind == cudaMemcpyHostToDevice && !device().is_pinned(from)) {
    const char* first = static_cast<const char*>(from);
    std::vector<char> staged(first, first + bytes);
    enqueue(stream, [=, held = std::move(staged)] { std::memcpy(to, held.data(), bytes); });
    return cudaSuccess;
  }
  enqueue(stream, [=] { std::memcpy(to, from, bytes); });
  if (kind == cudaMemcpyDeviceToHost && !device().is_pinned(to))
    return cudaStreamSynchronize(stream);
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaMemsetAsync(void* memory, int value, std::size_t bytes,
                                      cudaStream_t stream) {
  enqueue(stream, [=] { std::memset(memory, value, bytes); });
  return cudaSuccess;
}

cudaError_t CUDARTAPI cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = device().add_stream();
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaStreamDestroy(cudaStream_t stream) {
  device().remove_stream(stream);
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaStreamSynchronize(cudaStream_t stream) {
  if (stream != nullptr) device().run_until([&] { return stream->items.empty(); });
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaDeviceSynchronize() {
  device().run_all();
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (event->recorded > 0) stream->items.push_back({event, event->recorded, {}});
  return cudaSuccess;
}

cudaError_t CUDARTAPI cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new CUevent_st;
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaEventDestroy(cudaEvent_t event) {
  device().run_all();
  delete event;
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const std::uint64_t version = ++event->recorded;
  enqueue(stream, [=] {
    event->completed = version;
    event->tick = device().next_tick();
  });
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaEventSynchronize(cudaEvent_t event) {
  device().run_until([&] { return event->completed >= event->recorded; });
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  if (from->completed < from->recorded || to->completed < to->recorded) return cudaErrorNotReady;
  *milliseconds = static_cast<float>(static_cast<double>(to->tick - from->tick) * 1e-3);
  return cudaSuccess;
}

}  // extern "C"
