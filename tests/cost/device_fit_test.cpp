#include "sim/cost/device_fit.hpp"

#include <gmock/gmock.h>

#include "sim/core/file.hpp"
#include "tests/support/folders.hpp"

namespace headway {
namespace {

// As headway-measure-cuda writes them: a copy of 2 bytes there and back at 4 TB/s, an empty kernel
// in 2 us, an all-reduce of two ranks on one device.
std::string measured_device() {
  const std::string path = binary_dir() + "/device-measurements.json";
  write_file(path, R"({"context": {"device": "NVIDIA H200"}, "benchmarks": [
    {"name": "kernel/copy/bf16/8192/8192", "real_time": 67.108864, "time_unit": "us"},
    {"name": "launch/kernel", "real_time": 2, "time_unit": "us"},
    {"name": "launch/graph/10", "real_time": 15, "time_unit": "us"},
    {"name": "gemm_hot/forward/bf16/1024/4096/4096", "real_time": 50, "time_unit": "us"},
    {"name": "gemm/forward/fp8/64/64/64", "error_occurred": true, "error_message": "none"},
    {"name": "collective/all_reduce/device/2/1048576", "real_time": 5, "time_unit": "us"},
    {"name": "collective/all_reduce/device/2/4194304", "real_time": 9, "time_unit": "us"}]})");
  return path;
}

TEST(DeviceFit, TakesWhatWasMeasuredAndKeepsTheRest) {
  const HostMeasurements measured = read_host_measurements({measured_device()});
  const Profile base = read_profile("h200");
  const Profile profile = fit_device(measured, base, "measured on NVIDIA H200");
  ASSERT_EQ(profile.memory.kernels.size(), 2U);  // fused and not
  EXPECT_NEAR(profile.memory.kernels.front().rate.bytes_per_second, 4e12, 1e6);
  EXPECT_EQ(profile.memory.per_kernel, Time::from_microseconds(2));
  EXPECT_EQ(profile.gemms.size(), base.gemms.size());
  EXPECT_EQ(profile.gemms.front().source, base.gemms.front().source);
  bool found = false;
  for (const CollectiveCurve& curve : profile.collectives) {
    if (curve.kind != CollectiveKind::kAllReduce || curve.ranks != 2 || curve.nodes != 1) continue;
    EXPECT_FALSE(found);
    EXPECT_NEAR(curve.time_us.at(1048576), 5, 1e-9);
    found = true;
  }
  EXPECT_TRUE(found);
}

TEST(DeviceFit, SaysWhatIsMissing) {
  EXPECT_THROW(fit_device({}, read_profile("h200"), ""), InvalidInput);
  EXPECT_EQ(device_of_measurements(measured_device()), "NVIDIA H200");
  const std::string other = binary_dir() + "/no-device.json";
  write_file(other, R"({"context": {}, "benchmarks": []})");
  EXPECT_THROW(device_of_measurements(other), InvalidInput);
}

}  // namespace
}  // namespace headway
