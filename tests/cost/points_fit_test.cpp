#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/cost/compute_cost.hpp"
#include "sim/cost/fit.hpp"
#include "sim/cost/gemm_cost.hpp"

namespace headway {
namespace {

const Profile& base() {
  static const Profile kBase = read_profile("a100-sxm-80gb");
  return kBase;
}

double seconds(const Profile& profile, std::int64_t rows) {
  Gemm gemm;
  gemm.m = rows;
  gemm.n = gemm.k = 3328;
  return ComputeCost(profile, Regime::kBurst).price(gemm).time.seconds();
}

// A device whose every multiplication takes 1.3 times as long.
PointSet slower_points(int columns) {
  PointSet points;
  const GemmTable& table = *base().gemm_table(DataType::kBf16);
  const Device& device = base().device;
  const GemmDevice offers = {device.dense_peak.at(DataType::kBf16).per_second,
                             device.memory_bandwidth.bytes_per_second, device.multiprocessors, 2,
                             2};
  for (std::int64_t rows = 512; rows <= 16384; rows *= 2) {
    for (int i = 1; i <= columns; ++i) {
      const GemmShape shape = {rows, 512 * i, 4096};
      const double time = 1.3 * model_seconds(table.model, offers, shape);
      points.gemm.push_back({"A100-SXM4-80GB", "bf16", "TN", "", "mine", shape, time * 1e6});
    }
  }
  return points;
}

TEST(PointsFit, FollowsItsPointsAndSaysHowWellOnOthers) {
  const PointsFit fit = fit_points(slower_points(10), base());
  EXPECT_EQ(fit.used, 60);
  ASSERT_EQ(fit.left_out.size(), 1U);
  EXPECT_EQ(fit.left_out[0].what, "gemm bf16");
  EXPECT_EQ(fit.left_out[0].errors.count, 60);
  EXPECT_LT(fit.left_out[0].errors.median, 0.05);
  const GemmTable& old = *base().gemm_table(DataType::kBf16);
  const GemmTable& table = *fit.profile.gemm_table(DataType::kBf16);
  EXPECT_EQ(table.points.size(), 60U);
  EXPECT_EQ(table.sustained_factor, old.sustained_factor);  // nothing told another
  // What no point tells stays.
  EXPECT_EQ(fit.profile.attention.size(), base().attention.size());
  EXPECT_THAT(left_out_text(fit.left_out), testing::HasSubstr("gemm bf16"));
  EXPECT_EQ(profile_text(parse_profile(profile_text(fit.profile), "text")),
            profile_text(fit.profile));
}

TEST(PointsFit, AFewPointsOnlyCorrectTheirSurroundings) {
  PointSet points;
  const double time = 2 * seconds(base(), 4096);
  points.gemm = {{"A100-SXM4-80GB", "bf16", "TN", "", "mine", {4096, 3328, 3328}, time * 1e6}};
  const PointsFit fit = fit_points(points, base());
  EXPECT_TRUE(fit.left_out.empty());
  EXPECT_NEAR(seconds(fit.profile, 4096), time, 1e-3 * time);
  EXPECT_NEAR(seconds(fit.profile, 64), seconds(base(), 64), 0.05 * seconds(base(), 64));
}

TEST(PointsFit, TakesCurvesOfCollectivesInsideAServer) {
  PointSet points;
  for (double bytes = 1024; bytes <= 1e9; bytes *= 4) {
    CollectiveRow row = {"a100-sxm-80gb", "all_gather", "none(intra)", "", "mine", 8, 8, bytes};
    row.time_us = 20 + bytes / 2e5;
    points.collectives.push_back(row);
  }
  points.collectives.push_back(points.collectives.front());
  points.collectives.back().network = "unstated";
  const PointsFit fit = fit_points(points, base());
  const auto curve = std::find_if(
      fit.profile.collectives.begin(), fit.profile.collectives.end(),
      [](const auto& each) { return each.kind == CollectiveKind::kAllGather && each.ranks == 8; });
  ASSERT_NE(curve, fit.profile.collectives.end());
  EXPECT_NEAR(curve->time_us.at(1024), 20.005, 0.01);
  EXPECT_EQ(fit.ignored.at("collectives over a network"), 1);
  ASSERT_EQ(fit.left_out.size(), 1U);
  EXPECT_EQ(fit.left_out[0].what, "all_gather of 8");
}

TEST(PointsFit, RefusesPointsOfOtherDevicesAlone) {
  PointSet points = slower_points(1);
  for (GemmRow& row : points.gemm) row.gpu = "H100-SXM5-80GB";
  EXPECT_THROW(fit_points(points, base()), InvalidInput);
}

}  // namespace
}  // namespace headway
