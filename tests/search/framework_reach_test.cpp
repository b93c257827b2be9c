#include "sim/search/framework_reach.hpp"

#include <gmock/gmock.h>

#include "sim/program/schedule.hpp"
#include "tests/search/small_space.hpp"

namespace headway {
namespace {

using testing::HasSubstr;

std::string refusal(const std::string& framework, const std::string& plan) {
  Problems problems;
  const JobReading reading =
      read_job(JsonNode::parse_text(small_job(plan, framework), "job.json"), {}, problems);
  problems.throw_if_any();
  return launch_refusal(framework_reach(framework), *reading.job);
}

// Every schedule of a framework is one of ours; the project's own framework can do anything.
TEST(FrameworkReach, NamesSchedulesThatExist) {
  for (const FrameworkName& preset : framework_presets()) {
    const FrameworkReach& reach = framework_reach(preset.name);
    EXPECT_FALSE(reach.source.empty()) << preset.name;
    for (const std::string& schedule : reach.schedules)
      EXPECT_NE(find_schedule(schedule), nullptr) << preset.name << " " << schedule;
  }
  EXPECT_TRUE(framework_reach("headway").frameworks.empty());
  EXPECT_FALSE(framework_reach("megatron-core").frameworks.empty());
}

TEST(FrameworkReach, MegatronSplitsLayersEvenlyUntilItHasLayouts) {
  EXPECT_EQ(refusal("megatron-2024", R"({"tp": 2, "pp": 4})"), "");
  // 24 layers and embedding and head: 26 over 13 stages.
  EXPECT_EQ(refusal("megatron-2024", R"({"tp": 8, "pp": 2, "schedule": "interleaved", "vpp": 13})"),
            "");
  EXPECT_THAT(refusal("megatron-2024", R"({"tp": 1, "pp": 16, "micro_batch": 1})"),
              HasSubstr("splits 24 layers over 16 virtual stages only evenly"));
  EXPECT_EQ(refusal("megatron-core", R"({"tp": 1, "pp": 16, "micro_batch": 1})"), "");
  EXPECT_THAT(refusal("megatron-core", R"({"tp": 2, "pp": 8, "schedule": "zb-h1"})"),
              HasSubstr("megatron-core has no schedule zb-h1"));
}

TEST(FrameworkReach, RefusesWhatALauncherLacks) {
  EXPECT_THAT(refusal("llm-foundry", R"({"tp": 2})"), HasSubstr("no tensor parallelism"));
  EXPECT_THAT(refusal("megatron-2021", R"({"dp_kind": "zero1"})"), HasSubstr("no dp_kind zero1"));
  EXPECT_EQ(refusal("headway", R"({"tp": 1, "pp": 16})"), "");
}

}  // namespace
}  // namespace headway
