// That the emulation of a device tells right from wrong: what the tests of the kernels stand on.
#include <gmock/gmock.h>

#include "kernels/cuda/device_stream.hpp"
#include "kernels/cuda/each.hpp"

namespace headway {
namespace {

__global__ void sums_kernel(const int* values, int* sums) {
  sums[threadIdx.x] = over_block(values[threadIdx.x], Plus{});
}

TEST(Emulation, ThreadsOfABlockMeetAtShufflesAndBarriers) {
  std::vector<int> values(kThreads), sums(kThreads);
  for (unsigned t = 0; t < kThreads; ++t) values[t] = static_cast<int>(t);
  launch(sums_kernel, dim3(2), kThreads, nullptr, values.data(), sums.data());
  EXPECT_THAT(sums, testing::Each(255 * 256 / 2));
}

__global__ void divergent_kernel() {
  if (threadIdx.x < 40) __syncthreads();
  over_block(1, Plus{});
}

TEST(EmulationDeathTest, ABarrierThatOnlySomeThreadsReachIsFound) {
  EXPECT_DEATH(launch(divergent_kernel, dim3(1), kThreads, nullptr), "wait for each other");
}

// Two streams that nothing orders are played in the other order sooner or later.
TEST(Emulation, WhatNoEventOrdersIsFoundOutOfOrder) {
  GemmLibrary library;
  DeviceStream first(library), second(library);
  DeviceEvent event(false);
  bool out_of_order = false;
  for (int i = 0; i < 100; ++i) {
    for (const bool ordered : {true, false}) {
      bool done = false, seen = false;
      emulation::enqueue(first.get(), [&] { done = true; });
      if (ordered) {
        first.record(event);
        second.wait(event);
      }
      emulation::enqueue(second.get(), [&] { seen = done; });
      second.synchronise();
      first.synchronise();
      if (ordered) {
        ASSERT_TRUE(seen);
      }
      out_of_order = out_of_order || !seen;
    }
  }
  EXPECT_TRUE(out_of_order);
}

}  // namespace
}  // namespace headway
