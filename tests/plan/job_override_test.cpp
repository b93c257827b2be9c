#include "sim/plan/job_override.hpp"

#include <gtest/gtest.h>

namespace headway {
namespace {

JsonNode node(const char* text) { return JsonNode::parse_text(text, "job.json"); }

TEST(WithOverrides, ReplacesAddsAndNests) {
  Problems problems;
  const JsonNode changed = with_overrides(node(R"({"a": 1, "plan": {"tp": 8}})"),
                                          {{"plan.tp", "4", "--tp"},
                                           {"plan.schedule", "1f1b", "--schedule"},
                                           {"cluster.links.nic.latency", "5 us", "--nic"},
                                           {"a", "[1, 2]", "--a"},
                                           {"b", "true", "--b"}},
                                          problems);
  EXPECT_TRUE(problems.empty());
  EXPECT_EQ(
      changed.text(),
      R"({"a":[1,2],"plan":{"tp":4,"schedule":"1f1b"},"cluster":{"links":{"nic":{"latency":"5 us"}}},"b":true})");
}

TEST(WithOverrides, TakesNullForAbsent) {
  Problems problems;
  EXPECT_EQ(with_overrides(node(R"({"plan": null})"), {{"plan.tp", "4", "--tp"}}, problems).text(),
            R"({"plan":{"tp":4}})");
}

// Quotes, braces that do not close, and what looks like a number but is none are words.
TEST(WithOverrides, TakesWhatIsNotJsonForAWord) {
  Problems problems;
  const JsonNode changed = with_overrides(
      node("{}"),
      {{"a", "{\"x\"", "--a"}, {"b", "8x400 Gbit/s", "--b"}, {"c", "", "--c"}, {"d", "NaN", "--d"}},
      problems);
  EXPECT_EQ(changed.text(), R"({"a":"{\"x\"","b":"8x400 Gbit/s","c":"","d":"NaN"})");
}

TEST(AtOrigin, PrefersTheOptionThatHoldsThePlace) {
  const std::vector<JobOverride> changes = {{"plan", "{}", "--plan"}, {"plan.tp", "0", "--tp"}};
  const JsonNode job = node("{}");
  EXPECT_EQ(at_origin({"job.json", "/plan/tp", "bad"}, job, changes).text(), "--tp: bad");
  EXPECT_EQ(at_origin({"job.json", "/plan/pp", "bad"}, job, changes).text(), "--plan: /pp: bad");
  EXPECT_EQ(at_origin({"job.json", "/plans", "bad"}, job, changes).text(), "job.json: /plans: bad");
  EXPECT_EQ(at_origin({"other.json", "/plan/tp", "bad"}, job, changes).text(),
            "other.json: /plan/tp: bad");
}

TEST(WithDefaults, FillsOnlyWhatIsMissing) {
  EXPECT_EQ(with_defaults(node(R"({"norm": "layernorm"})"),
                          node(R"({"norm": "rmsnorm", "vocab_size": 8})"))
                .text(),
            R"({"norm":"layernorm","vocab_size":8})");
}

}  // namespace
}  // namespace headway
