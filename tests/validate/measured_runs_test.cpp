#include "sim/validate/measured_runs.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "sim/core/error.hpp"

namespace headway {
namespace {

using ::testing::HasSubstr;

std::string write(const std::string& text) {
  const std::string path = ::testing::TempDir() + "/runs.json";
  std::ofstream(path) << text;
  return path;
}

std::string complaints(const std::string& text) {
  Problems problems;
  read_measured_runs(write(text), problems);
  try {
    problems.throw_if_any();
  } catch (const InvalidInput& error) {
    return error.what();
  }
  return "";
}

TEST(MeasuredRuns, AreReadWithTheirMeasurements) {
  Problems problems;
  const auto runs = read_measured_runs(
      write(R"({"runs": [{"id": "a", "source": "s", "reliability": "medium", "job": {"plan": {}},
             "measured": {"iteration_time_s": 1.5, "memory_peak_bytes": 7, "memory_kind": "reserved"},
             "group": "g", "assumed": ["vocab"], "notes": "n"}]})"),
      problems);
  ASSERT_TRUE(problems.empty());
  ASSERT_EQ(runs.size(), 1U);
  EXPECT_EQ(runs[0].file, "runs");
  EXPECT_EQ(runs[0].reliability, Reliability::kMedium);
  EXPECT_EQ(runs[0].iteration_time, Time::from_seconds(1.5));
  EXPECT_EQ(runs[0].memory_peak, Bytes{7});
  EXPECT_EQ(runs[0].memory_kind, "reserved");
  EXPECT_EQ(runs[0].assumed, (std::vector<std::string>{"vocab"}));
}

TEST(MeasuredRuns, EveryFaultIsNamedWithItsPlace) {
  const std::string text = complaints(
      R"({"runs": [{"id": "a", "job": {}, "measured": {"iteration_time_s": -1}},
                   {"id": "a", "job": {}, "measured": {"iteration_tim_s": 1}},
                   {"id": "b", "measured": {}}]})");
  EXPECT_THAT(text, HasSubstr("/runs/0/measured/iteration_time_s"));
  EXPECT_THAT(text, HasSubstr("iteration_time_s"));
  EXPECT_THAT(text, HasSubstr("/runs/1/measured/iteration_tim_s"));
  EXPECT_THAT(text, HasSubstr("'a' stands there twice"));
  EXPECT_THAT(text, HasSubstr("/runs/2/job"));
}

TEST(MeasuredRuns, AFileWithoutRunsIsRefused) {
  EXPECT_THAT(complaints("{}"), HasSubstr("/runs: is missing"));
}

}  // namespace
}  // namespace headway
