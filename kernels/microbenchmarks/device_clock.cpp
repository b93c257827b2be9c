#include "kernels/microbenchmarks/device_clock.hpp"

#include <dlfcn.h>

namespace headway {
namespace {

// As nvml.h declares them; its numbers are part of the library's stable interface.
constexpr int kSuccess = 0;
constexpr int kMultiprocessorClock = 1, kMemoryClock = 2;  // nvmlClockType_t
constexpr int kDeviceTemperature = 0;                      // nvmlTemperatureSensors_t

class ManagementLibrary {
 public:
  ManagementLibrary() : library_(dlopen("libnvidia-ml.so.1", RTLD_LAZY)) {
    if (library_ == nullptr) return;
    const auto initialise = function<int (*)()>("nvmlInit_v2");
    const auto handle = function<int (*)(unsigned, void**)>("nvmlDeviceGetHandleByIndex_v2");
    clock_ = function<int (*)(void*, int, unsigned*)>("nvmlDeviceGetClockInfo");
    reasons_ = function<Reasons>("nvmlDeviceGetCurrentClocksEventReasons");
    if (reasons_ == nullptr) {  // its name before driver 535
      reasons_ = function<Reasons>("nvmlDeviceGetCurrentClocksThrottleReasons");
    }
    temperature_ = function<int (*)(void*, int, unsigned*)>("nvmlDeviceGetTemperature");
    power_ = function<int (*)(void*, unsigned*)>("nvmlDeviceGetPowerUsage");
    ready_ = initialise != nullptr && handle != nullptr && clock_ != nullptr &&
             initialise() == kSuccess && handle(0, &device_) == kSuccess;
  }

  std::optional<ClockReading> read() const {
    ClockReading reading;
    if (!ready_ || clock_(device_, kMultiprocessorClock, &reading.multiprocessor_mhz) != kSuccess) {
      return std::nullopt;
    }
    unsigned milliwatts = 0;
    unsigned long long reasons = 0;
    static_cast<void>(clock_(device_, kMemoryClock, &reading.memory_mhz));
    if (reasons_ != nullptr) static_cast<void>(reasons_(device_, &reasons));
    if (temperature_ != nullptr) {
      static_cast<void>(temperature_(device_, kDeviceTemperature, &reading.temperature_c));
    }
    if (power_ != nullptr) static_cast<void>(power_(device_, &milliwatts));
    reading.reasons = reasons;
    reading.power_w = milliwatts * 1e-3;
    return reading;
  }

 private:
  using Reasons = int (*)(void*, unsigned long long*);

  template <typename Function>
  Function function(const char* name) const {
    return reinterpret_cast<Function>(dlsym(library_, name));
  }

  void* library_;
  void* device_ = nullptr;
  bool ready_ = false;
  int (*clock_)(void*, int, unsigned*) = nullptr;
  int (*temperature_)(void*, int, unsigned*) = nullptr;
  int (*power_)(void*, unsigned*) = nullptr;
  Reasons reasons_ = nullptr;
};

}  // namespace

std::optional<ClockReading> read_clock() {
  static const ManagementLibrary kLibrary;
  return kLibrary.read();
}

}  // namespace headway
