#include "sim/cost/nelder_mead.hpp"

#include <cmath>

#include <gtest/gtest.h>

namespace headway {
namespace {

TEST(NelderMead, FindsTheEndOfRosenbrocksValley) {
  const auto valley = [](const std::vector<double>& x) {
    return 100 * std::pow(x[1] - x[0] * x[0], 2) + std::pow(1 - x[0], 2);
  };
  const auto end = nelder_mead(valley, {-1.2, 1}, 0.5, 2000);
  EXPECT_NEAR(end[0], 1, 1e-4);
  EXPECT_NEAR(end[1], 1, 1e-4);
}

TEST(NelderMead, FindsTheMedianByAbsoluteErrors) {
  const auto absolute = [](const std::vector<double>& x) {
    return std::abs(x[0] - 1) + std::abs(x[0] - 2) + std::abs(x[0] - 10);
  };
  EXPECT_NEAR(nelder_mead(absolute, {7}, 1, 300)[0], 2, 1e-3);
}

}  // namespace
}  // namespace headway
