#include <gmock/gmock.h>

#include "sim/core/json_reader.hpp"
#include "sim/cost/profile.hpp"
#include "tests/commands/command_line.hpp"

namespace headway {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

using FitCommand = InFolder;

constexpr const char* kHeader =
    "gpu,dtype,m,n,k,layout,accumulate,time_us,tflops,flag,source,note\n";

TEST_F(FitCommand, ChecksPointsAgainstTheShippedProfiles) {
  const std::string points =
      file("points.csv", std::string(kHeader) +
                             "A100-SXM4-80GB,bf16,4096,4096,4096,TN,0,580,,,aic-sglang0.5.10,\n"
                             "L40S,bf16,4096,4096,4096,TN,0,1000,,,aic-trtllm,\n");
  const Ran ran = run({"fit", "--check", points, "--json", path("errors.json")});
  EXPECT_EQ(ran.exit_code, kAnswered) << ran.err;
  EXPECT_THAT(ran.out, AllOf(HasSubstr("gemm, a100-sxm-80gb, burst"), HasSubstr("1 skipped")));
  const JsonNode json = JsonNode::parse_file(path("errors.json"));
  EXPECT_EQ(json.find("count")->integer(), 1);
  EXPECT_LT(json.find("by")->find("gemm")->find("a100-sxm-80gb")->find("median")->number(), 0.1);
  const Ran only = run({"fit", "--check", points, "--profile", "h100-sxm", "--json", "-"});
  EXPECT_THAT(only.out, StartsWith("{\n  \"count\": 0"));
}

TEST_F(FitCommand, MakesAProfileThatAJobCanUse) {
  const std::string points = file(
      "points.csv", std::string(kHeader) + "a100-sxm-80gb,bf16,2048,6144,2048,TN,0,900,,,mine,\n");
  const Ran ran = run({"fit", points, "-o", path("mine.json")});
  EXPECT_EQ(ran.exit_code, kAnswered) << ran.err;
  EXPECT_THAT(ran.err, HasSubstr("note: 1 points used"));
  EXPECT_EQ(read_profile(path("mine.json")).device.name, "a100-sxm-80gb");
  const std::string job = file(
      "job.json",
      with(kSmallJob, R"("gpus": 8)", R"("gpus": 8, "profile": ")" + path("mine.json") + "\""));
  EXPECT_EQ(run({"simulate", job}).exit_code, kAnswered);
}

TEST_F(FitCommand, RefusesWhatItCannotUse) {
  const std::string points =
      file("points.csv", std::string(kHeader) + "L40S,bf16,2048,6144,2048,TN,0,900,,,mine,\n");
  EXPECT_EQ(run({"fit", points}).exit_code, kBadInput);  // neither -o nor --check
  const Ran unknown = run({"fit", points, "-o", path("mine.json")});
  EXPECT_EQ(unknown.exit_code, kBadInput);
  EXPECT_THAT(unknown.err, StartsWith("headway: --profile: no point is of a device"));
  EXPECT_FALSE(std::filesystem::exists(path("mine.json")));
  const Ran missing = run({"fit", "--check", path("nothing.csv")});
  EXPECT_EQ(missing.exit_code, kBadInput);
  const std::string broken =
      file("broken.csv", std::string(kHeader) + "X,bf16,2048,-1,2048,TN,0,900,,,mine,\n");
  EXPECT_THAT(run({"fit", "--check", broken}).err,
              HasSubstr("broken.csv: line 2: n is '-1'; expected a positive number"));
  EXPECT_EQ(run({"fit", "--check", points, "-o", path("x.json")}).exit_code, kBadInput);
}

}  // namespace
}  // namespace headway
