#include "sim/plan/open_job.hpp"

#include <gmock/gmock.h>

#include "tests/plan/job_text.hpp"

namespace headway {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::optional<OpenJob> open(const std::string& text, const std::vector<JobOverride>& overrides,
                            Problems& problems) {
  return OpenJob::read(JsonNode::parse_text(text, "job.json"), overrides, problems);
}

// GPT-3 under several plans: what a search asks, against what a job file would say.
TEST(OpenJob, JudgesAPlanAsAJobFileWouldHaveIt) {
  Problems problems;
  const auto job = open(kGpt3Job, {}, problems);
  ASSERT_TRUE(job && problems.empty());
  for (const std::string plan :
       {R"({"tp": 8, "pp": 16})", R"({"tp": 4, "pp": 8, "micro_batch": 2, "recompute": "full"})",
        R"({"tp": 8, "pp": 16, "schedule": "interleaved", "vpp": 6, "sequence_parallel": true})"}) {
    Problems found;
    const JobReading judged = job->with_plan(JsonNode::parse_text(plan, "plan"), found);
    ASSERT_TRUE(judged.job && found.empty()) << plan;
    const Said whole = read_text(kGpt3Job, {{"plan", plan, "--set"}});
    ASSERT_TRUE(whole.reading.job) << plan;
    EXPECT_EQ(resolved_job_json(*judged.job, 2), resolved_job_json(*whole.reading.job, 2));
  }
}

TEST(OpenJob, JudgesEachPlanByItself) {
  Problems problems;
  const auto job = open(kGpt3Job, {}, problems);
  ASSERT_TRUE(job);
  Problems wrong, right;
  EXPECT_FALSE(job->with_plan(JsonNode::parse_text(R"({"tp": 7})", "plan"), wrong).job);
  EXPECT_THAT(wrong.list().front().message, HasSubstr("7 does not divide the 96 attention heads"));
  EXPECT_TRUE(job->with_plan(JsonNode::parse_text(R"({"tp": 8, "pp": 16})", "plan"), right).job);
  EXPECT_TRUE(right.empty());
}

TEST(OpenJob, SaysWhatIsWrongBesideThePlan) {
  Problems problems;
  EXPECT_FALSE(open(kGpt3Job, {{"cluster.topology", "dgx-a10", "--cluster"}}, problems));
  std::vector<std::string> files;
  for (const Problem& problem : problems.list()) files.push_back(problem.file);
  EXPECT_THAT(files, ElementsAre("--cluster"));
}

}  // namespace
}  // namespace headway
