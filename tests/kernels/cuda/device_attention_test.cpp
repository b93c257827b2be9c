#include "kernels/cuda/device_operators.hpp"
#include "tests/kernels/cuda/both_backends.hpp"

namespace headway {
namespace {

struct Case {
  std::int64_t batch, heads, kv_heads, sequence, head_dim, value_dim;
};
// Tiles of 32 with a short last one; heads of more than one chunk of 32 columns; shared keys.
constexpr Case kCases[] = {{2, 4, 2, 37, 5, 5}, {1, 2, 1, 70, 40, 33}, {1, 1, 1, 3, 8, 8}};

double difference(const Case& of, AttentionKernel kernel, DataType type, bool causal, bool dropout,
                  bool backward) {
  Attention attention;
  attention.backward = backward;
  attention.batch = of.batch;
  attention.heads = of.heads;
  attention.kv_heads = of.kv_heads;
  attention.sequence_q = attention.sequence_kv = of.sequence;
  attention.head_dim = of.head_dim;
  attention.head_dim_v = of.value_dim;
  attention.kernel = kernel;
  attention.causal = causal;
  attention.dropout = dropout;
  attention.type = type;
  Placement placement;
  placement.dropout = dropout ? 0.3 : 0;
  placement.site = "attention.1";
  placement.first_token = of.sequence * 6;
  placement.first_head = 2;
  const std::int64_t tokens = of.batch * of.sequence;
  const Shape qkv{type, tokens,
                  (of.heads + of.kv_heads) * of.head_dim + of.kv_heads * of.value_dim};
  const Shape context{type, tokens, of.heads * of.value_dim};
  const DataType wide = type == DataType::kFp64 ? type : DataType::kFp32;
  Shape statistics{wide, tokens, of.heads};
  if (kernel != AttentionKernel::kUnfused) {
    if (!backward) return BothBackends().run(attention, {qkv}, {context, statistics}, placement);
    // Near what a forward pass of such scores leaves, so that probabilities are of size 1.
    for (std::int64_t i = 0; i < tokens * of.heads; ++i) {
      statistics.values.push_back(2 + 0.01 * static_cast<double>(i % 7));
    }
    return BothBackends().run(attention, {context, qkv, context, statistics}, {qkv}, placement);
  }
  const Shape cells{type, of.batch * of.heads * of.sequence, of.sequence};
  const Shape mask{DataType::kBool, cells.rows, cells.columns};
  std::vector<Shape> kept = {cells};
  if (dropout) kept.insert(kept.end(), {mask, cells});
  if (!backward) {
    kept.insert(kept.begin(), context);
    return BothBackends().run(attention, {qkv}, kept, placement);
  }
  kept.insert(kept.begin(), {context, qkv, context});
  return BothBackends().run(attention, kept, {qkv}, placement);
}

TEST(DeviceAttention, IsTheCpusWithAndWithoutMaskAndDropout) {
  SKIP_WITHOUT_DEVICE();
  for (const Case& of : kCases) {
    for (const AttentionKernel kernel : {AttentionKernel::kFlash2, AttentionKernel::kUnfused}) {
      for (const bool backward : {false, true}) {
        for (const bool causal : {true, false}) {
          for (const bool dropout : {false, true}) {
            // The CPU's unfused backward reads dropped probabilities, which it has with dropout
            // only.
            EXPECT_LT(difference(of, kernel, DataType::kFp64, causal, dropout, backward), 1e-11)
                << "sequence " << of.sequence << (backward ? " backward" : " forward")
                << (causal ? " causal" : "") << (dropout ? " dropout" : "") << name(kernel);
          }
        }
      }
    }
  }
}

TEST(DeviceAttention, NarrowTypesAreRoundedWhereTheCpuRounds) {
  SKIP_WITHOUT_DEVICE();
  for (const DataType type : {DataType::kFp32, DataType::kBf16, DataType::kFp16}) {
    for (const bool backward : {false, true}) {
      EXPECT_LT(difference(kCases[0], AttentionKernel::kFlash2, type, true, true, backward),
                tolerance(type));
    }
  }
}

// A ring of two ranks, zigzag, two sequences: keys one place before the queries.
TEST(DeviceAttention, KeysOfAnotherRankStandAtTheirOwnPositions) {
  SKIP_WITHOUT_DEVICE();
  for (const TokenOrder order :
       {TokenOrder::kContiguous, TokenOrder::kZigzag, TokenOrder::kStriped}) {
    for (const std::int64_t place : {0, 1}) {
      Attention attention;
      attention.batch = 2;
      attention.heads = 2;
      attention.kv_heads = 1;
      attention.sequence_q = attention.sequence_kv = 34;
      attention.head_dim = attention.head_dim_v = 4;
      attention.type = DataType::kFp64;
      attention.apart = true;
      attention.ring = 2;
      attention.distance = 1;
      attention.order = order;
      Placement placement;
      placement.map.length = 68;
      placement.map.order = order;
      placement.map.ring = 2;
      placement.map.place = place;
      const DataType type = DataType::kFp64;
      const Shape q{type, 68, 8}, k{type, 68, 4}, v{type, 68, 4}, statistics{type, 68, 2};
      EXPECT_LT(BothBackends().run(attention, {q, k, v}, {q, statistics}, placement), 1e-11);
      attention.backward = true;
      EXPECT_LT(BothBackends().run(attention, {q, q, k, v, q, statistics}, {q, k, v}, placement),
                1e-11);
    }
  }
}

}  // namespace
}  // namespace headway
