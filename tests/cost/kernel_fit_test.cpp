#include "sim/cost/kernel_fit.hpp"

#include <gtest/gtest.h>

namespace headway {
namespace {

ElementwiseRow row(const std::string& shape, double time_us = 1) {
  ElementwiseRow row;
  row.gpu = "X";
  row.operation = "op";
  row.dtype = "bf16";
  row.shape = shape;
  row.note = "forward; minimal-traffic bytes";
  row.source = "a test";
  row.time_us = time_us;
  return row;
}

TEST(KernelFit, UnderstandsTheShapesOfItsSources) {
  EXPECT_EQ(elements_of(row("rms_norm fwd 4096x8192")), 4096.0 * 8192);
  EXPECT_EQ(elements_of(row("1024x2048")), 1024.0 * 2048);
  EXPECT_EQ(elements_of(row("H=2048 M=512")), 2048.0 * 512);
  EXPECT_EQ(elements_of(row("V=16384 B=8 T=2048")), 16384.0 * 8 * 2048);
  EXPECT_EQ(elements_of(row("V=1024 B=8 T=2048 D=4096")), 8.0 * 2048 * 4096);
  EXPECT_EQ(elements_of(row("rope fwd tokens=2048 q_heads=8 kv_heads=1 hd=128")), 2048.0 * 9 * 128);
  EXPECT_EQ(elements_of(row("H=8192 seq_len=2048 num_q_heads=32 num_kv_heads=8")), std::nullopt);
  EXPECT_EQ(elements_of(row("T=4096 hidden_size=8192 num_q_heads=32 num_kv_heads=8")),
            4096.0 * 40 * 256);
  EXPECT_EQ(elements_of(row("something else")), std::nullopt);
}

TEST(KernelFit, FindsTheLineThatTheTimesLieOn) {
  // 4 us and 2 ps an element.
  const auto kernels = fit_kernels(
      {row("1000x1000", 6), row("1000x2000", 8), row("1000x8000", 20), row("1000x4000", 12)}, "X");
  ASSERT_EQ(kernels.size(), 1U);
  EXPECT_NEAR(kernels[0].per_kernel.microseconds(), 4, 1e-6);
  EXPECT_NEAR(kernels[0].picoseconds_per_element, 2, 1e-9);
  EXPECT_EQ(kernels[0].pass, "forward");
  EXPECT_EQ(kernels[0].left_out.count, 4);
  EXPECT_NEAR(kernels[0].left_out.worst, 0, 1e-9);
}

TEST(KernelFit, LeavesOutFlaggedRowsAndOtherDevices) {
  ElementwiseRow flagged = row("1000x500", 100);
  flagged.flag = "L2";
  ElementwiseRow other = row("1000x500", 100);
  other.gpu = "Y";
  const auto kernels = fit_kernels(
      {row("1000x1000", 1), row("1000x2000", 2), row("1000x3000", 3), flagged, other}, "X");
  ASSERT_EQ(kernels.size(), 1U);
  EXPECT_NEAR(kernels[0].picoseconds_per_element, 1, 1e-9);
}

}  // namespace
}  // namespace headway
