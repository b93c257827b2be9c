#include "sim/cost/neighbours.hpp"

#include <algorithm>
#include <cmath>
#include <random>

#include <gtest/gtest.h>

namespace headway {
namespace {

using Sample = Neighbours::Sample;

TEST(Neighbours, AreNoneWhereNothingWasMeasured) {
  const Neighbours none;
  EXPECT_EQ(none.at({1, 2, 3, 0}).residual, 0);
  EXPECT_GT(none.at({1, 2, 3, 0}).distance, 1e6);
}

TEST(Neighbours, AreExactAtAMeasuredPlace) {
  const Neighbours neighbours({{{1, 2, 3, 0}, 0.25}, {{2, 2, 3, 0}, -0.5}}, 1, 2);
  EXPECT_EQ(neighbours.at({1, 2, 3, 0}).residual, 0.25);
  EXPECT_EQ(neighbours.at({1, 2, 3, 0}).distance, 0);
  EXPECT_EQ(neighbours.at({2, 2, 3, 0}).residual, -0.5);
}

TEST(Neighbours, WeighTheirVotesByDistanceAgainstOneForTheModel) {
  // Distances 1 and 2, reach 1, power 2: votes 1 and 1/4, the model's 1.
  const Neighbours neighbours({{{0, 0, 0, 0}, 0.9}, {{3, 0, 0, 0}, -0.3}}, 1, 2);
  EXPECT_NEAR(neighbours.at({1, 0, 0, 0}).residual, (0.9 - 0.3 / 4) / 2.25, 1e-12);
  EXPECT_NEAR(neighbours.at({1, 0, 0, 0}).distance, 1, 1e-12);
}

TEST(Neighbours, VanishFarAway) {
  const Neighbours neighbours({{{0, 0, 0, 0}, 1.0}}, 1, 2);
  EXPECT_NEAR(neighbours.at({100, 0, 0, 0}).residual, 1e-4, 1e-6);
}

TEST(Neighbours, OfOnePlaceAreMerged) {
  const Neighbours neighbours({{{1, 1, 1, 1}, 0.2}, {{1, 1, 1, 1}, 0.4}}, 1, 2);
  EXPECT_NEAR(neighbours.at({1, 1, 1, 1}).residual, 0.3, 1e-12);
}

// The walk along the first axis must find what a look at every sample finds.
TEST(Neighbours, NearestIsFoundAmongManyAtRandom) {
  std::mt19937 random(7);
  std::uniform_real_distribution<float> place(0, 10);
  for (int round = 0; round < 20; ++round) {
    std::vector<Sample> samples;
    for (int i = 0; i < 200; ++i) {
      samples.push_back(
          {{place(random), place(random), place(random), 0}, static_cast<double>(i) * 1e-3});
    }
    const Neighbours neighbours(samples, 1, 40);  // so steep that only the nearest has a say
    for (int query = 0; query < 10; ++query) {
      const Neighbours::Place at = {place(random), place(random), place(random), 0};
      double best = 1e9;
      for (const Sample& sample : samples) {
        double squared = 0;
        for (std::size_t axis = 0; axis < 3; ++axis) {
          squared +=
              std::pow(static_cast<double>(at[axis]) - static_cast<double>(sample.place[axis]), 2);
        }
        best = std::min(best, std::sqrt(squared));
      }
      EXPECT_NEAR(neighbours.at(at).distance, best, 1e-9);
    }
  }
}

TEST(Neighbours, DoNotDependOnTheOrderOfTheSamples) {
  std::vector<Sample> samples = {
      {{1, 5, 2, 0}, 0.1}, {{4, 2, 2, 0}, 0.2}, {{2, 2, 8, 0}, -0.3}, {{3, 3, 3, 0}, 0.05}};
  const double there = Neighbours(samples, 2, 3).at({2.5F, 3, 3, 0}).residual;
  std::reverse(samples.begin(), samples.end());
  EXPECT_EQ(Neighbours(samples, 2, 3).at({2.5F, 3, 3, 0}).residual, there);
}

}  // namespace
}  // namespace headway
