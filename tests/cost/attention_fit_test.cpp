#include "sim/cost/attention_fit.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace headway {
namespace {

// Samples of few blocks alone leave the rate of many open; what the authors state bounds it.
TEST(AttentionFit, GoesNoFasterThanTheAuthorsSay) {
  std::vector<AttentionSample> samples;
  for (const std::int64_t sequence : {512, 1024, 2048, 4096}) {
    AttentionSample sample;
    sample.point.batch = 1;
    sample.point.heads = sample.point.kv_heads = 16;
    sample.point.sequence = sequence;
    sample.point.head_dim = sample.point.head_dim_v = 128;
    const double flops = 2.0 * 16 * static_cast<double>(sequence * sequence) * 256 / 2;
    sample.point.time = Time::from_seconds(flops / 200e12);
    samples.push_back(sample);
  }
  const auto rate = [&](std::optional<FlopRate> fastest) {
    return fit_attention(samples, AttentionKernel::kFlash2, 108, 0.8, fastest)
        .forward.rate.per_second;
  };
  EXPECT_GT(rate(std::nullopt), 190e12);
  EXPECT_NEAR(rate(FlopRate{180e12}), 180e12, 1e6);
}

}  // namespace
}  // namespace headway
