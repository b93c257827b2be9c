#include "sim/model/operation.hpp"

#include <gtest/gtest.h>

#include <set>

namespace headway {
namespace {

// 2 m n k, in each of the three roles.
TEST(Operation, OfAGemmCountsAMultiplyAddAsTwo) {
  for (const GemmRole role :
       {GemmRole::kForward, GemmRole::kInputGradient, GemmRole::kWeightGradient}) {
    EXPECT_EQ(flops(Gemm{.role = role, .m = 2048, .n = 12288, .k = 1536}).count,
              2.0 * 2048 * 12288 * 1536);
  }
}

// q k^T and probabilities times v: 4 B s^2 h together (facts 1.1); the backward pass is twice that.
TEST(Operation, OfAttentionIsCountedInFull) {
  Attention attention{.batch = 2,
                      .heads = 12,
                      .kv_heads = 12,
                      .sequence_q = 2048,
                      .sequence_kv = 2048,
                      .head_dim = 128,
                      .head_dim_v = 128};
  EXPECT_EQ(flops(attention).count, 4.0 * 2 * 2048 * 2048 * (12 * 128));
  attention.kv_heads = 4;  // grouped queries change nothing here
  EXPECT_EQ(flops(attention).count, 4.0 * 2 * 2048 * 2048 * (12 * 128));
  attention.backward = true;
  EXPECT_EQ(flops(attention).count, 8.0 * 2 * 2048 * 2048 * (12 * 128));
  attention.head_dim = 192;  // latent attention: 192 for q k^T, 128 for v
  EXPECT_EQ(flops(attention).count, 4.0 * 2 * 2048 * 2048 * 12 * (192 + 128));
}

TEST(Operation, ThatIsNoMatrixProductHasNoFlops) {
  EXPECT_EQ(flops(Kernel{.kind = KernelKind::kAdam, .rows = 1000, .columns = 1000}).count, 0);
  EXPECT_EQ(flops(Collective{.elements = 1000}).count, 0);
  EXPECT_EQ(flops(HostWork{}).count, 0);
}

TEST(Collective, HasTheBytesOfItsWholeArray) {
  EXPECT_EQ(size(Collective{.kind = CollectiveKind::kAllGather, .elements = 1000}).count, 2000);
  EXPECT_EQ(size(Collective{.elements = 1000, .type = DataType::kFp32}).count, 4000);
}

// Every value of the enumeration up to `last` is found by its name, and no two share one.
template <typename Enum, typename Find>
void expect_names(Enum last, Find find) {
  std::set<std::string_view> names;
  for (int i = 0; i <= static_cast<int>(last); ++i) {
    const auto value = static_cast<Enum>(i);
    EXPECT_EQ(find(name(value)), value) << name(value);
    names.insert(name(value));
  }
  EXPECT_EQ(static_cast<int>(names.size()), static_cast<int>(last) + 1);
  EXPECT_EQ(find("nonsense"), std::nullopt);
}

TEST(Operation, NamesAreFoundAgain) {
  expect_names(GemmRole::kWeightGradient, gemm_role_named);
  expect_names(AttentionKernel::kCudnn, attention_kernel_named);
  expect_names(KernelKind::kCastParameters, kernel_kind_named);
  expect_names(CollectiveKind::kReceive, collective_kind_named);
  expect_names(ReduceOperator::kAverage, reduce_operator_named);
  expect_names(HostKind::kPause, host_kind_named);
}

// Programs on disk use these words; one of each end of the lists shows that none has slipped.
TEST(Operation, NamesAreTheWordsOfAProgram) {
  EXPECT_EQ(name(GemmRole::kInputGradient), "input_gradient");
  EXPECT_EQ(name(AttentionKernel::kFlash2), "flash2");
  EXPECT_EQ(name(KernelKind::kEmbeddingForward), "embedding_forward");
  EXPECT_EQ(name(KernelKind::kRmsNormForward), "rms_norm_forward");
  EXPECT_EQ(name(KernelKind::kBiasDropoutAddBackward), "bias_dropout_add_backward");
  EXPECT_EQ(name(KernelKind::kFusedCrossEntropyBackward), "fused_cross_entropy_backward");
  EXPECT_EQ(name(KernelKind::kCastParameters), "cast_parameters");
  EXPECT_EQ(name(CollectiveKind::kAllReduce), "all_reduce");
  EXPECT_EQ(name(CollectiveKind::kAllToAll), "all_to_all");
  EXPECT_EQ(name(ReduceOperator::kMaximum), "maximum");
  EXPECT_EQ(name(HostKind::kMicroBatch), "micro_batch");
}

// Query-key pairs that a rank of a ring computes, in halves: causal blocks count half.
std::int64_t computed_halves(TokenOrder order, bool gathered, std::int64_t place) {
  Attention attention;
  attention.batch = attention.heads = attention.kv_heads = 1;
  attention.head_dim = attention.head_dim_v = 1;
  attention.sequence_q = attention.sequence_kv = 8;
  attention.ring = 4;
  attention.order = order;
  attention.gathered = gathered;
  if (gathered) attention.sequence_kv = 32;
  std::int64_t halves = 0;
  for (attention.distance = 0; attention.distance < (gathered ? 1 : 4); ++attention.distance) {
    const std::optional<Attention> part = computed_part(attention, place);
    if (part) halves += part->sequence_q * part->sequence_kv * (part->causal ? 1 : 2);
  }
  return halves;
}

TEST(ComputedPart, ZigzagAndStripesGiveEveryRankTheSameWork) {
  // Causal attention over 32 tokens is 32 x 32 / 2 pairs; a quarter of it, in halves: 256.
  for (const bool gathered : {false, true}) {
    for (std::int64_t place = 0; place < 4; ++place) {
      EXPECT_EQ(computed_halves(TokenOrder::kZigzag, gathered, place), 256);
      EXPECT_EQ(computed_halves(TokenOrder::kStriped, gathered, place), 256);
    }
  }
}

TEST(ComputedPart, AContiguousOrderGivesTheLastRankMost) {
  // Own block 64 halves, every block before it 128; gathered the same.
  for (const bool gathered : {false, true}) {
    for (std::int64_t place = 0; place < 4; ++place) {
      EXPECT_EQ(computed_halves(TokenOrder::kContiguous, gathered, place), 64 + 128 * place);
    }
  }
}

}  // namespace
}  // namespace headway
