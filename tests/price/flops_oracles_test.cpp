// Facts section 1 against what the lowered Program really executes.
#include <gtest/gtest.h>

#include <string>

#include "sim/model/transformer.hpp"
#include "sim/price/flops.hpp"
#include "tests/price/lowered_job.hpp"

namespace headway {
namespace {

constexpr std::int64_t kHidden = 1024, kSequence = 512, kLayers = 8, kBatch = 64;

Job job(const std::string& plan) {
  return gpt_job({kHidden, 16, kLayers, kSequence}, 64, kBatch, plan);
}

double model(const Job& resolved) {
  return model_flops(resolved.model, resolved.sequence_length, resolved.global_batch).count;
}

TEST(HardwareFlops, AreTheModelsWhereNothingIsRecomputed) {
  for (const char* plan : {R"("tp": 1)", R"("tp": 8)", R"("tp": 8, "sequence_parallel": true)",
                           R"("tp": 4, "pp": 4, "schedule": "interleaved", "vpp": 2)",
                           R"("pp": 8, "micro_batch": 2)"}) {
    const Job resolved = job(plan);
    EXPECT_DOUBLE_EQ(hardware_flops(lower(resolved)).count, model(resolved)) << plan;
  }
}

TEST(HardwareFlops, OfSelectiveRecomputationAddOneForwardOfTheAttentionCore) {
  // 4 B s^2 h a layer: the two batched products of the core.
  const Job resolved = job(R"("tp": 8, "pp": 2, "recompute": "selective")");
  const double core = 4.0 * kBatch * kSequence * kSequence * kHidden * kLayers;
  EXPECT_DOUBLE_EQ(hardware_flops(lower(resolved)).count, model(resolved) + core);
}

TEST(HardwareFlops, OfFullRecomputationAddOneForwardOfEveryLayer) {
  // 24 B s h^2 + 4 B s^2 h a layer: factor 4 instead of 3, but for the head. As SC21 eq. 3 counts.
  const Job resolved = job(R"("tp": 8, "pp": 2, "recompute": "full")");
  const double layer = 24.0 * kBatch * kSequence * kHidden * kHidden +
                       4.0 * kBatch * kSequence * kSequence * kHidden;
  const double executed = hardware_flops(lower(resolved)).count;
  EXPECT_DOUBLE_EQ(executed, model(resolved) + layer * kLayers);
  EXPECT_DOUBLE_EQ(executed,
                   model_flops(resolved.model, kSequence, kBatch, FlopsConvention::kSc21).count);
}

TEST(HardwareFlops, OfGpt3AreTheOracle) {
  // 175B, s 2048, V 51200, batch 1536, full recomputation: 4.510971e18 (facts 1.4, SC21).
  const Job resolved =
      gpt_job({12288, 96, 96}, 1024, 1536, R"("tp": 8, "pp": 16, "recompute": "full")");
  EXPECT_NEAR(hardware_flops(lower(resolved)).count / 4.510971e18, 1, 1e-6);
}

}  // namespace
}  // namespace headway
