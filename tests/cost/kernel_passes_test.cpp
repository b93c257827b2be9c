#include <gtest/gtest.h>

#include "sim/cost/compute_cost.hpp"

namespace headway {
namespace {

// Bytes per element of a kernel over many elements.
double per_element(KernelKind kind, bool fused = true, bool bias = false,
                   DataType type = DataType::kBf16, DataType output = DataType::kBf16) {
  Kernel kernel;
  kernel.kind = kind;
  kernel.rows = 1000;
  kernel.columns = 64;
  kernel.type = type;
  kernel.output = output;
  kernel.fused = fused;
  kernel.bias = bias;
  return static_cast<double>(bytes_moved(kernel).count) / 64000;
}

TEST(KernelPasses, OfFusedKernelsAreOneReadOrWriteOfEachOperand) {
  EXPECT_EQ(per_element(KernelKind::kRmsNormForward), 4);
  EXPECT_EQ(per_element(KernelKind::kRmsNormBackward), 6);
  EXPECT_EQ(per_element(KernelKind::kLayerNormForward), 4);
  EXPECT_EQ(per_element(KernelKind::kSwigluForward), 6);    // gate and up in, product out
  EXPECT_EQ(per_element(KernelKind::kSwigluBackward), 10);  // dy, gate, up in, both gradients out
  EXPECT_EQ(per_element(KernelKind::kGeluForward, true, true), 4);
  EXPECT_EQ(per_element(KernelKind::kResidualAdd), 6);
  EXPECT_EQ(per_element(KernelKind::kBiasDropoutAddForward, true, true), 7);  // and a mask
  EXPECT_EQ(per_element(KernelKind::kDropoutForward), 5);
}

TEST(KernelPasses, OfUnfusedRmsNormAreAboutTenTimesTheFusedOnes) {
  EXPECT_EQ(per_element(KernelKind::kRmsNormForward, false), 36);
  EXPECT_EQ(per_element(KernelKind::kRmsNormBackward, false), 84);
}

TEST(KernelPasses, OfTheUnfusedLossAddUp) {
  // In fp32: maximum 4; subtract 8, exponential 8, sum 4, divide 8; backward product 8. In 16 bits
  // half of that.
  const DataType full = DataType::kFp32;
  EXPECT_EQ(per_element(KernelKind::kCrossEntropyMaximum, false, false, full, full), 4);
  EXPECT_EQ(per_element(KernelKind::kCrossEntropySums, false, false, full, full), 28);
  EXPECT_EQ(per_element(KernelKind::kCrossEntropyBackward, false, false, full, full), 8);
  EXPECT_EQ(per_element(KernelKind::kCrossEntropyMaximum, false), 2);
  EXPECT_EQ(per_element(KernelKind::kCrossEntropySums, false), 14);
  EXPECT_EQ(per_element(KernelKind::kCrossEntropyBackward, false), 4);
}

TEST(KernelPasses, OfGradientAccumulationDependOnTheMainGradient) {
  const DataType half = DataType::kBf16;
  EXPECT_EQ(per_element(KernelKind::kGradientAccumulate, true, false, half, half), 6);
  EXPECT_EQ(per_element(KernelKind::kGradientAccumulate, true, false, half, DataType::kFp32), 10);
}

TEST(KernelPasses, OfAdamAreSevenWords) {
  EXPECT_EQ(per_element(KernelKind::kAdam, true, false, DataType::kFp32, DataType::kFp32), 28);
}

TEST(KernelPasses, OfStatisticsPerRowForgetTheColumns) {
  Kernel kernel;
  kernel.kind = KernelKind::kCrossEntropyLoss;
  kernel.rows = 2048;
  kernel.columns = 51200;
  kernel.type = kernel.output = DataType::kFp32;
  EXPECT_EQ(bytes_moved(kernel).count, 2048 * 12);
}

TEST(KernelPasses, OfQuantisingReadTwoBytesAndWriteOneForEachCopy) {
  Kernel kernel;
  kernel.kind = KernelKind::kQuantise;
  kernel.rows = 128;
  kernel.columns = 64;
  kernel.output = DataType::kFp8;
  EXPECT_EQ(bytes_moved(kernel).count, 128 * 64 * 3);
  kernel.transposed = true;
  EXPECT_EQ(bytes_moved(kernel).count, 128 * 64 * 4);
  kernel.kind = KernelKind::kAmax;
  EXPECT_EQ(bytes_moved(kernel).count, 128 * 64 * 2);
  // Masters to 8 bits: their largest first, then again to convert them.
  kernel.kind = KernelKind::kCastParameters;
  kernel.type = DataType::kFp32;
  EXPECT_EQ(bytes_moved(kernel).count, 128 * 64 * (4 + 4 + 1));
}

TEST(KernelPasses, OfEveryKindAreSomethingAndGrowWithTheRows) {
  for (int i = 0; i <= static_cast<int>(KernelKind::kCastParameters); ++i) {
    for (const bool fused : {true, false}) {
      Kernel kernel;
      kernel.kind = static_cast<KernelKind>(i);
      kernel.rows = 128;
      kernel.columns = 64;
      kernel.head_dim = kernel.plain_dim = kernel.value_dim = 16;  // of latent attention's heads
      kernel.fused = fused;
      const std::int64_t once = bytes_moved(kernel).count;
      EXPECT_GT(once, 0) << name(kernel.kind);
      EXPECT_GE(launches(kernel), 1) << name(kernel.kind);
      kernel.rows *= 2;
      EXPECT_EQ(bytes_moved(kernel).count, 2 * once) << name(kernel.kind);
    }
  }
}

TEST(KernelPasses, OfEagerVariantsAreNeverFewer) {
  for (int i = 0; i <= static_cast<int>(KernelKind::kCastParameters); ++i) {
    const auto kind = static_cast<KernelKind>(i);
    for (const bool bias : {true, false}) {
      EXPECT_GE(per_element(kind, false, bias), per_element(kind, true, bias)) << name(kind);
    }
  }
}

}  // namespace
}  // namespace headway
