// What a device is on paper: peaks, memory, multiprocessors. What it really reaches stands in its
// profile (sim/cost). Figures: facts section 6, the vendors' data sheets.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "sim/core/units.hpp"
#include "sim/model/precision.hpp"

namespace headway {

struct Device {
  std::string name;   // "a100-sxm-80gb", as the profiles are named
  std::string title;  // "NVIDIA A100-SXM4-80GB"
  std::string source;
  std::map<DataType, FlopRate> dense_peak;  // by GEMM input type
  Bytes memory;
  Bandwidth memory_bandwidth;
  Bytes l2_cache;
  int multiprocessors = 0;
  int compute_capability = 0;  // 80, 90, 100; 0: not NVIDIA
  Bandwidth nvlink;            // one direction; 0: none
  Bandwidth pcie;
  double watts = 0;
};

// nullptr where unknown.
const Device* find_device(std::string_view name);
const std::vector<Device>& devices();

}  // namespace headway
