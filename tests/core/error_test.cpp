#include "sim/core/error.hpp"

#include <gtest/gtest.h>

namespace headway {
namespace {

TEST(Problem, SaysFilePlaceAndWhatIsWrong) {
  EXPECT_EQ((Problem{"job.json", "/plan/tp", "0 is no degree"}.text()),
            "job.json: /plan/tp: 0 is no degree");
  EXPECT_EQ((Problem{"--tp", "", "0 is no degree"}.text()), "--tp: 0 is no degree");
  EXPECT_EQ((Problem{"", "", "nothing to do"}.text()), "nothing to do");
}

TEST(Problems, ThrowsAllInTheOrderFoundEachOnce) {
  Problems problems;
  EXPECT_NO_THROW(problems.throw_if_any());
  problems.add("b", "", "second file, first found");
  problems.add("a", "/x", "wrong");
  problems.add("b", "", "second file, first found");
  try {
    problems.throw_if_any();
    FAIL() << "expected InvalidInput";
  } catch (const InvalidInput& error) {
    EXPECT_STREQ(error.what(), "b: second file, first found\na: /x: wrong");
    EXPECT_EQ(error.problems().size(), 2U);
  }
}

TEST(Nearest, CountsASwapOfNeighboursAsOneSlip) {
  EXPECT_EQ(nearest("hiden_size", {"hidden_size", "head_dim"}), "hidden_size");
  EXPECT_EQ(nearest("pt", {"tp", "pp", "dp"}), "tp");
  EXPECT_EQ(nearest("zzz", {"tp", "hidden_size"}), "");
  EXPECT_EQ(nearest("", {"abc"}), "");
}

TEST(AnyOf, ListsWithOrBeforeTheLast) {
  EXPECT_EQ(any_of({}), "");
  EXPECT_EQ(any_of({"a"}), "a");
  EXPECT_EQ(any_of({"a", "b", "c"}), "a, b or c");
}

}  // namespace
}  // namespace headway
