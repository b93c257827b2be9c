// How several ranks share one device: each has its own multiprocessors, by a green context
// (CUDA 12.4 and later), and all the streams of a rank belong to its own. Where the driver gives
// none, ranks share all multiprocessors, and shared_why() says so.
#pragma once

#include <cuda_runtime_api.h>

#include <string>
#include <vector>

namespace headway {

class DevicePartition {
 public:
  // For `ranks` equal shares of device 0. Throws DeviceFailure where there is no device.
  explicit DevicePartition(int ranks);
  DevicePartition(const DevicePartition&) = delete;
  DevicePartition& operator=(const DevicePartition&) = delete;
  // REQUIRES: its streams have been destroyed.
  ~DevicePartition();

  // A new stream of a rank, which the caller owns.
  cudaStream_t make_stream(int rank);
  // Multiprocessors that a rank has: its own, or all.
  int multiprocessors() const { return multiprocessors_; }
  // Why ranks share all multiprocessors; empty where each has its own, or there is only one.
  const std::string& shared_why() const { return shared_why_; }

 private:
  bool split(int ranks);

  int multiprocessors_ = 0;
  std::string shared_why_;
  std::vector<void*> contexts_;  // CUgreenCtx by rank; empty where shared
};

}  // namespace headway
