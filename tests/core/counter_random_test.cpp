#include "sim/core/counter_random.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace headway {
namespace {

TEST(CounterRandom, IsAFunctionOfSeedNameAndCounterAlone) {
  const CounterRandom a(1, "layers.0.mlp.up");
  EXPECT_EQ(a.bits(7), CounterRandom(1, "layers.0.mlp.up").bits(7));
  EXPECT_NE(a.bits(7), a.bits(8));
  EXPECT_NE(a.bits(7), CounterRandom(2, "layers.0.mlp.up").bits(7));
  EXPECT_NE(a.bits(7), CounterRandom(1, "layers.1.mlp.up").bits(7));
  EXPECT_NE(a.child(0).bits(7), a.child(1).bits(7));
}

TEST(CounterRandom, UniformAndNormalHaveTheirMoments) {
  const CounterRandom random(5, "moments");
  constexpr int kDraws = 200000;
  double uniform = 0, normal = 0, squares = 0, lag = 0;
  for (std::uint64_t i = 0; i < kDraws; ++i) {
    const double u = random.uniform(i), n = random.normal(i);
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    uniform += u;
    normal += n;
    squares += n * n;
    lag += (random.uniform(i) - 0.5) * (random.uniform(i + 1) - 0.5);
  }
  // Four standard errors each: 0.29, 1, 1.41 and 1/12 over sqrt(draws).
  const double root = std::sqrt(static_cast<double>(kDraws));
  EXPECT_NEAR(uniform / kDraws, 0.5, 4 * 0.289 / root);
  EXPECT_NEAR(normal / kDraws, 0.0, 4 / root);
  EXPECT_NEAR(squares / kDraws, 1.0, 4 * 1.415 / root);
  EXPECT_NEAR(lag / kDraws, 0.0, 4 / (12 * root));
}

}  // namespace
}  // namespace headway
