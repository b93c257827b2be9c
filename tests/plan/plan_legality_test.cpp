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

// The layers of the published runs (VocabularyParallelism, artifact/exp_one_host.csv): 32 layers of
// 3072 on 8 stages.
TEST(RedistributedLayers, AreThoseOfThePublishedRuns) {
  Transformer model;
  model.hidden_size = 3072;
  model.num_hidden_layers = 32;
  model.num_attention_heads = model.num_key_value_heads = 24;
  model.head_dim = 128;
  model.intermediate_size = 4 * 3072;
  model.gated_mlp = false;
  const auto layers = [&](std::int64_t vocabulary, std::int64_t sequence) {
    model.vocab_size = vocabulary;
    return redistributed_layers(model, sequence, 8);
  };
  EXPECT_THAT(layers(32000, 4096), ElementsAre(4, 4, 4, 4, 4, 4, 4, 4));
  EXPECT_THAT(layers(64000, 4096), ElementsAre(4, 4, 4, 4, 4, 4, 5, 3));
  EXPECT_THAT(layers(128000, 4096), ElementsAre(4, 4, 4, 4, 4, 5, 5, 2));
  EXPECT_THAT(layers(256000, 2048), ElementsAre(4, 4, 4, 5, 5, 5, 5, 0));
  EXPECT_EQ(layers(32000, 2048).back(), 4);
  EXPECT_EQ(layers(64000, 2048).back(), 3);
  EXPECT_EQ(layers(128000, 2048).back(), 2);
  EXPECT_EQ(layers(256000, 4096).back(), 0);
}

}  // namespace
}  // namespace headway
