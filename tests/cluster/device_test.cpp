#include "sim/cluster/device.hpp"

#include <gmock/gmock.h>

#include <set>

namespace headway {
namespace {

double tera(const Device& device, DataType type) {
  const auto rate = device.dense_peak.find(type);
  return rate == device.dense_peak.end() ? 0 : rate->second.per_second / 1e12;
}

TEST(Device, HasTheFiguresOfTheDataSheets) {
  // facts section 6: dense bf16 TFLOP/s, memory GB/s, multiprocessors, NVLink GB/s one way, watts.
  struct Row {
    const char* name;
    double half, memory, sms, nvlink, watts;
  };
  const Row rows[] = {
      {"v100-sxm2-16gb", 125, 900, 80, 150, 300},     {"v100-sxm2-32gb", 125, 900, 80, 150, 300},
      {"a100-sxm-40gb", 312, 1555, 108, 300, 400},    {"a100-sxm-80gb", 312, 2039, 108, 300, 400},
      {"a100-pcie-80gb", 312, 1935, 108, 0, 300},     {"h100-sxm", 989.4, 3350, 132, 450, 700},
      {"h100-96gb-500w", 989.4, 2400, 132, 450, 500}, {"h800", 989.4, 3350, 132, 200, 700},
      {"h200", 989.4, 4800, 132, 450, 700},           {"b200", 2250, 8000, 148, 900, 1000},
      {"gb200", 2500, 8000, 148, 900, 1200},
  };
  for (const Row& row : rows) {
    const Device* device = find_device(row.name);
    ASSERT_NE(device, nullptr) << row.name;
    EXPECT_DOUBLE_EQ(tera(*device, DataType::kFp16), row.half) << row.name;
    EXPECT_DOUBLE_EQ(device->memory_bandwidth.bytes_per_second, row.memory * 1e9) << row.name;
    EXPECT_EQ(device->multiprocessors, row.sms) << row.name;
    EXPECT_DOUBLE_EQ(device->nvlink.bytes_per_second, row.nvlink * 1e9) << row.name;
    EXPECT_EQ(device->watts, row.watts) << row.name;
  }
}

TEST(Device, OfVoltaHasNoBf16AndOfAmpereNoFp8) {
  EXPECT_EQ(tera(*find_device("v100-sxm2-32gb"), DataType::kBf16), 0);
  EXPECT_EQ(tera(*find_device("a100-sxm-80gb"), DataType::kFp8), 0);
  EXPECT_EQ(tera(*find_device("h100-sxm"), DataType::kFp8), 1979);
  EXPECT_EQ(tera(*find_device("b200"), DataType::kFp4), 9000);
}

TEST(Device, HasAsMuchMemoryAsAFrameworkCanAskFor) {
  // Below the nominal size, by less than 3 %.
  const std::pair<const char*, double> nominal[] = {{"v100-sxm2-16gb", 16}, {"v100-sxm2-32gb", 32},
                                                    {"a100-sxm-40gb", 40},  {"a100-sxm-80gb", 80},
                                                    {"h100-sxm", 80},       {"mi300x", 192}};
  for (const auto& [name, size] : nominal) {
    EXPECT_LT(find_device(name)->memory.gib(), size) << name;
    EXPECT_GT(find_device(name)->memory.gib(), size * 0.97) << name;
  }
}

TEST(Device, IsNamedOnceAndSaysWhereItsFiguresComeFrom) {
  std::set<std::string> names;
  for (const Device& device : devices()) {
    EXPECT_TRUE(names.insert(device.name).second) << device.name;
    EXPECT_FALSE(device.source.empty()) << device.name;
    EXPECT_FALSE(device.title.empty()) << device.name;
    EXPECT_GT(device.memory.count, 0) << device.name;
    EXPECT_GT(device.multiprocessors, 0) << device.name;
    EXPECT_GT(device.l2_cache.count, 0) << device.name;
    EXPECT_GT(device.memory_bandwidth.bytes_per_second, 0) << device.name;
  }
  EXPECT_THAT(names, testing::IsSupersetOf({"b300", "gb300", "mi300x", "host-cpu"}));
  EXPECT_EQ(find_device("a100"), nullptr);
}

}  // namespace
}  // namespace headway
