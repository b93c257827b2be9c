// Every call of CUDA and cuBLASLt passes through here: what does not succeed becomes an exception
// that names the call's place and the library's own words. Nothing of a device is used unchecked.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <source_location>
#include <stdexcept>
#include <string>

namespace headway {

// The device, its driver or a library failed or refused.
class DeviceFailure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

inline std::string place_of(const std::source_location& where) {
  std::string file = where.file_name();
  file = file.substr(file.rfind('/') + 1);
  return file + ":" + std::to_string(where.line());
}

inline void checked(cudaError_t error,
                    const std::source_location where = std::source_location::current()) {
  if (error == cudaSuccess) return;
  throw DeviceFailure(place_of(where) + ": " + cudaGetErrorName(error) + ": " +
                      cudaGetErrorString(error));
}

inline void checked(cublasStatus_t status,
                    const std::source_location where = std::source_location::current()) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw DeviceFailure(place_of(where) + ": cuBLASLt status " +
                      std::to_string(static_cast<int>(status)));
}

// Throws DeviceFailure where this machine has no device, or no driver for it.
inline void require_device() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess && count > 0) return;
  throw DeviceFailure(std::string("there is no CUDA device here") +
                      (error == cudaSuccess ? "" : std::string(": ") + cudaGetErrorString(error)));
}

}  // namespace headway
