#include "kernels/cpu/attention.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/cpu/owned_matrix.hpp"

namespace headway {
namespace {

// Sequences of 37: more than two blocks of the blocked form, the last one short.
Attention grouped_query(AttentionKernel kernel, bool dropout) {
  Attention attention;
  attention.batch = 2;
  attention.heads = 4;
  attention.kv_heads = 2;
  attention.sequence_q = attention.sequence_kv = 37;
  attention.head_dim = attention.head_dim_v = 3;
  attention.kernel = kernel;
  attention.dropout = dropout;
  attention.type = DataType::kFp64;
  return attention;
}

Placement placement_with(double dropout) {
  Placement placement;
  placement.dropout = dropout;
  placement.site = "layers.1.attention.mask";
  placement.first_token = 37 * 6;
  return placement;
}

struct Outcome {
  OwnedMatrix context, dqkv;
};

Outcome both_passes(Attention attention, const OwnedMatrix& qkv, const OwnedMatrix& dcontext,
                    const Placement& placement) {
  const std::int64_t tokens = attention.batch * attention.sequence_q;
  Outcome outcome{OwnedMatrix(tokens, dcontext.columns()), OwnedMatrix(tokens, qkv.columns())};
  Attention backward = attention;
  backward.backward = true;
  if (attention.kernel != AttentionKernel::kUnfused) {
    OwnedMatrix statistics(tokens, attention.heads);
    run(attention, {&qkv}, {&outcome.context, &statistics}, placement);
    run(backward, {&dcontext, &qkv, &outcome.context, &statistics}, {&outcome.dqkv}, placement);
    return outcome;
  }
  const std::int64_t rows = attention.batch * attention.heads * attention.sequence_q;
  OwnedMatrix probabilities(rows, attention.sequence_kv), dropped(rows, attention.sequence_kv);
  OwnedMatrix mask(rows, attention.sequence_kv, DataType::kBool);
  if (attention.dropout) {
    run(attention, {&qkv}, {&outcome.context, &probabilities, &mask, &dropped}, placement);
    run(backward, {&dcontext, &qkv, &outcome.context, &probabilities, &mask, &dropped},
        {&outcome.dqkv}, placement);
  } else {
    run(attention, {&qkv}, {&outcome.context, &probabilities}, placement);
    run(backward, {&dcontext, &qkv, &outcome.context, &probabilities}, {&outcome.dqkv}, placement);
  }
  return outcome;
}

void expect_equal(const OwnedMatrix& a, const OwnedMatrix& b, double limit) {
  ASSERT_EQ(a.elements(), b.elements());
  for (std::int64_t i = 0; i < a.elements(); ++i) ASSERT_NEAR(a.at(i), b.at(i), limit) << i;
}

TEST(Attention, BlockedEqualsPlainWithAndWithoutDropout) {
  std::mt19937_64 engine(3);
  const OwnedMatrix qkv = OwnedMatrix::random(74, 24, engine),
                    dcontext = OwnedMatrix::random(74, 12, engine);
  for (const bool causal : {true, false}) {
    for (const double dropout : {0.0, 0.3}) {
      Attention plain = grouped_query(AttentionKernel::kUnfused, dropout > 0);
      Attention blocked = grouped_query(AttentionKernel::kFlash2, dropout > 0);
      plain.causal = blocked.causal = causal;
      const Outcome a = both_passes(plain, qkv, dcontext, placement_with(dropout));
      const Outcome b = both_passes(blocked, qkv, dcontext, placement_with(dropout));
      expect_equal(a.context, b.context, 1e-13);
      expect_equal(a.dqkv, b.dqkv, 1e-12);
    }
  }
}

// Two sequences, of documents of 20 and 17 tokens and of one of 37, against each document alone.
TEST(Attention, PackedDocumentsSeeOnlyThemselves) {
  std::mt19937_64 engine(5);
  const OwnedMatrix qkv = OwnedMatrix::random(74, 24, engine),
                    dcontext = OwnedMatrix::random(74, 12, engine);
  const std::vector<std::vector<std::int64_t>> packs = {{20, 17}, {37}};
  Attention attention = grouped_query(AttentionKernel::kFlash2, false);
  attention.document = 28;
  Placement placement = placement_with(0);
  placement.packs = &packs;  // sequence 6 of the data set is a pack of the first kind
  const Outcome packed = both_passes(attention, qkv, dcontext, placement);
  std::int64_t first = 0;
  for (const std::int64_t length : {20, 17, 37}) {
    const auto rows_of = [&](const OwnedMatrix& whole) {
      OwnedMatrix rows(length, whole.columns());
      for (std::int64_t i = 0; i < rows.elements(); ++i) {
        rows.set(i, whole.at(first * whole.columns() + i));
      }
      return rows;
    };
    Attention alone = grouped_query(AttentionKernel::kFlash2, false);
    alone.batch = 1;
    alone.sequence_q = alone.sequence_kv = length;
    Placement own;
    const Outcome document = both_passes(alone, rows_of(qkv), rows_of(dcontext), own);
    expect_equal(rows_of(packed.context), document.context, 1e-13);
    expect_equal(rows_of(packed.dqkv), document.dqkv, 1e-13);
    first += length;
  }
}

TEST(Attention, ForwardIsTheSoftmaxOfScaledScores) {
  std::mt19937_64 engine(4);
  const OwnedMatrix qkv = OwnedMatrix::random(74, 24, engine),
                    dcontext = OwnedMatrix::random(74, 12, engine);
  const Attention attention = grouped_query(AttentionKernel::kFlash2, false);
  const OwnedMatrix context = both_passes(attention, qkv, dcontext, placement_with(0)).context;
  // Sequence 1, head 3 (key-value head 1), position 20: queries at column 9, keys at 15, values 21.
  std::vector<double> weights;
  double sum = 0;
  for (std::int64_t j = 0; j <= 20; ++j) {
    double score = 0;
    for (std::int64_t d = 0; d < 3; ++d) score += qkv.at(57, 9 + d) * qkv.at(37 + j, 15 + d);
    weights.push_back(std::exp(score / std::sqrt(3.0)));
    sum += weights.back();
  }
  double expected = 0;
  for (std::int64_t j = 0; j <= 20; ++j) {
    expected += weights[static_cast<std::size_t>(j)] / sum * qkv.at(37 + j, 21 + 1);
  }
  EXPECT_NEAR(context.at(57, 9 + 1), expected, 1e-13);
}

TEST(Attention, BackwardIsItsDifference) {
  std::mt19937_64 engine(5);
  for (const AttentionKernel kernel : {AttentionKernel::kUnfused, AttentionKernel::kFlash2}) {
    for (const double dropout : {0.0, 0.25}) {
      Attention attention = grouped_query(kernel, dropout > 0);
      attention.batch = 1;
      attention.sequence_q = attention.sequence_kv = 18;
      OwnedMatrix qkv = OwnedMatrix::random(18, 24, engine);
      const OwnedMatrix dcontext = OwnedMatrix::random(18, 12, engine);
      const Placement placement = placement_with(dropout);
      const Outcome outcome = both_passes(attention, qkv, dcontext, placement);
      const auto loss = [&] {
        return dot(both_passes(attention, qkv, dcontext, placement).context, dcontext);
      };
      EXPECT_LT(gradient_error(qkv, outcome.dqkv, loss), 1e-7);
    }
  }
}

TEST(Attention, HeadsOfAShardDropAsTheyDoInTheWhole) {
  std::mt19937_64 engine(6);
  const OwnedMatrix qkv = OwnedMatrix::random(74, 24, engine),
                    dcontext = OwnedMatrix::random(74, 12, engine);
  const Placement whole = placement_with(0.3);
  const Outcome all =
      both_passes(grouped_query(AttentionKernel::kFlash2, true), qkv, dcontext, whole);
  // The second of two ranks: query heads 2 and 3, key-value head 1.
  Attention half = grouped_query(AttentionKernel::kFlash2, true);
  half.heads = 2;
  half.kv_heads = 1;
  OwnedMatrix shard(74, 12), dshard(74, 6);
  for (std::int64_t i = 0; i < 74; ++i) {
    for (std::int64_t j = 0; j < 6; ++j) {
      shard.set(i * 12 + j, qkv.at(i, 6 + j));
      dshard.set(i * 6 + j, dcontext.at(i, 6 + j));
    }
    for (std::int64_t j = 0; j < 3; ++j) {
      shard.set(i * 12 + 6 + j, qkv.at(i, 15 + j));
      shard.set(i * 12 + 9 + j, qkv.at(i, 21 + j));
    }
  }
  Placement second = whole;
  second.first_head = 2;
  const Outcome part = both_passes(half, shard, dshard, second);
  for (std::int64_t i = 0; i < 74; ++i) {
    for (std::int64_t j = 0; j < 6; ++j) {
      ASSERT_NEAR(part.context.at(i, j), all.context.at(i, 6 + j), 1e-13);
    }
  }
}

TEST(RunningAttention, TakesKeyBlocksInAnyOrder) {
  std::mt19937_64 engine(7);
  const OwnedMatrix q = OwnedMatrix::random(6, 4, engine), k = OwnedMatrix::random(10, 4, engine),
                    v = OwnedMatrix::random(10, 4, engine);
  const auto rows = [](const OwnedMatrix& tensor, std::int64_t begin, std::int64_t count) {
    return HeadRows<double>{static_cast<const double*>(tensor.operand().data) + begin * 4, 4, count,
                            begin};
  };
  HeadCore core;
  core.head_dim = core.head_dim_v = 4;
  core.scale = 0.5;
  HeadRows<double> queries = rows(q, 0, 6);
  queries.first = 4;  // positions 4..9
  RunningAttention<double> forwards(core, queries), backwards(core, queries);
  for (const std::int64_t begin : {0, 3, 6}) {
    forwards.add(rows(k, begin, begin == 6 ? 4 : 3), rows(v, begin, begin == 6 ? 4 : 3));
  }
  for (const std::int64_t begin : {6, 3, 0}) {
    backwards.add(rows(k, begin, begin == 6 ? 4 : 3), rows(v, begin, begin == 6 ? 4 : 3));
  }
  std::vector<double> a(24), b(24);
  forwards.result(a.data(), 4);
  backwards.result(b.data(), 4);
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-14);
  EXPECT_NEAR(forwards.log_sum_exp(2), backwards.log_sum_exp(2), 1e-14);
}

}  // namespace
}  // namespace headway
