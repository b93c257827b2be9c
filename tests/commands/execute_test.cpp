#include <gmock/gmock.h>

#include <cstdlib>
#include <set>

#include "sim/core/json_reader.hpp"
#include "tests/commands/command_line.hpp"
#include "tests/support/folders.hpp"

namespace headway {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

// Two pipeline ranks of a model of 20,000 parameters, on threads of this machine.
const std::string kTinyJob = R"({
  "model": {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
            "intermediate_size": 24, "vocab_size": 32, "hidden_act": "silu", "gated_mlp": true},
  "cluster": {"topology": "host-cpu", "gpus": 2}, "precision": "fp64", "sequence_length": 8,
  "global_batch": 2, "plan": {"pp": 2}})";

class Execute : public InFolder {
 protected:
  // The executor is looked for beside the program; a test is elsewhere.
  void SetUp() override {
    InFolder::SetUp();
    if (!std::filesystem::exists(binary_dir() + "/headway-execute-cpu")) {
      GTEST_SKIP() << "the CPU executor is not built (libopenblas-dev)";
    }
    const std::string path = std::getenv("PATH");
    ::setenv("PATH", (binary_dir() + ":" + path).c_str(), 1);
  }
  Ran execute(std::vector<std::string> options, const std::string& text = kTinyJob) {
    options.insert(options.begin(), {"execute", file("job.json", text)});
    return run(options);
  }
  JsonNode result(std::vector<std::string> options) {
    options.insert(options.end(), {"--json", "-"});
    const Ran ran = execute(options);
    EXPECT_EQ(ran.exit_code, kAnswered) << ran.err;
    return JsonNode::parse_text(ran.out, "result");
  }
};

TEST_F(Execute, PrintsWhatItMeasured) {
  const Ran ran = execute({});
  EXPECT_EQ(ran.exit_code, kAnswered) << ran.err;
  EXPECT_THAT(ran.out, AllOf(StartsWith("inline on 2 x host-cpu"), HasSubstr("\nstep "),
                             HasSubstr("evidence    100 % measured\n"),
                             HasSubstr("\nmeasured over 1 step on 2 ranks; loss ")));
}

TEST_F(Execute, ACheckIsOneLine) {
  const Ran ran = execute({"--check"});
  EXPECT_EQ(ran.exit_code, kAnswered) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("\ncheck passed: loss off by "));
  EXPECT_THAT(ran.out, HasSubstr(", 0 of "));
  EXPECT_EQ(ran.out.back(), '\n');
}

TEST_F(Execute, TheResultHasTheKeysOfASimulationAndTheCheck) {
  const JsonNode json = result({"--check", "--steps", "2"});
  for (const char* key : {"iteration_time_s", "tokens_per_s", "breakdown_s", "memory",
                          "communication", "evidence", "interval_s", "job"}) {
    EXPECT_TRUE(json.find(key).has_value()) << key;
  }
  EXPECT_EQ(json.find("losses")->elements().size(), 2U);
  const JsonNode check = *json.find("check");
  EXPECT_TRUE(check.find("passed")->boolean());
  EXPECT_EQ(check.find("precision")->string(), "fp64");
  EXPECT_EQ(check.find("steps")->integer(), 2);
  EXPECT_EQ(check.find("order_violations")->integer(), 0);
  EXPECT_EQ(check.find("gradients")->find("limit")->number(), 1e-9);
  EXPECT_LE(check.find("gradients")->find("worst")->number(), 1e-9);
}

TEST_F(Execute, LossFallsOverTheSteps) {
  const auto losses = result({"--steps", "30", "--warm-up", "2"}).find("losses")->elements();
  ASSERT_EQ(losses.size(), 30U);
  EXPECT_LT(losses.back().number(), losses.front().number());
}

TEST_F(Execute, AnotherSeedIsAnotherModel) {
  const auto loss = [&](const char* seed) {
    return result({"--seed", seed}).find("losses")->elements().front().number();
  };
  EXPECT_EQ(loss("3"), loss("3"));
  EXPECT_NE(loss("3"), loss("4"));
}

TEST_F(Execute, TheTraceShowsEveryRank) {
  EXPECT_EQ(execute({"--trace", path("trace.json"), "--json", path("result.json")}).exit_code,
            kAnswered);
  const JsonNode trace = JsonNode::parse_file(path("trace.json"));
  std::set<std::int64_t> ranks;
  int spans = 0;
  for (const JsonNode& event : trace.find("traceEvents")->elements()) {
    if (event.find("ph")->string() != "X") continue;
    ranks.insert(event.find("pid")->integer());
    ++spans;
  }
  EXPECT_EQ(ranks.size(), 2U);
  EXPECT_GT(spans, 20);
}

TEST_F(Execute, RanksAsProcessesGiveTheSameNumbers) {
  if (std::system("mpirun --version > /dev/null 2>&1") != 0) GTEST_SKIP() << "there is no mpirun";
  const Ran ran = execute({"--mpi", "--check", "--json", "-"});
  if (ran.err.find("built without MPI") != std::string::npos) GTEST_SKIP() << ran.err;
  ASSERT_EQ(ran.exit_code, kAnswered) << ran.err;
  const JsonNode json = JsonNode::parse_text(ran.out, "result");
  EXPECT_TRUE(json.find("check")->find("passed")->boolean());
  EXPECT_EQ(json.find("losses")->text(), result({"--check"}).find("losses")->text());
}

TEST_F(Execute, WithoutADeviceCudaFailsAsAMachine) {
  const Ran ran = execute({"--backend", "cuda"});
  if (ran.exit_code == kAnswered) GTEST_SKIP() << "there is a device";
  EXPECT_EQ(ran.exit_code, kMachineFailed);
  // The executor has told why; where it is not built, where it would be.
  EXPECT_THAT(ran.err, testing::AnyOf(HasSubstr("headway-execute-cuda wrote no result"),
                                      HasSubstr("built where the CUDA Toolkit is")));
}

TEST_F(Execute, BadInputIsNamed) {
  EXPECT_EQ(execute({"--steps", "0"}).exit_code, kBadInput);
  EXPECT_THAT(execute({"--backend", "cuda", "--mpi"}).err, HasSubstr("--mpi: ranks share"));
  EXPECT_EQ(execute({"--backend", "tpu"}).exit_code, kBadInput);
  EXPECT_THAT(execute({"--chekc"}).err, HasSubstr("did you mean --check?"));
  const Ran ran = execute({}, with(kTinyJob, "\"pp\": 2", "\"pp\": 3"));
  EXPECT_EQ(ran.exit_code, kBadInput);
  EXPECT_THAT(ran.err, HasSubstr("/plan/pp"));
  EXPECT_THAT(ran.out, IsEmpty());
}

TEST_F(Execute, WhatDoesNotFitTheMachineIsSaid) {
  // A hundred billion parameters in fp64.
  const Ran ran = execute({}, with(with(kTinyJob, "\"hidden_size\": 16", "\"hidden_size\": 65536"),
                                   "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 4"));
  EXPECT_EQ(ran.exit_code, kMachineFailed);
  EXPECT_THAT(ran.err, HasSubstr("wrote no result (exit code 1)"));
}

}  // namespace
}  // namespace headway
