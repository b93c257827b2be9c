#include "sim/search/machine_change.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "sim/simulate/simulated_step.hpp"
#include "tests/search/small_space.hpp"

namespace headway {
namespace {

Job job_of(const std::string& text, const std::vector<JobOverride>& overrides = {}) {
  Problems problems;
  JobReading reading = read_job(JsonNode::parse_text(text, "job.json"), overrides, problems);
  problems.throw_if_any();
  return std::move(*reading.job);
}

Time time_of(const Job& job, const Profile& profile) {
  return simulate_step(job, profile).timeline.makespan;
}

const std::string kPlan = R"({"tp": 2, "pp": 2, "sequence_parallel": true})";

// The job's own key for links is another way to the same machine.
TEST(MachineChange, ScalesLinksAsAnOverrideDoes) {
  const Job job = job_of(small_job(kPlan));
  const auto nic = with_factor(job, a100(), Resource::kNic, 0.5);
  ASSERT_TRUE(nic);
  EXPECT_EQ(
      time_of(nic->job, nic->profile),
      time_of(job_of(small_job(kPlan), {{"cluster.links.nic.bandwidth", "100 Gbit/s", "--set"}}),
              a100()));
  const auto nvlink = with_factor(job, a100(), Resource::kNvlink, 0.5);
  ASSERT_TRUE(nvlink);
  EXPECT_EQ(
      time_of(nvlink->job, nvlink->profile),
      time_of(job_of(small_job(kPlan), {{"cluster.links.nvlink.bandwidth", "150 GB/s", "--set"}}),
              a100()));
}

// A GEMM at twice the rate takes half as long, on measured shapes and between them.
TEST(MachineChange, ScalesMatrixRateEverywhere) {
  const auto faster = with_factor(job_of(small_job(kPlan)), a100(), Resource::kMatrixRate, 2);
  ASSERT_TRUE(faster);
  const PriceBook before(a100()), after(faster->profile);
  const std::vector<GemmPoint>& points = a100().gemm_table(DataType::kBf16)->points;
  const auto volume = [](const GemmPoint& point) {
    return point.shape.rows * point.shape.columns * point.shape.depth;
  };
  const GemmPoint& measured =
      *std::max_element(points.begin(), points.end(),
                        [&](const auto& a, const auto& b) { return volume(a) < volume(b); });
  for (const Gemm& gemm :
       {Gemm{.m = measured.shape.rows, .n = measured.shape.columns, .k = measured.shape.depth},
        Gemm{.m = 8192, .n = 12288, .k = 12288}, Gemm{.m = 7000, .n = 3000, .k = 5000}}) {
    const double ratio =
        before.price(gemm).price.time.seconds() / after.price(gemm).price.time.seconds();
    EXPECT_NEAR(ratio, 2, 0.12);
  }
}

TEST(MachineChange, KnowsWhatAJobDoesNotUse) {
  std::string text = small_job(R"({"tp": 2})");
  text.replace(text.find("\"gpus\": 16"), std::string("\"gpus\": 16").size(), "\"gpus\": 8");
  EXPECT_FALSE(with_factor(job_of(text), a100(), Resource::kNic, 1.1));
  EXPECT_TRUE(with_factor(job_of(text), a100(), Resource::kNvlink, 1.1));
}

TEST(MachineChange, MoreIsNeverSlower) {
  const Job job = job_of(small_job(kPlan));
  const Time now = time_of(job, a100());
  for (const Resource resource : resources()) {
    const auto machine = with_factor(job, a100(), resource, 1.1);
    ASSERT_TRUE(machine) << name(resource);
    EXPECT_LE(time_of(machine->job, machine->profile), now) << name(resource);
  }
}

}  // namespace
}  // namespace headway
