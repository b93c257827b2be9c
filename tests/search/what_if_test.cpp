#include "sim/search/what_if.hpp"

#include <gmock/gmock.h>

#include "tests/search/small_space.hpp"

namespace headway {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> values_of(const std::string& text) {
  Problems problems;
  const auto variation = parse_variation(text, problems);
  problems.throw_if_any();
  return variation->values;
}

TEST(WhatIf, ReadsListsAndDoublings) {
  EXPECT_THAT(values_of("plan.micro_batch=1,2,4"), ElementsAre("1", "2", "4"));
  EXPECT_THAT(values_of("plan.stage_layers=[1,2],[2,1]"), ElementsAre("[1,2]", "[2,1]"));
  EXPECT_THAT(values_of("x=100..800 Gbit/s"),
              ElementsAre("100 Gbit/s", "200 Gbit/s", "400 Gbit/s", "800 Gbit/s"));
  EXPECT_THAT(values_of("x=3..20"), ElementsAre("3", "6", "12", "20"));
  EXPECT_THAT(values_of("x=200,400 Gbit/s"), ElementsAre("200 Gbit/s", "400 Gbit/s"));
  EXPECT_THAT(values_of("model=\"../a,b.json\",llama3-8b"),
              ElementsAre("\"../a,b.json\"", "llama3-8b"));
}

TEST(WhatIf, SaysWhatIsNoVariation) {
  for (const auto& [text, said] :
       std::vector<std::pair<std::string, std::string>>{{"plan.tp", "is no KEY=VALUE"},
                                                        {"plan.tp=", "is no KEY=VALUE"},
                                                        {"plan.tp=8..1", "is no range"},
                                                        {"plan.tp=1,,2", "has an empty value"}}) {
    Problems problems;
    EXPECT_FALSE(parse_variation(text, problems));
    ASSERT_EQ(problems.size(), 1U) << text;
    EXPECT_THAT(problems.list().front().text(), HasSubstr(said));
  }
}

WhatIf table(const std::vector<std::string>& texts, int threads = 1) {
  Problems problems;
  std::vector<Variation> variations;
  for (const std::string& text : texts) variations.push_back(*parse_variation(text, problems));
  const JsonNode job = JsonNode::parse_text(small_job(R"({"tp": 2, "pp": 2})"), "job.json");
  return vary(job, {}, variations, threads);
}

// The last field is the fastest; each row is what `simulate` says of that job.
TEST(WhatIf, SimulatesEveryCombination) {
  const WhatIf result = table({"plan.tp=2,4", "plan.micro_batch=1,2"}, 2);
  ASSERT_EQ(result.rows.size(), 4U);
  EXPECT_THAT(result.rows[1].values, ElementsAre("2", "2"));
  EXPECT_THAT(result.rows[2].values, ElementsAre("4", "1"));
  Problems problems;
  const JobReading job = read_job(
      JsonNode::parse_text(small_job(R"({"tp": 4, "pp": 2, "micro_batch": 2})"), "job.json"), {},
      problems);
  ASSERT_TRUE(job.job && result.rows[3].report);
  EXPECT_EQ(result.rows[3].report->iteration, simulate_step(*job.job, a100()).timeline.makespan);
}

TEST(WhatIf, AFasterNicIsNeverSlower) {
  const WhatIf result = table({"plan.pp=1", "cluster.links.nic.bandwidth=50..400 Gbit/s"});
  ASSERT_EQ(result.rows.size(), 4U);
  for (std::size_t i = 1; i < 4; ++i) {
    EXPECT_LE(result.rows[i].report->iteration, result.rows[i - 1].report->iteration);
  }
  EXPECT_LT(result.rows[3].report->iteration, result.rows[0].report->iteration);
}

TEST(WhatIf, SizesOfTheClusterReplaceEachOther) {
  const WhatIf result = table({"cluster.nodes=2,4"});
  ASSERT_TRUE(result.rows[1].report);
  EXPECT_EQ(result.rows[1].report->gpus, 32);
}

// One impossible job is a row; where all are, the first's problem is the answer.
TEST(WhatIf, SaysWhyAJobIsNotPossible) {
  const WhatIf result = table({"plan.tp=2,5"});
  EXPECT_TRUE(result.rows[0].report);
  EXPECT_THAT(result.rows[1].why_not, HasSubstr("5 does not divide"));
  EXPECT_THAT(what_if_text(result), HasSubstr("5 does not divide"));
  EXPECT_THROW(table({"plan.tp=5,7"}), InvalidInput);
  EXPECT_THROW(table({"plan.tpp=1,2"}), InvalidInput);
}

TEST(WhatIf, WritesCsvWithOneLineARow) {
  const std::string csv = what_if_csv(table({"plan.tp=2,5"}));
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 3);
  EXPECT_THAT(csv, HasSubstr("plan.tp,iteration_time_s,"));
}

}  // namespace
}  // namespace headway
