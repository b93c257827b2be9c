// What is measured on a device, thing by thing, each point with a name and how to measure it. A
// source per thing; the program that runs them is device_main.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernels/microbenchmarks/device_sampling.hpp"

namespace headway {

struct DevicePoint {
  std::string name;
  std::function<MeasuredPoint(DeviceSampling&)> measure;
};
using DevicePoints = std::vector<DevicePoint>;

// Fewer points where `quick`. Names are those of the CPU's benchmarks where both measure a thing:
//   gemm/ROLE/TYPE/TOKENS/OUTPUTS/INPUTS      weight gradients are added in fp32; cold, burst
//   gemm_hot/..., gemm_sustained/...           the same with operands in the caches; under load
//   grouped_gemm/ROLE/TYPE/GROUPS/TOKENS/OUTPUTS/INPUTS   tokens of each group
DevicePoints gemm_points(bool quick);
//   attention/PASS/TYPE/BATCH/HEADS/KV_HEADS/SEQUENCE/HEAD_DIM
DevicePoints attention_points(bool quick);
//   kernel/KIND/TYPE/ROWS/COLUMNS
DevicePoints kernel_points(bool quick);
DevicePoints optimizer_points(bool quick);
//   memory_copy/device|to_host|to_device/BYTES
DevicePoints copy_points(bool quick);
//   launch/kernel (an empty one after another), launch/host (the host's time for it),
//   launch/graph/KERNELS (of one graph), issue/device (an operation by the executor)
DevicePoints launch_points(bool quick);
//   collective/KIND/device/2/BYTES, send/device/BYTES   among two ranks of this device
DevicePoints collective_points(bool quick);
//   overlap/WHAT/channels/CHANNELS/BYTES, overlap/WHAT/to_host/BYTES: counters alone_us, beside_us
DevicePoints overlap_points(bool quick);
//   clock/SECOND: a multiplication under load, second after second
DevicePoints clock_points(bool quick);

}  // namespace headway
