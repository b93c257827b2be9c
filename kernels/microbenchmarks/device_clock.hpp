// The device's clocks, as NVIDIA's management library reads them beside a measurement: what a
// sample was worth can be told from the file alone. The library is looked up when it is needed;
// without it the readings are absent.
#pragma once

#include <cstdint>
#include <optional>

namespace headway {

struct ClockReading {
  unsigned multiprocessor_mhz = 0, memory_mhz = 0;
  // Why the clock is lower than it could be: NVML's bits (nvmlClocksEventReasons): 0x4 power cap,
  // 0x8 hardware, 0x20 software thermal, 0x40 hardware thermal.
  std::uint64_t reasons = 0;
  unsigned temperature_c = 0;
  double power_w = 0;
};

// Of the first device.
std::optional<ClockReading> read_clock();

}  // namespace headway
