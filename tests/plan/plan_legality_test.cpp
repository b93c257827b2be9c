#include "sim/plan/plan_legality.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

namespace headway {
namespace {

using testing::ElementsAre;

TEST(DividedLayers, AreEqualWhereTheyDivide) {
  EXPECT_THAT(divided_layers(96, 4), ElementsAre(24, 24, 24, 24));
  EXPECT_THAT(divided_layers(96, 1), ElementsAre(96));
}

// Llama-3 405B: 126 layers on 64 stages count as 128.
TEST(DividedLayers, CountEmbeddingAndHeadAsALayerWhereThatDivides) {
  EXPECT_THAT(divided_layers(30, 8), ElementsAre(3, 4, 4, 4, 4, 4, 4, 3));
  const std::vector<std::int64_t> llama = divided_layers(126, 64);
  EXPECT_EQ(llama.front(), 1);
  EXPECT_EQ(llama.back(), 1);
  EXPECT_EQ(std::accumulate(llama.begin(), llama.end(), std::int64_t{0}), 126);
  EXPECT_THAT(divided_layers(2, 4), ElementsAre(0, 1, 1, 0));
}

TEST(DividedLayers, GiveTheRemainderToTheEarliest) {
  EXPECT_THAT(divided_layers(11, 4), ElementsAre(3, 3, 3, 2));
  EXPECT_THAT(divided_layers(9, 4), ElementsAre(3, 2, 2, 2));
}

}  // namespace
}  // namespace headway
