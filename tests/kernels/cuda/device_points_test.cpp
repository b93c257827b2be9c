#include "kernels/microbenchmarks/device_points.hpp"

#include <gmock/gmock.h>

#include <filesystem>
#include <set>

#include "kernels/microbenchmarks/operation_operands.hpp"
#include "sim/core/file.hpp"
#include "sim/cost/host_fit.hpp"
#include "tests/support/folders.hpp"

namespace headway {
namespace {

DevicePoints all_points(bool quick) {
  DevicePoints all;
  for (const auto& points :
       {gemm_points(quick), attention_points(quick), kernel_points(quick), optimizer_points(quick),
        copy_points(quick), collective_points(quick), overlap_points(quick), clock_points(quick)}) {
    all.insert(all.end(), points.begin(), points.end());
  }
  return all;
}

std::string file_named(const std::string& name) {
  const std::string path = binary_dir() + "/" + name;
  std::filesystem::remove(path);
  return path;
}

TEST(DevicePoints, EveryNameIsUniqueAndUnderstoodByCalibrate) {
  for (const bool quick : {true, false}) {
    const std::string path = file_named("device-points.json");
    std::set<std::string> names;
    std::string list;
    for (const DevicePoint& point : all_points(quick)) {
      EXPECT_TRUE(names.insert(point.name).second) << point.name;
      list += std::string(list.empty() ? "" : ",") + R"({"name": ")" + point.name +
              R"(", "real_time": 1, "time_unit": "us"})";
    }
    write_file(path, R"({"context": {}, "benchmarks": [)" + list + "]}");
    const HostMeasurements measured = read_host_measurements({path});
    EXPECT_FALSE(measured.gemms.at(DataType::kBf16).empty());
    EXPECT_FALSE(measured.attention.empty());
    EXPECT_FALSE(measured.kernels.empty());
    EXPECT_TRUE(measured.transports.at("device").collectives.contains(CollectiveKind::kSend));
  }
}

TEST(DevicePoints, WhatNobodyHasPublishedComesFirst) {
  EXPECT_THAT(gemm_points(false).front().name, testing::StartsWith("gemm/weight_gradient/bf16"));
  EXPECT_THAT(attention_points(false).front().name, testing::StartsWith("attention/backward"));
}

TEST(PointFile, GoesOnWhereItWasStopped) {
  const std::string path = file_named("points.json");
  {
    PointFile file(path, {{"device", "NVIDIA H200"}});
    file.add({"gemm/forward/bf16/1/1/1", 2e-6, {{"spread", 0.5}}, ""});
    file.add({"gemm/forward/fp8/1/1/1", 0, {}, "not supported"});
  }
  PointFile again(path, {{"device", "NVIDIA H200"}});
  EXPECT_TRUE(again.has("gemm/forward/bf16/1/1/1"));
  EXPECT_TRUE(again.has("gemm/forward/fp8/1/1/1"));
  EXPECT_FALSE(again.has("gemm/forward/bf16/2/2/2"));
  EXPECT_DOUBLE_EQ(again.points().front().seconds, 2e-6);
  EXPECT_EQ(again.points().front().counters.at("spread"), 0.5);
  // What could not be measured prices nothing.
  EXPECT_EQ(read_host_measurements({path}).gemms.at(DataType::kBf16).size(), 1U);
  EXPECT_FALSE(read_host_measurements({path}).gemms.contains(DataType::kFp8));
}

// On the emulated device, whose time is a count of what it did.
TEST(DeviceSampling, MeasuresAnOperationOnceItIsRight) {
  DeviceSampling sampling(true);
  const OperationBenchmark of =
      gemm_benchmark(GemmRole::kWeightGradient, DataType::kBf16, DataType::kFp32, 8, 8, 8);
  const MeasuredPoint point = sampling.sample(of, Load::kBurst, Caches::kHot, &of);
  EXPECT_EQ(point.name, of.name);
  EXPECT_GT(point.seconds, 0);
  EXPECT_EQ(point.counters.at("bytes"), 8 * 8 * (2 + 2 + 4));
}

}  // namespace
}  // namespace headway
