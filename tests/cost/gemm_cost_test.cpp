#include "sim/cost/gemm_cost.hpp"

#include <cmath>

#include <gtest/gtest.h>

namespace headway {
namespace {

// 100 multiprocessors of 1 TFLOP/s; 1 TB/s.
GemmDevice device() { return {100e12, 1e12, 100, 2, 2}; }

GemmTable table() {
  GemmTable table;
  table.types = {DataType::kBf16};
  table.model.tiles = {{128, 128, 0.5}};
  table.model.per_kernel = Time::from_microseconds(3);
  table.model.per_wave = Time::from_microseconds(1);
  table.model.wave_softness = 0;
  table.model.memory_share = 1;
  table.sustained_factor = 1.1;
  table.input_gradient_factor = 1.2;
  table.weight_gradient_factor = 1.3;
  table.misaligned_factor = 2;
  table.points = {
      {{1024, 1024, 1024}, GemmRole::kForward, Regime::kBurst, Time::from_microseconds(50)}};
  table.left_out = {10, 0.02, 0.08, 0.2};
  table.model_alone = {10, 0.05, 0.15, 0.4};
  return table;
}

TEST(GemmModel, IsLaunchPlusWavesPlusMemory) {
  // 1280 x 1280 in tiles of 128: 100 blocks, one wave. A tile of depth 4096 has 2 x 128 x 128 x
  // 4096 = 134.2 MFLOP at 0.5 TFLOP/s: 268.435 us, and 1 us the wave. Memory: (2 x 1280 x 4096 x 2
  // + 1280^2 x 2) B at 1 TB/s = 24.248 us. 3 + (269.435^4 + 24.248^4)^(1/4) us.
  const double compute = 268.435456 + 1;
  const double memory = (2 * 1280.0 * 4096 * 2 + 1280.0 * 1280 * 2) * 1e-6;
  const double expected = 3 + std::pow(std::pow(compute, 4) + std::pow(memory, 4), 0.25);
  EXPECT_NEAR(model_seconds(table().model, device(), {1280, 1280, 4096}) * 1e6, expected, 1e-6);
}

TEST(GemmModel, OneBlockMoreThanAWaveCostsAnotherWave) {
  const GemmModel model = table().model;
  const double one = model_seconds(model, device(), {1280, 1280, 8192});
  const double two = model_seconds(model, device(), {1280, 1281, 8192});
  EXPECT_GT(two / one, 1.15);  // a half wave may be had by splitting the depth
  EXPECT_LT(two / one, 2.01);
}

TEST(GemmModel, DepthIsWalkedInStepsOf32) {
  const GemmModel model = table().model;
  const GemmShape odd = {4096, 4096, 80};
  const GemmShape even = {4096, 4096, 96};
  // Compute is equal, memory is a little less.
  EXPECT_LE(model_seconds(model, device(), odd), model_seconds(model, device(), even));
  EXPECT_GT(model_seconds(model, device(), odd), 0.95 * model_seconds(model, device(), even));
}

TEST(GemmModel, ABatchFillsTheDeviceTogether) {
  const GemmModel model = table().model;
  const GemmShape one = {128, 128, 512};
  const double single = model_seconds(model, device(), one);
  const double hundred = model_seconds(model, device(), one, 100);
  EXPECT_LT(hundred, 2 * single);
  EXPECT_GT(model_seconds(model, device(), one, 10000), 20 * single);
}

TEST(GemmCost, IsExactAtAMeasuredShape) {
  const GemmTable measured = table();
  const GemmCost cost(measured, device());
  const Price price = cost.price({1024, 1024, 1024}, GemmRole::kForward, Regime::kBurst);
  EXPECT_NEAR(price.time.microseconds(), 50, 1e-6);
  EXPECT_EQ(price.grade, Grade::kMeasured);
  EXPECT_LT(price.band, 0.05);
}

TEST(GemmCost, IsTheModelFarFromEveryMeasuredShape) {
  const GemmTable measured = table();
  const GemmCost cost(measured, device());
  const GemmShape far = {1 << 17, 1 << 15, 1 << 15};
  const Price price = cost.price(far, GemmRole::kForward, Regime::kBurst);
  const double plain = cost.plain_seconds(far, GemmRole::kForward, Regime::kBurst);
  EXPECT_NEAR(price.time.seconds() / plain, 1, 0.02);
  EXPECT_EQ(price.grade, Grade::kExtrapolated);
  EXPECT_GT(price.band, 0.15);
}

TEST(GemmCost, GradesFallWithTheDistanceToMeasuredShapes) {
  const GemmTable measured = table();
  const GemmCost cost(measured, device());
  const auto grade = [&](std::int64_t rows) {
    return cost.price({rows, 1024, 1024}, GemmRole::kForward, Regime::kBurst).grade;
  };
  EXPECT_EQ(grade(1280), Grade::kMeasured);
  EXPECT_EQ(grade(2048), Grade::kFitted);
  EXPECT_EQ(grade(8192), Grade::kExtrapolated);
}

TEST(GemmCost, FactorsOfRegimeAndRoleMultiply) {
  GemmTable measured = table();
  measured.points.clear();
  const GemmCost cost(measured, device());
  const GemmShape shape = {2048, 2048, 2048};
  const double burst = cost.plain_seconds(shape, GemmRole::kForward, Regime::kBurst);
  EXPECT_DOUBLE_EQ(cost.plain_seconds(shape, GemmRole::kForward, Regime::kSustained) / burst, 1.1);
  EXPECT_DOUBLE_EQ(cost.plain_seconds(shape, GemmRole::kInputGradient, Regime::kSustained) / burst,
                   1.1 * 1.2);
  EXPECT_DOUBLE_EQ(cost.plain_seconds(shape, GemmRole::kWeightGradient, Regime::kBurst) / burst,
                   1.3);
}

TEST(GemmCost, AnOddDimensionTakesTheMisalignedFactor) {
  GemmTable measured = table();
  measured.points.clear();
  const GemmCost cost(measured, device());
  const double even = cost.plain_seconds({2048, 50256, 1024}, GemmRole::kForward, Regime::kBurst);
  const double odd = cost.plain_seconds({2048, 50257, 1024}, GemmRole::kForward, Regime::kBurst);
  EXPECT_NEAR(odd / even, 2, 0.01);
  EXPECT_TRUE(misaligned({2048, 2048, 108}));
  EXPECT_FALSE(misaligned({2048, 2048, 104}));
}

TEST(GemmCost, ATransferredTableIsNeverSurerThanExtrapolated) {
  GemmTable transferred = table();
  transferred.floor = Grade::kExtrapolated;
  const GemmCost cost(transferred, device());
  const Price price = cost.price({1024, 1024, 1024}, GemmRole::kForward, Regime::kBurst);
  EXPECT_EQ(price.grade, Grade::kExtrapolated);
  EXPECT_GE(price.band, 0.3);
}

TEST(GemmShape, IsOfTheMultiplicationAsExecuted) {
  Gemm gemm;
  gemm.m = 4096, gemm.n = 1536, gemm.k = 12288;
  EXPECT_EQ(executed_shape(gemm), (GemmShape{4096, 1536, 12288}));
  gemm.role = GemmRole::kInputGradient;
  EXPECT_EQ(executed_shape(gemm), (GemmShape{4096, 12288, 1536}));
  gemm.role = GemmRole::kWeightGradient;
  EXPECT_EQ(executed_shape(gemm), (GemmShape{1536, 12288, 4096}));
}

}  // namespace
}  // namespace headway
