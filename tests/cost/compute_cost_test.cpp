#include "sim/cost/compute_cost.hpp"

#include <random>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headway {
namespace {

using ::testing::HasSubstr;

class ComputeCostOnA100 : public ::testing::Test {
 protected:
  Profile profile_ = read_profile("a100-sxm-80gb");
  ComputeCost cost_{profile_};
};

Gemm gemm(std::int64_t m, std::int64_t n, std::int64_t k, GemmRole role = GemmRole::kForward) {
  Gemm gemm;
  gemm.role = role;
  gemm.m = m, gemm.n = n, gemm.k = k;
  return gemm;
}

std::string message(const ComputeCost& cost, const Operation& operation) {
  try {
    cost.price(operation);
  } catch (const InvalidInput& error) {
    return error.what();
  }
  return "no error";
}

TEST_F(ComputeCostOnA100, LargeGemmsReachThreeQuartersOfPeakUnderLoad) {
  const Gemm large = gemm(4096, 12288, 12288);
  const double rate = flops(large).count / cost_.price(large).time.seconds();
  EXPECT_GT(rate, 0.70 * 312e12);
  EXPECT_LT(rate, 0.85 * 312e12);
}

TEST_F(ComputeCostOnA100, GradientsOfAGemmTakeAboutItsTime) {
  const double forward = cost_.price(gemm(4096, 8192, 8192)).time.seconds();
  for (const GemmRole role : {GemmRole::kInputGradient, GemmRole::kWeightGradient}) {
    const double gradient = cost_.price(gemm(4096, 8192, 8192, role)).time.seconds();
    EXPECT_NEAR(gradient / forward, 1, 0.12) << name(role);
  }
}

TEST_F(ComputeCostOnA100, UnfusedAttentionIsItsMultiplicationsAndItsSoftmax) {
  Attention attention;
  attention.batch = 1;
  attention.heads = attention.kv_heads = 12;
  attention.sequence_q = attention.sequence_kv = 2048;
  attention.head_dim = attention.head_dim_v = 128;
  attention.kernel = AttentionKernel::kUnfused;
  // Masked softmax: 1 + 2 B for each of 12 x 2048 x 2048 scores at 0.8 x 2.039 TB/s and 2 us (what
  // lies beyond the diagonal is not read); dropout 5 B more and another 2 us.
  const double scores = 12.0 * 2048 * 2048;
  const double without = cost_.price(attention).time.seconds();
  attention.dropout = true;
  const double with = cost_.price(attention).time.seconds();
  EXPECT_NEAR(with - without, scores * 5 / (0.8 * 2.039e12) + 2e-6, 1e-9);
  EXPECT_GT(without, scores * 3 / (0.8 * 2.039e12) + 2 * 2 * scores * 128 / 312e12);
  attention.dropout = false;
  attention.causal = false;
  const double whole = cost_.price(attention).time.seconds();
  EXPECT_NEAR(whole - without, scores * 1 / (0.8 * 2.039e12), 1e-9);
  // Eager in fp32: cast 6 B, mask 8, softmax 8, cast 6, where the fused kernel moves 4.
  attention.fused = false;
  EXPECT_NEAR(cost_.price(attention).time.seconds() - whole,
              scores * (28 - 4) / (0.8 * 2.039e12) + 3 * 2e-6, 1e-9);
  attention.causal = attention.fused = true;
  const double forward = cost_.price(attention).time.seconds();
  attention.backward = true;
  const double backward = cost_.price(attention).time.seconds();
  EXPECT_GT(backward, 1.6 * forward);  // four multiplications against two, 4 B against 3
  EXPECT_LT(backward, 2.2 * forward);
}

TEST_F(ComputeCostOnA100, FlashAttentionIsMuchFasterThanUnfused) {
  Attention attention;
  attention.batch = 1;
  attention.heads = attention.kv_heads = 12;
  attention.sequence_q = attention.sequence_kv = 4096;
  attention.head_dim = attention.head_dim_v = 128;
  const auto seconds = [&](AttentionKernel kernel) {
    attention.kernel = kernel;
    return cost_.price(attention).time.seconds();
  };
  EXPECT_LT(seconds(AttentionKernel::kFlash2), seconds(AttentionKernel::kFlash1));
  EXPECT_LT(1.5 * seconds(AttentionKernel::kFlash1), seconds(AttentionKernel::kUnfused));
  // Transformer Engine has nothing faster on Ampere.
  EXPECT_EQ(seconds(AttentionKernel::kCudnn), seconds(AttentionKernel::kFlash2));
}

TEST_F(ComputeCostOnA100, KernelsAreBytesOverTheMemorysShareAndALaunch) {
  Kernel kernel;
  kernel.kind = KernelKind::kResidualAdd;
  kernel.rows = 4096;
  kernel.columns = 8192;
  // 6 B x 33.6 M at 0.8 x 2.039 TB/s = 123.4 us, and 2 us.
  EXPECT_NEAR(cost_.price(kernel).time.microseconds(), 6 * 4096 * 8192 / (0.8 * 2.039e6) + 2, 1e-3);
}

TEST_F(ComputeCostOnA100, UnfusedRmsNormTakes30And80PicosecondsPerElement) {
  Kernel kernel;
  kernel.kind = KernelKind::kRmsNormForward;
  kernel.fused = false;
  kernel.rows = 8192;
  kernel.columns = 8192;
  const double elements = 8192.0 * 8192;
  EXPECT_NEAR(cost_.price(kernel).time.seconds() / elements, 30e-12, 4e-12);
  kernel.kind = KernelKind::kRmsNormBackward;
  EXPECT_NEAR(cost_.price(kernel).time.seconds() / elements, 80e-12, 10e-12);
}

TEST_F(ComputeCostOnA100, NamesWhatTheProfileLacks) {
  Gemm fp8 = gemm(4096, 4096, 4096);
  fp8.type = DataType::kFp8;
  const std::string no_fp8 = message(cost_, fp8);
  EXPECT_THAT(no_fp8, HasSubstr("a100-sxm-80gb: /gemm"));
  EXPECT_THAT(no_fp8, HasSubstr("no entry for matrix multiplications of fp8 inputs"));
  EXPECT_THAT(no_fp8, HasSubstr("bf16"));
  Attention attention;
  attention.batch = attention.heads = attention.kv_heads = 1;
  attention.sequence_q = attention.sequence_kv = 128;
  attention.head_dim = attention.head_dim_v = 64;
  attention.kernel = AttentionKernel::kFlash3;
  const std::string no_flash3 = message(cost_, attention);
  EXPECT_THAT(no_flash3, HasSubstr("a100-sxm-80gb: /attention"));
  EXPECT_THAT(no_flash3, HasSubstr("flash3 forward"));
  EXPECT_THAT(no_flash3, HasSubstr("flash2"));
}

TEST_F(ComputeCostOnA100, EagerVariantsLaunchMore) {
  Kernel norm;
  norm.kind = KernelKind::kRmsNormForward;
  norm.rows = norm.columns = 1024;
  EXPECT_EQ(cost_.launches(norm), 1);
  norm.fused = false;
  EXPECT_EQ(cost_.launches(norm), 7);
  EXPECT_EQ(cost_.launches(gemm(1, 1, 1)), 1);
  EXPECT_EQ(cost_.launches(HostWork{}), 0);
  // Two multiplications, the softmax, and the copy that brings the heads together; backward four,
  // one, and the copy that takes them apart.
  Attention unfused;
  unfused.kernel = AttentionKernel::kUnfused;
  EXPECT_EQ(cost_.launches(unfused), 4);
  unfused.backward = true;
  EXPECT_EQ(cost_.launches(unfused), 6);
  EXPECT_EQ(cost_.launches(Collective{}), 1);
}

// Twice the tokens never take less time, and never much more than twice.
TEST_F(ComputeCostOnA100, PricesGrowWithTheTokensAtRandom) {
  std::mt19937 random(11);
  std::uniform_int_distribution<std::int64_t> units(4, 128);
  for (int i = 0; i < 200; ++i) {
    const Gemm one = gemm(64 * units(random), 64 * units(random), 64 * units(random));
    Gemm two = one;
    two.m *= 2;
    const double ratio = cost_.price(two).time.seconds() / cost_.price(one).time.seconds();
    EXPECT_GT(ratio, 0.95) << one.m << " " << one.n << " " << one.k;
    EXPECT_LT(ratio, 2.7) << one.m << " " << one.n << " " << one.k;
  }
}

TEST_F(ComputeCostOnA100, NoGemmBeatsThePeakAtRandom) {
  std::mt19937 random(12);
  std::uniform_int_distribution<std::int64_t> size(1, 40000);
  for (int i = 0; i < 200; ++i) {
    const Gemm any = gemm(size(random), size(random), size(random));
    const Price price = cost_.price(any);
    EXPECT_LT(flops(any).count / price.time.seconds(), 312e12);
    EXPECT_GT(price.band, 0);
  }
}

TEST(ComputeCost, BurstIsFasterThanSustained) {
  const Profile profile = read_profile("h100-sxm");
  const ComputeCost burst(profile, Regime::kBurst);
  const ComputeCost sustained(profile);
  const Gemm large = gemm(8192, 8192, 8192);
  EXPECT_NEAR(sustained.price(large).time.seconds() / burst.price(large).time.seconds(), 1.2, 0.01);
  Gemm fp8 = large;
  fp8.type = DataType::kFp8;
  EXPECT_LT(sustained.price(fp8).time.seconds(), 0.65 * sustained.price(large).time.seconds());
}

TEST(ComputeCost, EveryMeasuredShapeIsPricedExactlyInItsRegime) {
  for (const char* name : {"a100-sxm-80gb", "b200"}) {
    const Profile profile = read_profile(name);
    const ComputeCost burst(profile, Regime::kBurst);
    const ComputeCost sustained(profile, Regime::kSustained);
    const GemmTable& table = profile.gemms.front();
    for (std::size_t i = 0; i < table.points.size(); i += 7) {
      const GemmPoint& point = table.points[i];
      if (point.shape.rows % 8 + point.shape.columns % 8 + point.shape.depth % 8 != 0) continue;
      Gemm asked = gemm(point.shape.rows, point.shape.columns, point.shape.depth, point.role);
      if (point.role == GemmRole::kInputGradient) {
        asked.n = point.shape.depth, asked.k = point.shape.columns;
      } else if (point.role == GemmRole::kWeightGradient) {
        asked.n = point.shape.rows, asked.k = point.shape.columns, asked.m = point.shape.depth;
      }
      const ComputeCost& cost = point.regime == Regime::kBurst ? burst : sustained;
      EXPECT_NEAR(cost.price(asked).time.seconds() / point.time.seconds(), 1, 1e-9) << name << i;
    }
  }
}

}  // namespace
}  // namespace headway
