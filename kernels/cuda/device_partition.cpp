#include "kernels/cuda/device_partition.hpp"

#include <cuda.h>

#include "kernels/cuda/cuda_error.hpp"

namespace headway {
namespace {

// The driver's functions are looked up when they are needed: a program that links the driver does
// not start where there is none.
constexpr unsigned kGreenContexts = 12040;  // the version that has them

template <typename Function>
Function driver_function(const char* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion(name, &found, kGreenContexts, cudaEnableDefault, &result);
  if (error != cudaSuccess || result != cudaDriverEntryPointSuccess) return nullptr;
  return reinterpret_cast<Function>(found);
}

struct Driver {
  decltype(&cuDeviceGetDevResource) resource =
      driver_function<decltype(&cuDeviceGetDevResource)>("cuDeviceGetDevResource");
  decltype(&cuDevSmResourceSplitByCount) split =
      driver_function<decltype(&cuDevSmResourceSplitByCount)>("cuDevSmResourceSplitByCount");
  decltype(&cuDevResourceGenerateDesc) describe =
      driver_function<decltype(&cuDevResourceGenerateDesc)>("cuDevResourceGenerateDesc");
  decltype(&cuGreenCtxCreate) create =
      driver_function<decltype(&cuGreenCtxCreate)>("cuGreenCtxCreate");
  decltype(&cuGreenCtxDestroy) destroy =
      driver_function<decltype(&cuGreenCtxDestroy)>("cuGreenCtxDestroy");
  decltype(&cuGreenCtxStreamCreate) stream =
      driver_function<decltype(&cuGreenCtxStreamCreate)>("cuGreenCtxStreamCreate");

  bool complete() const {
    return resource != nullptr && split != nullptr && describe != nullptr && create != nullptr &&
           destroy != nullptr && stream != nullptr;
  }
};

const Driver& driver() {
  static const Driver kDriver;
  return kDriver;
}

}  // namespace

DevicePartition::DevicePartition(int ranks) {
  require_device();
  cudaDeviceProp properties{};
  checked(cudaGetDeviceProperties(&properties, 0));
  checked(cudaSetDevice(0));
  checked(cudaFree(nullptr));  // makes the device's context
  multiprocessors_ = properties.multiProcessorCount;
  if (ranks > 1 && !split(ranks)) {
    shared_why_ = "the driver gives no green contexts for " + std::to_string(ranks) +
                  " ranks: they share all " + std::to_string(multiprocessors_) + " multiprocessors";
  }
}

bool DevicePartition::split(int ranks) {
  if (!driver().complete()) return false;
  CUdevResource whole{};
  if (driver().resource(0, &whole, CU_DEV_RESOURCE_TYPE_SM) != CUDA_SUCCESS) return false;
  std::vector<CUdevResource> shares(static_cast<std::size_t>(ranks));
  auto count = static_cast<unsigned>(ranks);
  CUdevResource rest{};
  const unsigned each = whole.sm.smCount / count;
  if (driver().split(shares.data(), &count, &whole, &rest, 0, each) != CUDA_SUCCESS ||
      count != static_cast<unsigned>(ranks)) {
    // The driver rounds a share up to what can be cut apart: so many do not fit. Ask for less.
    constexpr unsigned kGranularity = 8;  // of compute capability 9.0 (cuDevSmResourceSplitByCount)
    count = static_cast<unsigned>(ranks);
    const unsigned less = each / kGranularity * kGranularity;
    if (less == 0 ||
        driver().split(shares.data(), &count, &whole, &rest, 0, less) != CUDA_SUCCESS ||
        count != static_cast<unsigned>(ranks)) {
      return false;
    }
  }
  for (CUdevResource& share : shares) {
    CUdevResourceDesc description = nullptr;
    CUgreenCtx context = nullptr;
    if (driver().describe(&description, &share, 1) != CUDA_SUCCESS ||
        driver().create(&context, description, 0, CU_GREEN_CTX_DEFAULT_STREAM) != CUDA_SUCCESS) {
      for (void* made : contexts_)
        static_cast<void>(driver().destroy(static_cast<CUgreenCtx>(made)));
      contexts_.clear();
      return false;
    }
    contexts_.push_back(context);
  }
  multiprocessors_ = static_cast<int>(shares.front().sm.smCount);
  return true;
}

DevicePartition::~DevicePartition() {
  for (void* context : contexts_) {
    static_cast<void>(driver().destroy(static_cast<CUgreenCtx>(context)));
  }
}

cudaStream_t DevicePartition::make_stream(int rank) {
  if (contexts_.empty()) {
    cudaStream_t stream = nullptr;
    checked(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
  }
  CUstream stream = nullptr;
  auto* context = static_cast<CUgreenCtx>(contexts_[static_cast<std::size_t>(rank)]);
  const CUresult result = driver().stream(&stream, context, CU_STREAM_NON_BLOCKING, 0);
  if (result != CUDA_SUCCESS) {
    throw DeviceFailure("cuGreenCtxStreamCreate: error " +
                        std::to_string(static_cast<int>(result)));
  }
  return stream;
}

}  // namespace headway
