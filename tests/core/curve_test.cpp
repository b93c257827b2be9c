#include "sim/core/curve.hpp"

#include <gtest/gtest.h>

#include <random>

namespace headway {
namespace {

TEST(Curve, IsExactAtItsPoints) {
  const Curve curve({{3, 0.7}, {1, 0.1}, {7, 0.3}});
  EXPECT_EQ(curve.at(1), 0.1);
  EXPECT_EQ(curve.at(3), 0.7);
  EXPECT_EQ(curve.at(7), 0.3);
  EXPECT_EQ(curve.continued_at(7), 0.3);
}

// y = 5 x^2 is a line in log-log: at(2) = 20.
TEST(Curve, FollowsAPowerLawBetweenPoints) {
  const Curve curve({{1, 5}, {10, 500}});
  EXPECT_NEAR(curve.at(2), 20, 1e-12);
  EXPECT_NEAR(curve.continued_at(20), 2000, 1e-9);
  EXPECT_NEAR(curve.continued_at(0.1), 0.05, 1e-12);
}

TEST(Curve, HoldsItsEndsUnlessContinued) {
  const Curve curve({{1, 2}, {2, 4}, {4, 4}});
  EXPECT_EQ(curve.at(0.5), 2);
  EXPECT_EQ(curve.at(100), 4);
  EXPECT_NEAR(curve.continued_at(0.5), 1, 1e-12);
  EXPECT_NEAR(curve.continued_at(100), 4, 1e-12);
  EXPECT_FALSE(curve.covers(0.5));
  EXPECT_TRUE(curve.covers(4));
}

TEST(Curve, MergesEqualPointsByTheGeometricMean) {
  const Curve curve({{2, 9}, {1, 3}, {2, 4}});
  ASSERT_EQ(curve.points().size(), 2U);
  EXPECT_NEAR(curve.at(2), 6, 1e-12);
}

TEST(Curve, OfOnePointIsConstant) {
  const Curve curve({{8, 3}});
  EXPECT_EQ(curve.at(1), 3);
  EXPECT_EQ(curve.continued_at(100), 3);
  EXPECT_TRUE(Curve().empty());
  EXPECT_FALSE(Curve().covers(1));
}

// Between two points the value lies between theirs, and the order given makes no difference.
TEST(Curve, StaysBetweenNeighboursInWhateverOrderThePointsCame) {
  std::mt19937 random(1);
  const auto draw = [&] { return 0.001 + static_cast<double>(random() % 100000); };
  for (int round = 0; round < 200; ++round) {
    std::vector<CurvePoint> points(2 + random() % 6);
    for (CurvePoint& point : points) point = {draw(), draw()};
    const Curve curve(points);
    std::shuffle(points.begin(), points.end(), random);
    const Curve shuffled(points);
    for (int i = 0; i < 10; ++i) {
      const double x = draw();
      EXPECT_EQ(curve.at(x), shuffled.at(x));
      for (std::size_t k = 1; k < curve.points().size(); ++k) {
        const CurvePoint& a = curve.points()[k - 1];
        const CurvePoint& b = curve.points()[k];
        if (x < a.x || x > b.x) continue;
        EXPECT_GE(curve.at(x), std::min(a.y, b.y) * (1 - 1e-12));
        EXPECT_LE(curve.at(x), std::max(a.y, b.y) * (1 + 1e-12));
      }
    }
  }
}

}  // namespace
}  // namespace headway
