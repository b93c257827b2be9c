// The two shapes of most memory-bound kernels. An elementwise one is a struct with
//   template <int W> __device__ void at(std::int64_t i) const     (elements i .. i + W - 1)
// that each_element() calls for every element, by fours where all its buffers allow. A sum over the
// rows of a matrix is a struct with
//   __device__ T value(std::int64_t row, std::int64_t column) const
//   __device__ void take(std::int64_t column, T sum) const
// that sum_columns() calls, adding rows in one fixed order, so that every run gives the same bits.
#pragma once

#include "kernels/cuda/launch.hpp"

namespace headway {

template <typename Work>
__global__ void each_element_kernel(Work work, std::int64_t count, bool wide) {
  constexpr int kEach = 4;
  const std::int64_t first = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  if (!wide) {
    for (std::int64_t i = first; i < count; i += stride) work.template at<1>(i);
    return;
  }
  for (std::int64_t i = first; i < count / kEach; i += stride) work.template at<kEach>(i * kEach);
  const std::int64_t last = count / kEach * kEach + first;
  if (first < count % kEach) work.template at<1>(last);
}

template <typename Work>
void each_element(const Work& work, std::int64_t count, bool wide, cudaStream_t stream) {
  launch(each_element_kernel<Work>, blocks_for(count, wide ? 4 : 1), kThreads, stream, work, count,
         wide);
}

// A block adds up 32 columns with as many threads of a column as it has warps.
constexpr std::int64_t kSumColumns = 32;

template <typename T, typename Work>
__global__ void sum_columns_kernel(Work work, std::int64_t rows, std::int64_t columns) {
  __shared__ T sums[kThreads];
  const unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const std::int64_t column = std::int64_t{blockIdx.x} * kSumColumns + lane;
  T sum = 0;
  for (std::int64_t row = warp; column < columns && row < rows; row += kThreads / kWarp) {
    sum += work.value(row, column);
  }
  sums[threadIdx.x] = sum;
  __syncthreads();
  if (warp != 0 || column >= columns) return;
  for (unsigned other = 1; other < kThreads / kWarp; ++other) sum += sums[other * kWarp + lane];
  work.take(column, sum);
}

template <typename T, typename Work>
void sum_columns(const Work& work, std::int64_t rows, std::int64_t columns, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>((columns + kSumColumns - 1) / kSumColumns);
  launch(sum_columns_kernel<T, Work>, dim3(blocks), kThreads, stream, work, rows, columns);
}

#ifdef __CUDACC__
#define HEADWAY_DEVICE __device__
#else
#define HEADWAY_DEVICE inline
#endif

// The sum, or the largest, of one value of every thread, for every thread of the block. REQUIRES:
// all kThreads take part.
template <typename T, typename Combine>
HEADWAY_DEVICE T over_block(T value, Combine combine) {
  __shared__ T of_warp[kThreads / kWarp];
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) {
    value = combine(value, __shfl_xor_sync(0xffffffffU, value, lanes));
  }
  __syncthreads();  // an earlier call may still be read
  if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp] = value;
  __syncthreads();
  value = of_warp[0];
  for (unsigned warp = 1; warp < kThreads / kWarp; ++warp) value = combine(value, of_warp[warp]);
  return value;
}

struct Plus {
  template <typename T>
  __host__ __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct Larger {
  template <typename T>
  __host__ __device__ T operator()(T a, T b) const {
    return a < b ? b : a;
  }
};

}  // namespace headway
