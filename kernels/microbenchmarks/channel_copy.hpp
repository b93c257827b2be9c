// A copy by so many blocks of a device, as the channels of a collective are: what stands beside a
// kernel when their interference is measured.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace headway {

// Copies `bytes` (a multiple of 16) `rounds` times with `channels` blocks of 512 threads, each its
// share of every round.
void copy_by_channels(void* to, const void* from, std::int64_t bytes, int channels, int rounds,
                      cudaStream_t stream);

}  // namespace headway
