#include "kernels/microbenchmarks/channel_copy.hpp"

#include "kernels/cuda/launch.hpp"

namespace headway {
namespace {

constexpr unsigned kChannelThreads = 512;  // of a NCCL block for large messages (NCCL_NTHREADS)

__global__ void copy_kernel(uint4* to, const uint4* from, std::int64_t words, int rounds) {
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  for (int round = 0; round < rounds; ++round) {
    for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < words;
         i += stride) {
      to[i] = from[i];
    }
  }
}

}  // namespace

void copy_by_channels(void* to, const void* from, std::int64_t bytes, int channels, int rounds,
                      cudaStream_t stream) {
  launch(copy_kernel, dim3(static_cast<unsigned>(channels)), kChannelThreads, stream,
         static_cast<uint4*>(to), static_cast<const uint4*>(from),
         bytes / static_cast<std::int64_t>(sizeof(uint4)), rounds);
}

}  // namespace headway
