#include <gmock/gmock.h>

#include <regex>

#include "sim/core/json_reader.hpp"
#include "tests/commands/command_line.hpp"

namespace headway {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

class Simulate : public InFolder {
 protected:
  Ran simulate(std::vector<std::string> options, const std::string& text = kSmallJob) {
    options.insert(options.begin(), {"simulate", file("job.json", text)});
    return run(options);
  }
  double step_time(std::vector<std::string> options) {
    options.insert(options.end(), {"--json", "-"});
    const Ran ran = simulate(options);
    EXPECT_EQ(ran.exit_code, kAnswered) << ran.err;
    return JsonNode::parse_text(ran.out, "result").find("iteration_time_s")->number();
  }
};

TEST_F(Simulate, PrintsTheSummaryPeopleRead) {
  const Ran ran = simulate({});
  EXPECT_EQ(ran.exit_code, kAnswered);
  EXPECT_THAT(ran.out, AllOf(StartsWith("gpt3-1.7b on 8 x a100-sxm-80gb (dgx-a100)"),
                             HasSubstr("\nstep "), HasSubstr("\nmemory ")));
  EXPECT_THAT(ran.err, IsEmpty());
}

TEST_F(Simulate, JsonOnStandardOutputStandsThereAlone) {
  const Ran ran = simulate({"--json", "-"});
  EXPECT_EQ(ran.exit_code, kAnswered);
  const JsonNode json = JsonNode::parse_text(ran.out, "result");
  EXPECT_EQ(json.keys().front(), "iteration_time_s");
  EXPECT_EQ(ran.out.back(), '\n');
  double sum = 0;
  for (const JsonNode& part : json.find("critical_path")->elements()) {
    sum += part.find("time_s")->number();
  }
  EXPECT_NEAR(sum, json.find("iteration_time_s")->number(), 1e-12);
}

TEST_F(Simulate, EqualInputsGiveByteEqualOutputs) {
  for (const char* detail : {"segment", "operation"}) {
    for (const char* number : {"1", "2"}) {
      const std::string n = number;
      EXPECT_EQ(simulate({"--detail", detail, "--json", path("result" + n), "--trace",
                          path("trace" + n + ".json"), "--program", path("program" + n)})
                    .exit_code,
                kAnswered);
      EXPECT_EQ(simulate({"--detail", detail, "--trace", path("trace" + n + ".json.gz")}).exit_code,
                kAnswered);
    }
    for (const char* name : {"result", "program"}) {
      EXPECT_EQ(read_file(path(name + std::string("1"))), read_file(path(name + std::string("2"))));
    }
    for (const char* name : {".json", ".json.gz"}) {
      EXPECT_EQ(read_file(path("trace1" + std::string(name))),
                read_file(path("trace2" + std::string(name))));
    }
    EXPECT_THAT(read_file(path("trace1.json.gz")), StartsWith("\x1f\x8b"));
  }
}

TEST_F(Simulate, UnfoldedIsTheSameStep) { EXPECT_EQ(step_time({"--unfolded"}), step_time({})); }

TEST_F(Simulate, OptionsAloneAreAJob) {
  const Ran ran = run({"simulate", "--model", "gpt3-1.7b", "--cluster", "dgx-a100", "--gpus", "8",
                       "--tp", "2", "--pp", "2", "--micro-batch", "1", "--sequence-length", "2048",
                       "--global-batch", "16", "--framework", "megatron-2022"});
  EXPECT_EQ(ran.exit_code, kAnswered);
  EXPECT_EQ(ran.out, simulate({}).out);
}

TEST_F(Simulate, OptionsOverrideTheFile) {
  EXPECT_THAT(simulate({"--pp", "1", "--tp", "8"}).out, HasSubstr("\ntp 8 x pp 1 x dp 1, "));
  EXPECT_THAT(simulate({"--set", "plan.recompute=full"}).out, HasSubstr(", recompute full"));
  EXPECT_LT(step_time({"--global-batch", "8"}), step_time({}));
}

TEST_F(Simulate, TakesAClusterInOneLine) {
  const Ran ran = run({"simulate", "--cluster", "h100", "--nodes", "4", "--nic", "8x400 Gbit/s",
                       "--oversubscription", "2", "--model", "llama2-7b", "--sequence-length",
                       "4096", "--global-batch", "64", "--tp", "4"});
  EXPECT_EQ(ran.exit_code, kAnswered) << ran.err;
  EXPECT_THAT(ran.out, StartsWith("llama2-7b on 32 x h100-sxm (h100 8x400 Gbit/s), headway\n"));
  const std::string job = with(kSmallJob, R"("topology": "dgx-a100", "gpus": 8)",
                               R"("topology": "h100", "nodes": 1, "nic": "8x400 Gbit/s",
                                  "oversubscription": 2)");
  const Ran in_file = simulate({"--print-job"}, job);
  EXPECT_EQ(in_file.exit_code, kAnswered) << in_file.err;
  EXPECT_THAT(in_file.out,
              AllOf(HasSubstr(R"("topology": {"value": "h100", "origin": "given"})"),
                    HasSubstr(R"("nic": {"value": "8x400 Gbit/s", "origin": "given"})"),
                    HasSubstr(R"("oversubscription": {"value": 2, "origin": "given"})")));
  EXPECT_THAT(simulate({}, with(job, "8x400 Gbit/s", "0x400 Gbit/s")).err,
              HasSubstr("job.json: /cluster/nic: \"0x400 Gbit/s\" is no number of NICs"));
  const Ran bad = run({"simulate", "--cluster", "h100", "--nodes", "4", "--nic", "8x400", "--model",
                       "llama2-7b", "--sequence-length", "4096", "--global-batch", "64"});
  EXPECT_EQ(bad.exit_code, kBadInput);
  EXPECT_THAT(bad.err, HasSubstr("headway: --nic: \"400\""));
  const Ran preset = simulate({"--nic", "8x400 Gbit/s"});
  EXPECT_EQ(preset.exit_code, kBadInput);
  EXPECT_THAT(preset.err, StartsWith("headway: --nic: needs a GPU's name as topology"));
}

TEST_F(Simulate, NotesGoToStandardError) {
  const Ran ran = simulate({"--sequence-parallel", "true", "--tp", "1"});
  EXPECT_EQ(ran.exit_code, kAnswered);
  EXPECT_THAT(ran.err, StartsWith("note: "));
  EXPECT_THAT(ran.err, HasSubstr("sequence_parallel"));
  EXPECT_THAT(ran.out, Not(HasSubstr("note")));
}

TEST_F(Simulate, PrintsTheResolvedJobWithEachValuesOrigin) {
  const Ran ran = simulate({"--print-job", "--tp", "4"});
  EXPECT_EQ(ran.exit_code, kAnswered);
  const JsonNode job = JsonNode::parse_text(ran.out, "job");
  const auto origin = [&](const char* section, const char* key) {
    return job.find(section)->find(key)->find("origin")->string();
  };
  EXPECT_EQ(job.find("plan")->find("tp")->find("value")->integer(), 4);
  EXPECT_EQ(origin("plan", "tp"), "given");
  EXPECT_EQ(origin("plan", "vpp"), "default");
  EXPECT_EQ(origin("software", "attention"), "framework");
  for (const char* section : {"model", "cluster", "software", "plan"}) {
    for (const std::string& key : job.find(section)->keys()) {
      EXPECT_THAT(job.find(section)->find(key)->keys(), ElementsAre("value", "origin")) << key;
    }
  }
}

TEST_F(Simulate, ExitsWithThreeWhereItMustFitAndDoesNot) {
  const std::vector<std::string> job = {
      "simulate",          "--model", "llama2-7b",      "--cluster", "dgx-a100", "--gpus", "8",
      "--sequence-length", "4096",    "--global-batch", "8",         "--json",   "-"};
  const Ran answered = run(job);
  EXPECT_EQ(answered.exit_code, kAnswered);
  const JsonNode result = JsonNode::parse_text(answered.out, "result");
  EXPECT_FALSE(result.find("fits")->boolean());
  EXPECT_THAT(result.find("why")->string(), HasSubstr("stage 0 needs "));
  std::vector<std::string> required = job;
  required.push_back("--require-fit");
  const Ran refused = run(required);
  EXPECT_EQ(refused.exit_code, kDoesNotFit);
  EXPECT_EQ(refused.out, answered.out);
  EXPECT_EQ(simulate({"--require-fit"}).exit_code, kAnswered);
}

TEST_F(Simulate, AFileThatCannotBeWrittenIsTheMachinesFailure) {
  for (const char* option : {"--json", "--trace", "--program"}) {
    const Ran ran = simulate({option, path("nowhere/file.json")});
    EXPECT_EQ(ran.exit_code, kMachineFailed);
    EXPECT_EQ(ran.err, "headway: " + path("nowhere/file.json") +
                           ": cannot write: No such file or directory\n");
    EXPECT_THAT(ran.out, IsEmpty());
    EXPECT_THAT(files(), ElementsAre("job.json"));
  }
}

TEST_F(Simulate, WallClockFiguresAppearOnlyWithTiming) {
  EXPECT_THAT(simulate({"--json", "-"}).out, Not(HasSubstr("wall_s")));
  EXPECT_THAT(
      simulate({"--json", "-", "--timing"}).out,
      AllOf(HasSubstr("\"wall_s\""), HasSubstr("\"process_s\""), HasSubstr("\"events_per_s\"")));
  EXPECT_THAT(simulate({"--timing"}).out, HasSubstr("simulated in "));
}

TEST_F(Simulate, ASlowRankSlowsTheStepByNoMoreThanItself) {
  const double even = step_time({}), slow = step_time({"--slow", "3=1.2"});
  EXPECT_GT(slow, even * 1.02);
  EXPECT_LT(slow, even * 1.2);
  EXPECT_EQ(step_time({"--slow", "3=1"}), even);
}

TEST_F(Simulate, DegradedLinksSlowWhatCrossesThem) {
  const auto time = [&](const std::string& link) {
    return step_time({"--gpus", "16", "--pp", "1", "--degrade", link});
  };
  const double sound = time("nic=1");
  EXPECT_GT(time("nic=0.5"), sound);
  EXPECT_GT(time("nvlink=0.25"), sound);
  EXPECT_GT(time("pcie=0.1"), sound);
  EXPECT_GE(time("leaf-spine=0.5"), sound);
  EXPECT_GT(time("nic=0.1"), time("nic=0.5"));
  EXPECT_EQ(time("nvlink=1"), sound);
}

TEST_F(Simulate, DeadLinksAreGoneRoundAndWhatIsCutOffIsRefused) {
  const std::vector<std::string> two_nodes = {"--gpus", "16", "--pp", "1"};
  const auto with_dead = [&](std::vector<std::string> dead) {
    std::vector<std::string> options = two_nodes;
    for (const std::string& link : dead) options.insert(options.end(), {"--degrade", link + "=0"});
    return options;
  };
  EXPECT_GT(step_time(with_dead({"node0/nic0", "node0/nic1"})), step_time(two_nodes));
  std::vector<std::string> all;
  for (int nic = 0; nic < 8; ++nic) all.push_back("node1/nic" + std::to_string(nic));
  const Ran ran = simulate(with_dead(all));
  EXPECT_EQ(ran.exit_code, kBadInput);
  EXPECT_EQ(ran.err,
            "headway: --degrade: with these links dead there is no way between node0/gpu0 and "
            "node1/gpu0\n");
}

TEST_F(Simulate, JitterAddsTheDistributionOfTheStep) {
  const std::vector<std::string> options = {"--jitter", "0.05", "--draws", "6", "--seed", "3"};
  const Ran ran = simulate(options);
  EXPECT_THAT(ran.out, AllOf(HasSubstr("\njitter      GPUs spread by 5 %, 6 draws: step "),
                             HasSubstr("(p95)")));
  EXPECT_EQ(simulate(options).out, ran.out);
  std::vector<std::string> json = options;
  json.insert(json.end(), {"--json", "-"});
  const JsonNode jitter = *JsonNode::parse_text(simulate(json).out, "result").find("jitter");
  EXPECT_EQ(jitter.find("draws")->number(), 6);
  const JsonNode step = *jitter.find("iteration_time_s");
  EXPECT_LE(step.find("p5")->number(), step.find("p50")->number());
  EXPECT_LE(step.find("p50")->number(), step.find("p95")->number());
  EXPECT_GT(jitter.find("slowest_gpu")->number(), 1);
}

TEST_F(Simulate, AJobBesideIsNamedWithTheStepWithoutIt) {
  const Ran ran = simulate({"--gpus", "16", "--background", file("other.json", kSmallJob) + "@16"});
  EXPECT_EQ(ran.exit_code, kAnswered) << ran.err;
  EXPECT_THAT(ran.out, AllOf(HasSubstr("\nbeside      " + path("other.json") + " on GPUs 16 to 23"),
                             HasSubstr("\nwithout     the step takes ")));
  const double alone = step_time({"--gpus", "16"});
  EXPECT_EQ(step_time({"--gpus", "16", "--background", path("other.json") + "@16"}), alone);
}

}  // namespace
}  // namespace headway
