#include "sim/cost/fit.hpp"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "sim/cost/gemm_fit.hpp"
#include "tests/support/folders.hpp"

namespace headway {
namespace {

const PointSet& points() {
  static const PointSet kPoints = read_points(source_dir() + "/calibration/points");
  return kPoints;
}

void expect_gemm_errors(const Profile& profile) {
  for (const GemmTable& table : profile.gemms) {
    if (table.left_out.count == 0) continue;
    EXPECT_GE(table.left_out.count, 100) << profile.name;
    EXPECT_LT(table.left_out.median, 0.05) << profile.name;
    EXPECT_LT(table.left_out.p90, 0.15) << profile.name;
    // Neighbours are worth having.
    EXPECT_LT(table.left_out.median, table.model_alone.median) << profile.name;
  }
}

void expect_attention_errors(const Profile& profile) {
  for (const AttentionRate& rate : profile.attention) {
    if (rate.left_out.count == 0) continue;
    EXPECT_LT(rate.left_out.median, 0.07) << profile.name << " " << name(rate.kernel);
  }
}

void expect_kernel_errors(const Profile& profile) {
  std::vector<double> medians;
  for (const MeasuredKernel& kernel : profile.memory.measured) {
    if (kernel.left_out.count > 0) medians.push_back(kernel.left_out.median);
  }
  EXPECT_LT(median(medians), 0.15) << profile.name;
}

// Fitted anew, with every shape's (columns, depth) left out once and the model refitted without it.
TEST(Fit, PredictsLeftOutShapesOfTheA100) {
  const Profile profile = fit_profile("a100-sxm-80gb", points());
  expect_gemm_errors(profile);
  expect_attention_errors(profile);
  expect_kernel_errors(profile);
  EXPECT_NEAR(profile.gemms.front().input_gradient_factor, 1.0, 0.03);
  EXPECT_NEAR(profile.gemms.front().weight_gradient_factor, 1.05, 0.03);
  // What is shipped is what the points give.
  EXPECT_EQ(profile_text(profile), profile_text(read_profile("a100-sxm-80gb")));
}

TEST(Fit, PredictsLeftOutShapesOfTheH100) {
  const Profile profile = fit_profile("h100-sxm", points());
  expect_gemm_errors(profile);
  expect_attention_errors(profile);
  expect_kernel_errors(profile);
}

// The other shipped profiles state the errors that their fit had.
TEST(Fit, EveryShippedProfileStatesErrorsWithinTheBounds) {
  for (const char* name : {"a100-sxm-40gb", "b200", "b300", "gb200", "gb300", "h200"}) {
    const Profile profile = read_profile(name);
    expect_gemm_errors(profile);
    expect_attention_errors(profile);
  }
}

TEST(Fit, RefusesANameWithoutARecipe) { EXPECT_THROW(fit_profile("a100", points()), InvalidInput); }

TEST(GemmFit, FindsTheModelThatMadeTheTimes) {
  const GemmDevice device = {312e12, 2e12, 108, 2, 2};
  GemmModel truth;
  truth.tiles = {{128, 128, 0.8}};
  truth.per_kernel = Time::from_microseconds(4);
  truth.per_wave = Time::from_microseconds(1.2);
  truth.wave_softness = 0.3;
  truth.memory_share = 0.75;
  std::vector<GemmSample> samples;
  for (std::int64_t rows = 64; rows <= 16384; rows *= 2) {
    for (const std::int64_t columns : {512, 1536, 4096, 10240}) {
      for (const std::int64_t depth : {512, 2048, 8192}) {
        const GemmShape shape = {rows, columns, depth};
        samples.push_back({shape, GemmRole::kForward, Regime::kBurst,
                           model_seconds(truth, device, shape), "truth"});
      }
    }
  }
  GemmModel start = truth;
  start.tiles[0].efficiency = 0.6;
  start.per_kernel = Time::from_microseconds(2);
  start.per_wave = Time::from_microseconds(2);
  start.memory_share = 0.9;
  const GemmModel found = fit_gemm_model(samples, device, start, 3000);
  EXPECT_NEAR(found.tiles[0].efficiency, 0.8, 0.01);
  EXPECT_NEAR(found.per_kernel.microseconds(), 4, 0.2);
  EXPECT_NEAR(found.memory_share, 0.75, 0.02);
}

TEST(GemmFit, LevelsASourceThatIsEvenlySlower) {
  const GemmDevice device = {312e12, 2e12, 108, 2, 2};
  GemmModel model;
  model.tiles = {{128, 128, 0.8}};
  std::vector<GemmSample> samples;
  for (std::int64_t rows = 256; rows <= 65536; rows *= 2) {
    const GemmShape shape = {rows, 4096, 4096};
    const double seconds = model_seconds(model, device, shape);
    samples.push_back({shape, GemmRole::kForward, Regime::kBurst, seconds, "a"});
    samples.push_back({shape, GemmRole::kForward, Regime::kBurst, 1.1 * seconds, "b"});
  }
  const auto levelled = level_sources(samples, model, device, "a");
  ASSERT_EQ(levelled.size(), samples.size() / 2);
  for (const GemmSample& sample : levelled) {
    EXPECT_NEAR(sample.seconds / model_seconds(model, device, sample.shape), 1, 1e-9);
  }
}

TEST(GemmFit, ErrorsAreSummarisedByTheirSize) {
  const FitError error = summarize({-0.1, 0.2, 0.05, -0.4, 0.01, 0.0, 0.3, 0.02, 0.03, -0.04});
  EXPECT_EQ(error.count, 10);
  EXPECT_DOUBLE_EQ(error.median, 0.05);  // of 0 .01 .02 .03 .04 .05 .1 .2 .3 .4
  EXPECT_DOUBLE_EQ(error.p90, 0.4);
  EXPECT_DOUBLE_EQ(error.worst, 0.4);
}

}  // namespace
}  // namespace headway
