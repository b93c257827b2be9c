#include "sim/search/explain.hpp"

#include <gmock/gmock.h>

#include <map>

#include "tests/search/small_space.hpp"

namespace headway {
namespace {

using testing::HasSubstr;

Explanation explained(const std::string& plan) {
  return explain(JsonNode::parse_text(small_job(plan), "job.json"), {}, 1);
}

const ResourceGain& gain_of(const Explanation& explanation, Resource resource) {
  for (const ResourceGain& gain : explanation.gains) {
    if (gain.resource == resource) return gain;
  }
  throw std::logic_error("no gain");
}

// What a tenth more of a resource buys is the step simulated again with it, by another way: the
// job's own key where it has one.
TEST(Explain, GainsAreThoseOfTheStepSimulatedAgain) {
  const std::string plan = R"({"tp": 2, "pp": 2, "sequence_parallel": true})";
  const Explanation explanation = explained(plan);
  for (const auto& [resource, key, value] :
       {std::tuple(Resource::kNic, "cluster.links.nic.bandwidth", "220 Gbit/s"),
        std::tuple(Resource::kNvlink, "cluster.links.nvlink.bandwidth", "330 GB/s")}) {
    Problems problems;
    const JobReading changed = read_job(JsonNode::parse_text(small_job(plan), "job.json"),
                                        {{key, value, "--set"}}, problems);
    ASSERT_TRUE(changed.job);
    const ResourceGain& gain = gain_of(explanation, resource);
    // 1.1 times a bandwidth and its decimal text are the same to the last bit but one.
    EXPECT_NEAR(gain.after.seconds(),
                simulate_step(*changed.job, a100()).timeline.makespan.seconds(), 1e-9);
    EXPECT_EQ(gain.before, explanation.report.iteration);
  }
}

// To first order a tenth more of a rate saves 1 - 1/1.1 of what it takes on the critical path, and
// never more than all of that.
TEST(Explain, GainsFollowTheCriticalPath) {
  const Explanation explanation = explained(R"({"tp": 2, "pp": 2})");
  std::map<std::string, Time> path;
  Time sum;
  for (const CausePart& part : explanation.report.critical_path) {
    path[part.cause] = part.time;
    sum += part.time;
  }
  EXPECT_EQ(sum, explanation.report.iteration);
  const double most = 1 - 1 / kMoreOfAResource;
  const ResourceGain& matrix = gain_of(explanation, Resource::kMatrixRate);
  const ResourceGain& memory = gain_of(explanation, Resource::kMemoryBandwidth);
  const double computing = path["compute"].seconds() / sum.seconds();
  EXPECT_LE(matrix.share() + memory.share(), most);
  EXPECT_GT(matrix.share() + memory.share(), 0.5 * most * computing);
  const ResourceGain& nvlink = gain_of(explanation, Resource::kNvlink);
  EXPECT_GT(nvlink.share(), 0);
}

// On a device where only full recomputation fits, a tenth more memory is worth what it saves.
TEST(Explain, MemoryIsWorthWhatItLetsAPlanLeaveOut) {
  const Explanation explanation = explained(R"({"tp": 2, "pp": 2, "recompute": "full"})");
  const ResourceGain& gain = gain_of(explanation, Resource::kMemory);
  EXPECT_LE(gain.after, gain.before);
  EXPECT_LE(gain.before,
            explanation.report.iteration);  // 80 GB hold more than this plan asks of it
  EXPECT_THAT(gain.how, HasSubstr("tp 2 x pp 2"));
}

TEST(Explain, SaysItInWords) {
  const std::string text = explanation_text(explained(R"({"tp": 2, "pp": 2})"));
  EXPECT_THAT(text, HasSubstr("computing: matrix multiplications"));
  EXPECT_THAT(text, HasSubstr("the pipeline's bubble"));
  EXPECT_THAT(text, HasSubstr("what 10 % more would buy"));
}

}  // namespace
}  // namespace headway
