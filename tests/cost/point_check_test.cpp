#include "sim/cost/point_check.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/core/json_reader.hpp"
#include "sim/cost/compute_cost.hpp"

namespace headway {
namespace {

GemmRow gemm(const std::string& source, double time_us) {
  return {"A100-SXM4-80GB", "bf16", "TN", "", source, {4096, 4096, 4096}, time_us};
}

double predicted_us(Regime regime) {
  const Profile profile = read_profile("a100-sxm-80gb");
  Gemm shape;
  shape.m = shape.n = shape.k = 4096;
  return ComputeCost(profile, regime).price(shape).time.microseconds();
}

TEST(PointCheck, PredictsAPointInTheRegimeOfItsSource) {
  const double burst = predicted_us(Regime::kBurst);
  const double sustained = predicted_us(Regime::kSustained);
  EXPECT_GT(sustained, 1.02 * burst);
  PointSet points;
  points.gemm = {gemm("aic-sglang", burst), gemm("simumax-here", sustained / 2)};
  const PointCheck check = check_points(points, std::nullopt);
  EXPECT_EQ(check.all.errors.count, 2);
  const auto& regimes = check.by_regime.at("gemm").at("a100-sxm-80gb");
  EXPECT_NEAR(regimes.at("burst").worst, 0, 1e-5);
  EXPECT_NEAR(regimes.at("sustained").worst, 1, 1e-5);  // twice the measured time
  EXPECT_EQ(check.by.at("gemm").at("a100-sxm-80gb").errors.count, 2);
}

TEST(PointCheck, SkipsWhatNoProfileSpeaksOf) {
  PointSet points;
  points.gemm = {gemm("aic-vllm0.24.0", 1), gemm("aic-sglang", 1), gemm("stas00-mamf", 1)};
  points.gemm[1].flag = "NEAR_PEAK";
  points.gemm.push_back(gemm("aic-sglang", 1));
  points.gemm.back().gpu = "L40S";
  points.gemm.push_back(gemm("aic-sglang", 1));
  points.gemm.back().dtype = "fp8_block128";
  CollectiveRow row = {
      "H100-SXM5-80GB", "all_reduce", "EFA 32x100G (p5)", "", "awsome", 16, 8, 1e6};
  row.time_us = 100;
  points.collectives = {row};
  const PointCheck check = check_points(points, std::nullopt);
  EXPECT_EQ(check.all.errors.count, 0);
  EXPECT_EQ(check.all.skipped, 6);
  EXPECT_EQ(check.by.at("gemm").at("L40S").skipped, 1);
  EXPECT_TRUE(check.skipped.contains("no multiplications of fp8_block128 in the profile"));
  EXPECT_TRUE(check.skipped.contains("no cost over the network 'EFA 32x100G (p5)'"));
}

TEST(PointCheck, AsksOneProfileAloneWhereItIsNamed) {
  PointSet points;
  points.gemm = {gemm("aic-sglang", predicted_us(Regime::kBurst))};
  points.gemm.push_back(points.gemm.front());
  points.gemm.back().gpu = "H100-SXM5-80GB";
  const PointCheck check = check_points(points, "a100-sxm-80gb");
  EXPECT_EQ(check.by.at("gemm").at("a100-sxm-80gb").errors.count, 1);
  EXPECT_EQ(check.by.at("gemm").at("h100-sxm").skipped, 1);
  EXPECT_THROW(check_points(points, "a100"), InvalidInput);
}

TEST(PointCheck, PricesCollectivesInsideAndBetweenServers) {
  PointSet points;
  CollectiveRow inside = {"A100-SXM4-80GB", "all_reduce", "none(intra)", "", "aic-nccl", 8, 8, 1e8};
  inside.time_us = 800;
  CollectiveRow between = {"B200-SXM", "all_reduce", "IB NDR 8x400G CX7", "", "x", 16, 8, 1e8};
  between.time_us = 500;
  points.collectives = {inside, between};
  const PointCheck check = check_points(points, std::nullopt);
  EXPECT_EQ(check.all.skipped, 0);
  EXPECT_LT(check.by.at("all_reduce").at("a100-sxm-80gb").errors.worst, 0.2);
  EXPECT_LT(check.by.at("all_reduce").at("b200").errors.worst, 0.5);
}

TEST(PointCheck, IsWrittenForScripts) {
  PointSet points;
  points.gemm = {gemm("aic-sglang", 1), gemm("aic-vllm0.24.0", 1)};
  const JsonNode json = JsonNode::parse_text(check_json(check_points(points, {})), "check");
  const auto device = json.find("by")->find("gemm")->find("a100-sxm-80gb");
  ASSERT_TRUE(device);
  EXPECT_EQ(device->find("count")->integer(), 1);
  EXPECT_EQ(device->find("skipped")->integer(), 1);
  EXPECT_GT(device->find("median")->number(), 1);
  EXPECT_EQ(device->find("regimes")->find("burst")->find("count")->integer(), 1);
  EXPECT_EQ(json.find("reasons")->elements().size(), 1U);
}

}  // namespace
}  // namespace headway
