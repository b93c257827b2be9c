// crosscheck and compare: what they put side by side.
#include <gmock/gmock.h>

#include <cstdlib>

#include "sim/core/json_reader.hpp"
#include "sim/cost/host_fit.hpp"
#include "tests/commands/command_line.hpp"
#include "tests/support/folders.hpp"
#include "tests/support/measured_host.hpp"

namespace headway {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const std::string kTinyJob = R"({
  "model": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
            "intermediate_size": 48, "vocab_size": 64, "hidden_act": "silu", "gated_mlp": true},
  "cluster": {"topology": "host-cpu", "gpus": 2}, "precision": "fp32", "sequence_length": 16,
  "global_batch": 2, "software": {"framework": "headway-cpu"}, "plan": {"pp": 2}})";

class Crosscheck : public InFolder {
 protected:
  void SetUp() override {
    InFolder::SetUp();
    if (!std::filesystem::exists(binary_dir() + "/headway-execute-cpu")) {
      GTEST_SKIP() << "the CPU executor is not built (libopenblas-dev)";
    }
    const std::string path = std::getenv("PATH");
    ::setenv("PATH", (binary_dir() + ":" + path).c_str(), 1);
    const auto measured = read_host_measurements({file("measured.json", measured_host_json())});
    profile_ = file("profile.json", profile_text(fit_host(measured, "threads", "a test")));
  }
  Ran crosscheck(const std::string& text, std::vector<std::string> options) {
    options.insert(options.begin(), {"crosscheck", file("job.json", text), "--threads", "--steps",
                                     "3", "--warm-up", "1", "--profile", profile_});
    return run(options);
  }
  std::string profile_;
};

TEST_F(Crosscheck, PutsBothSideBySide) {
  const Ran ran = crosscheck(kTinyJob, {});
  ASSERT_EQ(ran.exit_code, kAnswered) << ran.err;
  EXPECT_THAT(ran.out, AllOf(HasSubstr("job on 2 ranks"), HasSubstr("\n  step "),
                             HasSubstr("\n  rank 0 forward"), HasSubstr("\n  rank 1 backward"),
                             HasSubstr("\n  rank 1 idle"), HasSubstr("\n  memory of process 0"),
                             HasSubstr("\n1 jobs: step time off by ")));
}

TEST_F(Crosscheck, PartsOfEveryRankAddUpToTheStep) {
  const Ran ran =
      crosscheck(R"({"about": "one", "jobs": [{"name": "tiny", "job": )" + kTinyJob + "}]}",
                 {"--json", "-", "--traces", path("traces")});
  ASSERT_EQ(ran.exit_code, kAnswered) << ran.err;
  const JsonNode job = JsonNode::parse_text(ran.out, "out").find("jobs")->elements().at(0);
  EXPECT_EQ(job.find("name")->string(), "tiny");
  const double predicted = job.find("predicted_s")->number();
  EXPECT_NEAR(job.find("error")->number(), predicted / job.find("measured_s")->number() - 1, 1e-12);
  ASSERT_EQ(job.find("ranks_s")->elements().size(), 2U);
  for (const JsonNode& rank : job.find("ranks_s")->elements()) {
    double sum = 0;
    for (const char* part : {"forward_s", "backward_s", "other_s", "idle_s"}) {
      sum += rank.find("predicted")->find(part)->number();
    }
    EXPECT_NEAR(sum, predicted, 1e-12);
    EXPECT_GT(rank.find("measured")->find("forward_s")->number(), 0);
  }
  for (const char* kind : {"simulated", "measured"}) {
    EXPECT_TRUE(std::filesystem::exists(path("traces/tiny.") + kind + ".json"));
  }
}

TEST_F(Crosscheck, BadInputIsNamed) {
  EXPECT_EQ(crosscheck(with(kTinyJob, "\"pp\": 2", "\"pp\": 5"), {}).exit_code, kBadInput);
  EXPECT_THAT(run({"crosscheck", path("none.json")}).err, HasSubstr("none.json"));
}

class Compare : public InFolder {};

TEST_F(Compare, ResultsAndJobs) {
  const std::string job = file("job.json", kSmallJob);
  const std::string other = file("other.json", with(kSmallJob, "\"tp\": 2", "\"tp\": 4"));
  EXPECT_EQ(run({"simulate", job, "--json", path("result.json")}).exit_code, kAnswered);
  const Ran same = run({"compare", job, path("result.json")});
  EXPECT_EQ(same.exit_code, kAnswered) << same.err;
  EXPECT_THAT(same.out, HasSubstr("iteration_time_s"));
  EXPECT_THAT(same.out.substr(0, same.out.find('\n')), HasSubstr("+0.0 %"));
  const Ran differs = run({"compare", job, other});
  EXPECT_THAT(differs.out, HasSubstr("breakdown_s.tp"));
}

TEST_F(Compare, TracesByName) {
  const auto trace = [&](const char* name, const std::string& duration) {
    return file(name, R"({"traceEvents": [{"ph": "X", "name": "F", "ts": 0, "dur": 10},
                          {"ph": "X", "name": "B", "ts": 10, "dur": )" +
                          duration + R"(}, {"ph": "M", "name": "x"}]})");
  };
  const Ran ran = run({"compare", trace("a.json", "20"), trace("b.json", "30")});
  EXPECT_EQ(ran.exit_code, kAnswered) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("whole"));
  EXPECT_THAT(ran.out, HasSubstr("+33.3 %"));  // of the whole: 30 to 40
  EXPECT_THAT(ran.out, HasSubstr("+50.0 %"));  // of B
}

TEST_F(Compare, WhatIsNeitherIsSaid) {
  const std::string none = file("none.json", R"({"a": 1})");
  EXPECT_THAT(run({"compare", none, none}).err, HasSubstr("neither a result"));
  const std::string trace = file("trace.json", R"({"traceEvents": []})");
  const Ran ran = run({"compare", file("result.json", R"({"iteration_time_s": 1})"), trace});
  EXPECT_EQ(ran.exit_code, kBadInput);
  EXPECT_THAT(ran.err, HasSubstr("cannot be compared"));
}

}  // namespace
}  // namespace headway
