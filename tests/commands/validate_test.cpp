#include <gmock/gmock.h>

#include "sim/core/json_reader.hpp"
#include "tests/commands/command_line.hpp"

namespace headway {
namespace {

using testing::ElementsAre;
using testing::IsSupersetOf;
using testing::StartsWith;

class ValidateCommand : public InFolder {
 protected:
  // Five runs that differ in the plan, one that ran out of memory, one that is not built.
  std::string runs() const {
    std::string text = R"({"runs": [)";
    const char* const plans[] = {R"({"tp": 1})", R"({"tp": 2})", R"({"tp": 4})", R"({"tp": 8})",
                                 R"({"tp": 2, "pp": 2})"};
    for (int i = 0; i < 5; ++i) {
      text += run_text("run-" + std::to_string(i), plans[i], R"("iteration_time_s": 1.5)") + ",\n";
    }
    text += run_text("oom", R"({"tp": 1, "micro_batch": 4})", R"("out_of_memory": true)") + ",\n";
    text += run_text("later", R"({"tp_kind": "3d", "tp": 8})", R"("iteration_time_s": 1)") + "]}";
    return text;
  }

 private:
  static std::string run_text(const std::string& id, const std::string& plan,
                              const std::string& measured) {
    return R"({"id": ")" + id + R"(", "source": "made for this test", "reliability": "high",
      "group": "plans", "assumed": [], "notes": "",
      "job": {"model": "gpt3-1.7b", "cluster": {"topology": "dgx-a100", "gpus": 8},
        "sequence_length": 2048, "global_batch": 32, "software": {"framework": "megatron-2022"},
        "plan": )" +
           plan + R"(}, "measured": {)" + measured + "}}";
  }
};

TEST_F(ValidateCommand, HasTheKeysThatScriptsRelyOn) {
  const Ran ran = run({"validate", file("made.json", runs()), "--json", "-"});
  EXPECT_EQ(ran.exit_code, kAnswered) << ran.err;
  const JsonNode json = JsonNode::parse_text(ran.out, "errors");
  EXPECT_THAT(json.keys(),
              IsSupersetOf({"count", "mape", "signed_mean", "p95", "worst", "within_interval",
                            "noise", "by", "memory", "decisions", "runs", "skipped"}));
  EXPECT_THAT(json.find("by")->keys(),
              IsSupersetOf({"source", "gpu", "gpus", "tp", "pp", "micro_batch", "dp_kind",
                            "schedule", "precision", "reliability"}));
  EXPECT_THAT(json.find("by")->find("source")->keys(), ElementsAre("made"));
  EXPECT_THAT(json.find("by")->find("source")->find("made")->keys(),
              ElementsAre("count", "mape", "signed_mean", "p95", "worst", "within_interval"));
  EXPECT_THAT(json.find("worst")->keys(), ElementsAre("id", "error"));
  EXPECT_THAT(json.find("memory")->keys(),
              IsSupersetOf({"count", "mape", "signed_mean", "out_of_memory"}));
  EXPECT_THAT(json.find("memory")->find("out_of_memory")->keys(),
              ElementsAre("right", "missed", "false_alarm"));
  const auto skipped = json.find("skipped")->elements();
  ASSERT_EQ(skipped.size(), 1U);
  EXPECT_EQ(skipped.front().find("id")->string(), "later");
  EXPECT_EQ(skipped.front().find("why")->string(), "not built yet: 3d tensor parallelism");
  const auto all = json.find("runs")->elements();
  ASSERT_EQ(all.size(), 6U);
  EXPECT_THAT(all.front().keys(), IsSupersetOf({"id", "measured_s", "predicted_s", "interval_s",
                                                "error", "used_in_fit"}));
  EXPECT_FALSE(all.back().find("measured_s"));
}

TEST_F(ValidateCommand, GivesTheSameAnswerOnAnyNumberOfThreads) {
  const std::string made = file("made.json", runs());
  const Ran one = run({"validate", made, "--json", "-", "--threads", "1"});
  EXPECT_EQ(one.exit_code, kAnswered);
  EXPECT_EQ(run({"validate", made, "--json", "-", "--threads", "3"}).out, one.out);
}

TEST_F(ValidateCommand, PrintsTheTablePeopleRead) {
  const Ran ran = run({"validate", file("made.json", runs())});
  EXPECT_EQ(ran.exit_code, kAnswered);
  EXPECT_THAT(ran.out, StartsWith("runs not used in a fit "));
  EXPECT_THAT(ran.out, testing::HasSubstr("1 runs skipped:\n  1  not built yet: 3d tensor parallelism\n"));
}

}  // namespace
}  // namespace headway
