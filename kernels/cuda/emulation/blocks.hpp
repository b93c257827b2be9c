// Runs CUDA's blocks and streams on the host, for tests: a block's threads are fibers that give way
// at barriers and warp shuffles, blocks run one after another, and a stream is a queue of work that
// nobody touches before somebody waits. Which stream goes on first is then chosen against the
// issue order, so that whatever was not ordered by an event is found out of order. It checks
// results and barriers, not speed. Include it only through kernels/cuda/launch.hpp.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>

#undef __shared__
#define __shared__ static  // blocks run one at a time
#undef __launch_bounds__
#define __launch_bounds__(...)

namespace headway::emulation {

// What a running kernel sees of itself.
struct Indices {
  uint3 thread{}, block{};
  dim3 threads{}, blocks{};
};
extern Indices indices;

void enqueue(cudaStream_t stream, std::function<void()> work);
// Runs `body` as every thread of every block. Aborts the process with a message where threads of a
// block wait at different barriers for each other.
void run_blocks(dim3 blocks, unsigned threads, const std::function<void()>& body);

// A barrier of all threads of the block that have not returned.
void block_barrier();
// Every lane gives eight bytes and takes those of another lane of its warp. All lanes take part.
std::uint64_t exchange(std::uint64_t own, unsigned from_lane);

template <typename T>
T shuffled(T value, unsigned from_lane) {
  static_assert(sizeof(T) <= sizeof(std::uint64_t));
  std::uint64_t bits = 0;
  __builtin_memcpy(&bits, &value, sizeof(T));
  bits = exchange(bits, from_lane);
  __builtin_memcpy(&value, &bits, sizeof(T));
  return value;
}

}  // namespace headway::emulation

#define threadIdx headway::emulation::indices.thread
#define blockIdx headway::emulation::indices.block
#define blockDim headway::emulation::indices.threads
#define gridDim headway::emulation::indices.blocks

inline void __syncthreads() { headway::emulation::block_barrier(); }
template <typename T>
T __shfl_xor_sync(unsigned, T value, int lanes) {
  return headway::emulation::shuffled(value, (threadIdx.x % 32) ^ static_cast<unsigned>(lanes));
}
