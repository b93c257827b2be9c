#include "sim/validate/assumed_values.hpp"

#include <gtest/gtest.h>

#include "sim/cluster/device.hpp"

namespace headway {
namespace {

std::vector<JobOverride> decided(const std::string& model, const std::string& recompute,
                                 const std::vector<std::string>& assumed) {
  MeasuredRun run(JsonNode::parse_text(R"({"model": ")" + model +
                                           R"(", "cluster": {"topology": "dgx-a100", "gpus": 8},
          "sequence_length": 2048, "global_batch": 8, "software": {"framework": "megatron-2022"},
          "plan": {"tp": 8, "micro_batch": 2, "recompute": ")" +
                                           recompute + "\"}}",
                                       "run"));
  run.assumed = assumed;
  Problems problems;
  const JobReading reading = read_job(run.job, {}, problems);
  problems.throw_if_any();
  return decide_assumed(run, *reading.job, *find_device("a100-sxm-80gb"));
}

// 1.7 B parameters take 31 GB of state (18 bytes each) and two sequences 32 GB of activations
// (s b h (34 + 5 a s / h) a layer): one device holds both. 175 B take forty devices.
TEST(AssumedValues, FullRecomputationIsForModelsThatOneDeviceDoesNotHold) {
  const std::vector<JobOverride> small = decided("gpt3-1.7b", "full", {"vocab", "recompute"});
  ASSERT_EQ(small.size(), 1U);
  EXPECT_EQ(small[0].key, "plan.recompute");
  EXPECT_EQ(small[0].value, "selective");
  EXPECT_TRUE(decided("gpt3-175b", "full", {"recompute"}).empty());
}

TEST(AssumedValues, WhatTheSourceStatesStands) {
  EXPECT_TRUE(decided("gpt3-1.7b", "full", {"vocab"}).empty());
  EXPECT_TRUE(decided("gpt3-1.7b", "selective", {"recompute"}).empty());
}

}  // namespace
}  // namespace headway
