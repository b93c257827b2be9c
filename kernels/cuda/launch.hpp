// Starts a kernel on a stream, with its arguments converted to the kernel's own parameter types.
// The kernels of this folder are compiled by nvcc for devices and, unchanged, by the host's
// compiler for the emulation (kernels/cuda/emulation), which is how their index arithmetic and
// their barriers are tested where there is no device.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <tuple>

#include "kernels/cuda/cuda_error.hpp"
#ifndef __CUDACC__
#include "kernels/cuda/emulation/blocks.hpp"
#endif

namespace headway {

// Threads of a block, unless a kernel says otherwise: four warps' worth of reductions at hand, and
// a multiprocessor of every generation holds at least eight such blocks.
constexpr unsigned kThreads = 256;
constexpr unsigned kWarp = 32;

#ifdef __CUDACC__
template <typename... Parameters, typename... Arguments>
void launch(void (*kernel)(Parameters...), dim3 blocks, unsigned threads, cudaStream_t stream,
            Arguments... arguments) {
  if (blocks.x == 0 || blocks.y == 0 || blocks.z == 0) return;
  std::tuple<Parameters...> held(static_cast<Parameters>(arguments)...);
  std::apply(
      [&](auto&... each) {
        void* pointers[] = {static_cast<void*>(&each)...};
        checked(cudaLaunchKernel(reinterpret_cast<const void*>(kernel), blocks, dim3(threads),
                                 pointers, 0, stream));
      },
      held);
}
#else
template <typename... Parameters, typename... Arguments>
void launch(void (*kernel)(Parameters...), dim3 blocks, unsigned threads, cudaStream_t stream,
            Arguments... arguments) {
  if (blocks.x == 0 || blocks.y == 0 || blocks.z == 0) return;
  std::tuple<Parameters...> held(static_cast<Parameters>(arguments)...);
  emulation::enqueue(
      stream, [=] { emulation::run_blocks(blocks, threads, [&] { std::apply(kernel, held); }); });
}
#endif

// Blocks for a grid-stride loop over `count` items, of which a thread takes `each` at a time:
// enough to fill a device several times, few enough that a thread has several turns of a large one.
inline dim3 blocks_for(std::int64_t count, std::int64_t each = 1) {
  constexpr std::int64_t kMostBlocks = 2048;
  const std::int64_t items = (count + each - 1) / each;
  return {static_cast<unsigned>(
      std::min(kMostBlocks, (items + std::int64_t{kThreads} - 1) / std::int64_t{kThreads}))};
}

// A block for each row, of which a block takes several where there are very many.
inline dim3 row_blocks(std::int64_t rows) {
  constexpr std::int64_t kMost = 1 << 16;
  return {static_cast<unsigned>(std::min(rows, kMost))};
}

}  // namespace headway
