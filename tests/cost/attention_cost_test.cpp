#include "sim/cost/attention_cost.hpp"

#include <gtest/gtest.h>

namespace headway {
namespace {

Attention shape() {
  Attention attention;
  attention.batch = 2;
  attention.heads = 16;
  attention.kv_heads = 4;
  attention.sequence_q = attention.sequence_kv = 2048;
  attention.head_dim = attention.head_dim_v = 128;
  return attention;
}

AttentionRate rate() {
  AttentionRate rate;
  rate.rate = {100e12};
  rate.per_kernel = Time::from_microseconds(5);
  rate.half_sequence = 2048;
  rate.tail_waves = 0.5;
  rate.head_factor = {{64, 0.8}, {128, 1.0}};
  rate.band = 0.1;
  return rate;
}

TEST(AttentionCost, CountsFlopsAsTheFlashAttentionPapersDo) {
  // Forward, causal: 2 x 32 x 2048 x 2048 x 256 / 2; backward 2.5 times that.
  Attention attention = shape();
  EXPECT_DOUBLE_EQ(executed_flops(attention).count, 2.0 * 32 * 2048 * 2048 * 256 / 2);
  attention.backward = true;
  EXPECT_DOUBLE_EQ(executed_flops(attention).count, 2.5 * 2.0 * 32 * 2048 * 2048 * 256 / 2);
  attention.causal = false;
  EXPECT_DOUBLE_EQ(executed_flops(attention).count, 2.5 * 2.0 * 32 * 2048 * 2048 * 256);
}

TEST(AttentionCost, IsFlopsOverTheCorrectedRate) {
  // 34.36 GFLOP at 100 TFLOP/s x 2048 / (2048 + 2048); 512 blocks on 128 multiprocessors are 4
  // waves and the tail 0.5 more: 34.36e9 / 50e12 x (1 + 0.5 / 4) + 5 us.
  const double flops = 2.0 * 32 * 2048 * 2048 * 256 / 2;
  EXPECT_NEAR(model_seconds(rate(), 128, shape()), flops / 50e12 * 1.125 + 5e-6, 1e-12);
}

TEST(AttentionCost, HeadFactorIsLinearBetweenAndHeldBeyond) {
  const auto seconds = [&](std::int64_t head_dim) {
    Attention attention = shape();
    attention.head_dim = attention.head_dim_v = head_dim;
    return (model_seconds(rate(), 128, attention) - 5e-6) / static_cast<double>(head_dim);
  };
  EXPECT_NEAR(seconds(64) / seconds(128), 1 / 0.8, 1e-9);
  EXPECT_NEAR(seconds(96) / seconds(128), 1 / 0.9, 1e-9);
  EXPECT_NEAR(seconds(32) / seconds(128), 1 / 0.8, 1e-9);
  EXPECT_NEAR(seconds(256) / seconds(128), 1, 1e-9);
}

TEST(AttentionCost, IsExactAtAMeasuredShape) {
  AttentionRate measured = rate();
  measured.points = {{2, 16, 4, 2048, 128, 128, true, Time::from_microseconds(800)}};
  const AttentionCost cost(measured, 128);
  const Price price = cost.price(shape(), Regime::kBurst);
  EXPECT_NEAR(price.time.microseconds(), 800, 1e-6);
  EXPECT_EQ(price.grade, Grade::kMeasured);
}

TEST(AttentionCost, UnderLoadTakesTheSustainedFactor) {
  AttentionRate slow = rate();
  slow.sustained_factor = 1.25;
  const AttentionCost cost(slow, 128);
  EXPECT_NEAR(cost.price(shape(), Regime::kSustained).time.seconds() /
                  cost.price(shape(), Regime::kBurst).time.seconds(),
              1.25, 1e-9);
}

}  // namespace
}  // namespace headway
