// The profile of a CUDA device as this project's own kernels use it, from what headway-measure-cuda
// measured: multiplications by type, attention, memory-bound kernels by a rate each, launches, and
// what ranks that share the device exchange. A shipped profile of the device says what was not
// measured. Where profiles of frameworks tell how fast FlashAttention is, this one tells how fast
// the kernels of `headway execute --backend cuda` are.
#pragma once

#include "sim/cost/host_fit.hpp"

namespace headway {

// `base`: a profile of the same device. Throws InvalidInput where neither multiplications nor
// kernels were measured enough to be fitted.
Profile fit_device(const HostMeasurements& measured, const Profile& base,
                   const std::string& source);

// The device that a measurement file names ("NVIDIA H200"). Throws InvalidInput where it names
// none.
std::string device_of_measurements(const std::string& file);

}  // namespace headway
