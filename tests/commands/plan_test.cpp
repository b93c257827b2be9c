// plan, whatif and explain as a user runs them.
#include <gmock/gmock.h>

#include "sim/core/json_reader.hpp"
#include "tests/commands/command_line.hpp"
#include "tests/support/folders.hpp"

namespace headway {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

class PlanCommand : public InFolder {
 protected:
  std::string open_job() const {
    return file("open.json",
                with(kSmallJob, R"({"tp": 2, "pp": 2, "micro_batch": 1})",
                     R"({"tp": [1, 2, 16], "pp": "auto", "micro_batch": {"min": 1, "max": 2}})"));
  }
};

TEST_F(PlanCommand, PrintsTheBestPlansAndWhyOthersAreNot) {
  const Ran ran = run({"plan", open_job(), "--top", "3", "--tokens", "1e12"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ran.out, StartsWith("gpt3-1.7b on 8 x a100-sxm-80gb (dgx-a100), for megatron-2022"));
  for (const char* words : {"open        tp, pp, micro_batch", "simulated;", "the fastest",
                            "1e+12 tokens: ", "rejected"}) {
    EXPECT_THAT(ran.out, HasSubstr(words));
  }
}

// The keys that scripts rely on.
TEST_F(PlanCommand, WritesItsAnswerAsJson) {
  const Ran ran = run({"plan", open_job(), "--top", "2", "--json", "-"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const JsonNode answer = JsonNode::parse_text(ran.out, "answer");
  const JsonNode candidates = *answer.find("candidates");
  EXPECT_THAT(candidates.keys(),
              ElementsAre("legal", "over_memory", "pruned", "simulated", "illegal"));
  const std::vector<JsonNode> plans = answer.find("plans")->elements();
  ASSERT_EQ(plans.size(), 2U);
  EXPECT_THAT(plans.front().keys(),
              ElementsAre("plan", "result", "tie", "fastest", "loses_to", "launch"));
  EXPECT_TRUE(plans.front().find("result")->find("iteration_time_s"));
  EXPECT_TRUE(plans.front().find("plan")->find("tp"));
  for (const std::string& reason : answer.find("rejected")->keys()) {
    EXPECT_TRUE(answer.find("rejected")->find(reason)->find("nearest_miss")) << reason;
  }
}

// An answer's plan, put into the job, simulates to the answer's time.
TEST_F(PlanCommand, AnswersWithPlansThatSimulateAsTheySay) {
  const Ran ran = run({"plan", open_job(), "--top", "1", "--json", "-"});
  const JsonNode best = JsonNode::parse_text(ran.out, "answer").find("plans")->elements().front();
  const Ran again =
      run({"simulate", open_job(), "--set", "plan=" + best.find("plan")->text(), "--json", "-"});
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(JsonNode::parse_text(again.out, "result").find("iteration_time_s")->number(),
            best.find("result")->find("iteration_time_s")->number());
}

TEST_F(PlanCommand, SweepsTheClustersSize) {
  const Ran ran = run({"plan", open_job(), "--gpus", "4..16", "--json", "-"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  std::vector<std::int64_t> sizes;
  for (const JsonNode& scale : JsonNode::parse_text(ran.out, "answer").find("scales")->elements())
    sizes.push_back(scale.find("gpus")->integer());
  EXPECT_THAT(sizes, ElementsAre(4, 8, 16));
}

TEST_F(PlanCommand, NamesEachWrongOption) {
  const Ran ran =
      run({"plan", open_job(), "--memory-margin", "120 %", "--fix", "tp", "--gpus", "16..4"});
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.err, HasSubstr("--memory-margin: '120 %' is no share"));
  EXPECT_THAT(ran.err, HasSubstr("--fix: 'tp' is no KEY=VALUE"));
  EXPECT_THAT(ran.err, HasSubstr("--gpus: '16..4' goes down"));
  EXPECT_THAT(ran.out, IsEmpty());
}

TEST_F(PlanCommand, NothingThatFitsIsAnAnswer) {
  const std::string job =
      file("whole.json", with(kSmallJob, R"({"tp": 2, "pp": 2, "micro_batch": 1})",
                              R"({"tp": 1, "pp": 1, "micro_batch": [1]})"));
  const Ran ran = run({"plan", job, "--memory-margin", "70 %"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("no plan found: none fits the memory"));
  EXPECT_THAT(ran.out, HasSubstr(" in place of \"ddp\""));
}

// mpirun's two processes write what one writes.
TEST_F(PlanCommand, AnswersTheSameFromSeveralProcesses) {
  const std::string program = binary_dir() + "/headway-mpi";
  if (!std::filesystem::exists(program)) GTEST_SKIP() << "built without MPI";
  if (std::system("mpirun --version > /dev/null 2>&1") != 0) GTEST_SKIP() << "there is no mpirun";
  // Two processes of this machine, whatever runs on it besides.
  std::string command =
      "mpirun -n 2 --oversubscribe --bind-to none --quiet --mca pml ob1 --mca btl self,vader "
      "--mca btl_vader_single_copy_mechanism none ";
  if (geteuid() == 0) command += "--allow-run-as-root ";
  command += program + " plan " + open_job() + " --threads 1 --top 3";
  command += " --json " + path("shared.json") + " > " + path("shared.txt") + " 2> " + path("err");
  ASSERT_EQ(std::system(command.c_str()), 0) << read_file(path("err"));
  const Ran alone = run({"plan", open_job(), "--top", "3", "--json", path("alone.json")});
  ASSERT_EQ(alone.exit_code, 0) << alone.err;
  EXPECT_EQ(read_file(path("shared.json")), read_file(path("alone.json")));
  EXPECT_EQ(read_file(path("shared.txt")), alone.out);
}

class WhatIfCommand : public InFolder {};

TEST_F(WhatIfCommand, PrintsATableAndWritesCsv) {
  const std::string job = file("job.json", kSmallJob);
  const Ran ran = run({"whatif", job, "--vary", "plan.micro_batch=1,2", "--vary", "plan.tp=1..4",
                       "--csv", path("table.csv")});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(lines_of(ran.out), 7);
  EXPECT_EQ(lines_of(read_file(path("table.csv"))), 7);
}

TEST_F(WhatIfCommand, NamesAWrongField) {
  const Ran ran = run({"whatif", file("job.json", kSmallJob), "--vary", "plan.tpp=1,2"});
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.err, HasSubstr("--vary"));
  EXPECT_THAT(ran.err, HasSubstr("tpp"));
}

class ExplainCommand : public InFolder {};

TEST_F(ExplainCommand, SaysWhyAndWhatMoreWouldBuy) {
  const std::string job = file("job.json", kSmallJob);
  const Ran ran = run({"explain", job, "--json", path("why.json")});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("what 10 % more would buy"));
  const JsonNode why = JsonNode::parse_file(path("why.json"));
  EXPECT_TRUE(why.find("critical_path"));
  EXPECT_EQ(why.find("gains")->elements().size(), 5U);  // eight GPUs of one node use no NIC
  EXPECT_EQ(why.find("without_effect")->elements().front().string(), "nic");
}

}  // namespace
}  // namespace headway
