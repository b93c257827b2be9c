#include "sim/cost/profile.hpp"

#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/cluster/topology.hpp"
#include "sim/core/shipped_files.hpp"
#include "sim/cost/compute_cost.hpp"

namespace headway {
namespace {

using ::testing::HasSubstr;

// A whole profile, small enough to read.
const std::string kTiny = R"({
  "device": "a100-sxm-80gb",
  "sources": "a test",
  "gemm": [{
    "types": ["bf16"], "source": "a test",
    "model": {"per_kernel_us": 3, "per_wave_us": 1.5, "wave_softness": 0, "memory_share": 0.8,
              "tiles": [{"rows": 128, "columns": 128, "efficiency": 0.8}]},
    "burst_forward_rows_columns_depth_ns": [1024,1024,1024,21000, 2048,2048,2048,98000]
  }],
  "attention": [{
    "kernel": "flash2", "direction": "forward", "rate_tflop_per_s": 200, "per_kernel_us": 5,
    "head_factor": {"64": 0.9, "128": 1}, "band": 0.1, "source": "a test"
  }],
  "memory": {"efficiency": 0.8, "per_kernel_us": 2, "band": 0.15, "source": "a test"},
  "collectives": [{"kind": "all_reduce", "ranks": 8, "band": 0.1, "source": "a test",
                   "bytes_ns": [1024,18000, 1048576,35000]}],
  "send": {"same_node_latency_us": 10, "network_latency_us": 20, "same_node_share": 0.8,
           "network_share": 0.9, "band": 0.2, "source": "a test"}
})";

std::string with(const std::string& from, const std::string& to) {
  std::string text = kTiny;
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

std::string message(const std::string& text) {
  try {
    parse_profile(text, "tiny.json");
  } catch (const InvalidInput& error) {
    return error.what();
  }
  return "no error";
}

TEST(Profile, IsReadWhole) {
  const Profile profile = parse_profile(kTiny, "folder/tiny.json");
  EXPECT_EQ(profile.name, "tiny");
  EXPECT_EQ(profile.device.multiprocessors, 108);
  ASSERT_EQ(profile.gemms.size(), 1U);
  ASSERT_EQ(profile.gemms[0].points.size(), 2U);
  EXPECT_EQ(profile.gemms[0].points[1].shape, (GemmShape{2048, 2048, 2048}));
  EXPECT_EQ(profile.gemms[0].points[1].time, Time::from_microseconds(98));
  EXPECT_NE(profile.attention_rate(AttentionKernel::kFlash2, false), nullptr);
  EXPECT_EQ(profile.attention_rate(AttentionKernel::kFlash2, true), nullptr);
  EXPECT_EQ(profile.gemm_table(DataType::kFp8), nullptr);
  EXPECT_DOUBLE_EQ(profile.collectives.at(0).time_us.at(1024), 18);
  EXPECT_EQ(profile.send.network_latency, Time::from_microseconds(20));
}

TEST(Profile, WrittenAndReadAgainIsTheSameText) {
  for (const std::string_view each : shipped_names("calibration/profiles/")) {
    const std::string path = "calibration/profiles/" + std::string(each) + ".json";
    const ShippedFile* file = find_shipped_file(path);
    ASSERT_NE(file, nullptr);
    EXPECT_EQ(profile_text(parse_profile(file->content, path)), file->content) << each;
  }
}

TEST(Profile, RefusesAKeyNobodyKnows) {
  EXPECT_THAT(message(with("\"sources\"", "\"source\"")), HasSubstr("/source"));
  EXPECT_THAT(message(with("\"per_wave_us\"", "\"per_wave\"")), HasSubstr("per_wave_us"));
}

TEST(Profile, RefusesADeviceNobodyKnows) {
  const std::string text = message(with("\"a100-sxm-80gb\"", "\"a100\""));
  EXPECT_THAT(text, HasSubstr("tiny.json: /device: 'a100' is no known device"));
  EXPECT_THAT(text, HasSubstr("a100-sxm-80gb"));
}

TEST(Profile, RefusesPointsThatDoNotComeInFours) {
  EXPECT_THAT(message(with("1024,1024,1024,21000, ", "1024,1024,1024, ")),
              HasSubstr("/gemm/0/burst_forward_rows_columns_depth_ns: 7 numbers; expected 4"));
}

TEST(Profile, RefusesTimesAndShapesThatAreNotPositive) {
  EXPECT_THAT(message(with("1024,1024,1024,21000", "1024,1024,1024,0")), HasSubstr("point 0"));
  EXPECT_THAT(message(with("1024,1024,1024,21000", "1024,0,1024,21000")), HasSubstr("point 0"));
  EXPECT_THAT(message(with("1024,1024,1024,21000", "1024,-5,1024,21000")), HasSubstr("-5"));
  EXPECT_THAT(message(with("[1024,18000, ", "[1024,0, ")), HasSubstr("/collectives/0/bytes_ns"));
}

TEST(Profile, RefusesNumbersOutOfRange) {
  EXPECT_THAT(message(with("\"efficiency\": 0.8, \"per", "\"efficiency\": 1.8, \"per")),
              HasSubstr("/memory/efficiency"));
  EXPECT_THAT(message(with("\"rate_tflop_per_s\": 200", "\"rate_tflop_per_s\": 0")),
              HasSubstr("/attention/0/rate_tflop_per_s"));
  EXPECT_THAT(message(with("\"network_share\": 0.9", "\"network_share\": \"0.9\"")),
              HasSubstr("/send/network_share"));
}

TEST(Profile, RefusesWordsNobodyKnows) {
  EXPECT_THAT(message(with("\"flash2\"", "\"flash22\"")), HasSubstr("flash2"));
  EXPECT_THAT(message(with("\"all_reduce\"", "\"allreduce\"")), HasSubstr("all_reduce"));
  EXPECT_THAT(message(with("[\"bf16\"]", "[\"bf17\"]")), HasSubstr("'bf17' is no element type"));
  EXPECT_THAT(message(with("{\"64\": 0.9", "{\"sixty\": 0.9")), HasSubstr("/head_factor/sixty"));
}

TEST(Profile, ReportsEveryProblemAtOnce) {
  std::string text = with("\"a100-sxm-80gb\"", "\"a100\"");
  text.replace(text.find("\"ranks\": 8"), 10, "\"ranks\": 0");
  text.replace(text.find("\"band\": 0.2"), 11, "\"band\": 2.0");
  const std::string all = message(text);
  EXPECT_THAT(all, HasSubstr("/device"));
  EXPECT_THAT(all, HasSubstr("/collectives/0/ranks"));
  EXPECT_THAT(all, HasSubstr("/send/band"));
}

TEST(Profile, RefusesWhatIsMissing) {
  EXPECT_THAT(message("{}"), HasSubstr("/gemm"));
  EXPECT_THAT(message("{}"), HasSubstr("/memory"));
  EXPECT_THAT(message(""), HasSubstr("tiny.json"));
  EXPECT_THAT(message(kTiny.substr(0, kTiny.size() / 2)), HasSubstr("tiny.json"));
}

TEST(Profile, AMisspeltNameIsToldTheNearest) {
  try {
    read_profile("a100-smx-80gb");
    FAIL();
  } catch (const InvalidInput& error) {
    EXPECT_THAT(error.what(), HasSubstr("did you mean a100-sxm-80gb?"));
  }
  EXPECT_THROW(read_profile("no/such/file.json"), InvalidInput);
}

TEST(Profile, IsThereForEveryTopology) {
  std::set<std::string> shipped;
  for (const ProfileName& each : shipped_profiles()) {
    shipped.insert(each.name);
    EXPECT_FALSE(each.source.empty());
    EXPECT_FALSE(each.title.empty());
  }
  for (const TopologyName& topology : topology_presets()) {
    ASSERT_FALSE(topology.profiles.empty()) << topology.name;
    for (const std::string& profile : topology.profiles) {
      EXPECT_TRUE(shipped.contains(profile)) << topology.name << " " << profile;
    }
  }
}

TEST(Profile, OfADeviceWithoutPointsIsGradedExtrapolated) {
  const Profile profile = read_profile("v100-sxm2-32gb");
  const ComputeCost cost(profile);
  Gemm gemm;
  gemm.m = gemm.n = gemm.k = 4096;
  gemm.type = gemm.output = DataType::kFp16;
  EXPECT_EQ(cost.price(gemm).grade, Grade::kExtrapolated);
  EXPECT_FALSE(profile.note.empty());
}

}  // namespace
}  // namespace headway
