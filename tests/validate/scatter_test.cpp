#include "sim/validate/scatter.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headway {
namespace {

using testing::HasSubstr;
using testing::Not;

PredictedRun run(const std::string& file, double measured, double predicted) {
  PredictedRun one;
  one.file = file;
  one.measured_s = measured;
  one.predicted_s = predicted;
  return one;
}

TEST(Scatter, HasAPanelForEachSourceOverWholeDecades) {
  const std::string svg = scatter_svg({run("zb", 1, 10), run("bloom", 20, 20)}, false);
  EXPECT_THAT(svg, HasSubstr(">bloom (1)</text>"));
  EXPECT_THAT(svg, HasSubstr(">zb (1)</text>"));
  // 1 s measured, 10 s predicted on axes from 1 to 10 s of 220: the upper left corner.
  EXPECT_THAT(svg, HasSubstr("cx=\"0.0\" cy=\"0.0\""));
  EXPECT_EQ(svg.find("nan"), std::string::npos);
}

TEST(Scatter, LeavesOutWhatHasNoTimeOrIsOfLowReliability) {
  PredictedRun low = run("bs", 1, 1);
  low.reliability = Reliability::kLow;
  PredictedRun memory;
  memory.file = "memory";
  memory.predicted_s = 1;
  PredictedRun aside = run("zb", 2, 2);
  aside.used_in_fit = true;
  const std::string svg = scatter_svg({low, memory, aside}, false);
  EXPECT_THAT(svg, Not(HasSubstr("bs (")));
  EXPECT_THAT(svg, Not(HasSubstr("memory (")));
  EXPECT_THAT(svg, HasSubstr("class=\"aside\""));
  EXPECT_THAT(scatter_svg({low}, true), HasSubstr("bs (1)"));
}

}  // namespace
}  // namespace headway
