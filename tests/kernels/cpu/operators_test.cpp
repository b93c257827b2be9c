#include "kernels/cpu/operators.hpp"

#include <gmock/gmock.h>

#include <cmath>

#include "tests/kernels/cpu/owned_matrix.hpp"

namespace headway {
namespace {

// Central differences of step 1e-5 in fp64: truncation ~1e-10, cancellation ~1e-11 over the
// quotient.
constexpr double kDifferenceLimit = 1e-7;

class Operators : public testing::Test {
 protected:
  static Kernel kernel(KernelKind kind, std::int64_t rows, std::int64_t columns,
                       bool bias = false) {
    Kernel made;
    made.kind = kind;
    made.rows = rows;
    made.columns = columns;
    made.type = made.output = DataType::kFp64;
    made.bias = bias;
    return made;
  }
  static Gemm gemm(GemmRole role, std::int64_t m, std::int64_t n, std::int64_t k) {
    Gemm made;
    made.role = role;
    made.m = m;
    made.n = n;
    made.k = k;
    made.type = made.output = DataType::kFp64;
    return made;
  }
  std::mt19937_64 engine_{17};
};

TEST_F(Operators, GemmForwardIsTheProductWithTheTransposedWeight) {
  const OwnedMatrix x = OwnedMatrix::random(3, 4, engine_), w = OwnedMatrix::random(5, 4, engine_),
                    bias = OwnedMatrix::random(5, 1, engine_);
  OwnedMatrix y(3, 5);
  Gemm operation = gemm(GemmRole::kForward, 3, 5, 4);
  operation.bias = true;
  run(operation, {&x, &w, &bias}, {&y});
  for (std::int64_t i = 0; i < 3; ++i) {
    for (std::int64_t j = 0; j < 5; ++j) {
      double expected = bias.at(j);
      for (std::int64_t l = 0; l < 4; ++l) expected += x.at(i, l) * w.at(j, l);
      EXPECT_NEAR(y.at(i, j), expected, 1e-14);
    }
  }
}

TEST_F(Operators, GemmGradientsAreItsDifferences) {
  OwnedMatrix x = OwnedMatrix::random(3, 4, engine_), w = OwnedMatrix::random(5, 4, engine_);
  const OwnedMatrix dy = OwnedMatrix::random(3, 5, engine_);
  OwnedMatrix dx(3, 4), dw(5, 4);
  run(gemm(GemmRole::kInputGradient, 3, 5, 4), {&dy, &w}, {&dx});
  run(gemm(GemmRole::kWeightGradient, 3, 5, 4), {&dy, &x}, {&dw});
  const auto loss = [&] {
    OwnedMatrix y(3, 5);
    run(gemm(GemmRole::kForward, 3, 5, 4), {&x, &w}, {&y});
    return dot(y, dy);
  };
  EXPECT_LT(gradient_error(x, dx, loss), kDifferenceLimit);
  EXPECT_LT(gradient_error(w, dw, loss), kDifferenceLimit);
}

TEST_F(Operators, WeightGradientAccumulatesIntoAWiderType) {
  const OwnedMatrix x = OwnedMatrix::random(6, 4, engine_, 1.0, DataType::kBf16),
                    dy = OwnedMatrix::random(6, 2, engine_, 1.0, DataType::kBf16);
  OwnedMatrix dw(2, 4, DataType::kFp32);
  dw.fill(1.0);
  Gemm operation = gemm(GemmRole::kWeightGradient, 6, 2, 4);
  operation.type = DataType::kBf16;
  operation.output = DataType::kFp32;
  operation.accumulate = true;
  run(operation, {&dy, &x, &dw}, {&dw});
  for (std::int64_t j = 0; j < 2; ++j) {
    for (std::int64_t l = 0; l < 4; ++l) {
      double expected = 1.0;
      for (std::int64_t i = 0; i < 6; ++i) expected += dy.at(i, j) * x.at(i, l);
      EXPECT_NEAR(dw.at(j, l), expected, 1e-5);
    }
  }
}

// Rows of the second of three ranks first: its own, then those of the rank before, and of that.
TEST_F(Operators, GemmsOfRunsGiveTheWholeProduct) {
  const OwnedMatrix x = OwnedMatrix::random(6, 4, engine_), w = OwnedMatrix::random(5, 4, engine_),
                    dy = OwnedMatrix::random(6, 5, engine_);
  OwnedMatrix y(6, 5), in_runs(6, 5), dx(6, 4), dx_in_runs(6, 4), dw(5, 4), dw_of_runs(5, 4);
  run(gemm(GemmRole::kForward, 6, 5, 4), {&x, &w}, {&y});
  run(gemm(GemmRole::kInputGradient, 6, 5, 4), {&dy, &w}, {&dx});
  run(gemm(GemmRole::kWeightGradient, 6, 5, 4), {&dy, &x}, {&dw});
  const auto rows_of = [](const OwnedMatrix& whole, std::int64_t first) {
    OwnedMatrix rows(2, whole.columns());
    for (std::int64_t i = 0; i < rows.elements(); ++i) {
      rows.set(i, whole.at(first * whole.columns() + i));
    }
    return rows;
  };
  std::vector<OwnedMatrix> gradients;
  for (const std::int64_t distance : {0, 1, 2}) {
    Placement placement;
    placement.run = 1;
    placement.first_row = (1 - distance + 3) % 3 * 2;
    Gemm part = gemm(GemmRole::kForward, 2, 5, 4);
    part.runs = 3;
    part.distance = distance;
    const OwnedMatrix rows = rows_of(x, placement.first_row);
    run(part, {&rows, &w, &in_runs}, {&in_runs}, placement);
    OwnedMatrix alone(2, 5);
    run(part, {&x, &w}, {&alone}, placement);
    for (std::int64_t i = 0; i < alone.elements(); ++i) {
      EXPECT_NEAR(alone.at(i), y.at(placement.first_row * 5 + i), 1e-13);
    }
    part.role = GemmRole::kInputGradient;
    gradients.push_back(rows_of(dy, placement.first_row));
    run(part, {&gradients.back(), &w, &dx_in_runs}, {&dx_in_runs}, placement);
  }
  Gemm weight = gemm(GemmRole::kWeightGradient, 6, 5, 4);
  weight.runs = 3;
  Placement placement;
  placement.run = 1;
  run(weight, {&gradients[0], &gradients[1], &gradients[2], &x}, {&dw_of_runs}, placement);
  for (std::int64_t i = 0; i < y.elements(); ++i) EXPECT_NEAR(in_runs.at(i), y.at(i), 1e-13);
  for (std::int64_t i = 0; i < dx.elements(); ++i) EXPECT_NEAR(dx_in_runs.at(i), dx.at(i), 1e-13);
  for (std::int64_t i = 0; i < dw.elements(); ++i) EXPECT_NEAR(dw_of_runs.at(i), dw.at(i), 1e-13);
}

TEST_F(Operators, GemmsTakeWeightsInSeveralBuffersAndAddToTheirResults) {
  const OwnedMatrix x = OwnedMatrix::random(3, 4, engine_), w = OwnedMatrix::random(5, 4, engine_),
                    dy = OwnedMatrix::random(3, 5, engine_);
  OwnedMatrix top(3, 4), bottom(2, 4), dtop(3, 4), dbottom(2, 4);
  for (std::int64_t i = 0; i < 12; ++i) top.set(i, w.at(i));
  for (std::int64_t i = 0; i < 8; ++i) bottom.set(i, w.at(12 + i));
  OwnedMatrix y(3, 5), stacked(3, 5), dx(3, 4), dx_stacked(3, 4), dw(5, 4);
  Gemm whole = gemm(GemmRole::kForward, 3, 5, 4), parts = whole;
  parts.weights = 2;
  run(whole, {&x, &w}, {&y});
  run(parts, {&x, &top, &bottom}, {&stacked});
  whole.role = parts.role = GemmRole::kInputGradient;
  run(whole, {&dy, &w}, {&dx});
  parts.accumulate = true;  // to nothing, twice
  dx_stacked.fill(0);
  run(parts, {&dy, &top, &bottom, &dx_stacked}, {&dx_stacked});
  run(parts, {&dy, &top, &bottom, &dx_stacked}, {&dx_stacked});
  whole.role = parts.role = GemmRole::kWeightGradient;
  parts.accumulate = false;
  run(whole, {&dy, &x}, {&dw});
  run(parts, {&dy, &x}, {&dtop, &dbottom});
  for (std::int64_t i = 0; i < y.elements(); ++i) EXPECT_NEAR(stacked.at(i), y.at(i), 1e-13);
  for (std::int64_t i = 0; i < dx.elements(); ++i)
    EXPECT_NEAR(dx_stacked.at(i), 2 * dx.at(i), 1e-13);
  for (std::int64_t i = 0; i < dtop.elements(); ++i) EXPECT_NEAR(dtop.at(i), dw.at(i), 1e-13);
  for (std::int64_t i = 0; i < dbottom.elements(); ++i)
    EXPECT_NEAR(dbottom.at(i), dw.at(12 + i), 1e-13);
}

TEST_F(Operators, RmsNormBackwardIsItsDifference) {
  OwnedMatrix x = OwnedMatrix::random(3, 6, engine_), weight = OwnedMatrix::random(6, 1, engine_);
  const OwnedMatrix dy = OwnedMatrix::random(3, 6, engine_);
  OwnedMatrix y(3, 6), statistics(3, 1), dx(3, 6), dweight(6, 1);
  run(kernel(KernelKind::kRmsNormForward, 3, 6), {&x, &weight}, {&y, &statistics});
  run(kernel(KernelKind::kRmsNormBackward, 3, 6), {&dy, &x, &weight, &statistics, &dweight},
      {&dx, &dweight});
  const auto loss = [&] {
    OwnedMatrix out(3, 6), r(3, 1);
    run(kernel(KernelKind::kRmsNormForward, 3, 6), {&x, &weight}, {&out, &r});
    return dot(out, dy);
  };
  EXPECT_LT(gradient_error(x, dx, loss), kDifferenceLimit);
  EXPECT_LT(gradient_error(weight, dweight, loss), kDifferenceLimit);
  // y_ij = x_ij w_j / sqrt(mean(x^2) + 1e-5)
  double squares = 0;
  for (std::int64_t j = 0; j < 6; ++j) squares += x.at(1, j) * x.at(1, j);
  EXPECT_NEAR(y.at(1, 2), x.at(1, 2) * weight.at(2) / std::sqrt(squares / 6 + 1e-5), 1e-14);
}

TEST_F(Operators, LayerNormBackwardIsItsDifference) {
  OwnedMatrix x = OwnedMatrix::random(3, 6, engine_), weight = OwnedMatrix::random(6, 1, engine_),
              bias = OwnedMatrix::random(6, 1, engine_);
  const OwnedMatrix dy = OwnedMatrix::random(3, 6, engine_);
  OwnedMatrix y(3, 6), statistics(3, 2), dx(3, 6), dweight(6, 1), dbias(6, 1);
  run(kernel(KernelKind::kLayerNormForward, 3, 6), {&x, &weight, &bias}, {&y, &statistics});
  run(kernel(KernelKind::kLayerNormBackward, 3, 6),
      {&dy, &x, &weight, &statistics, &dweight, &dbias}, {&dx, &dweight, &dbias});
  const auto loss = [&] {
    OwnedMatrix out(3, 6), r(3, 2);
    run(kernel(KernelKind::kLayerNormForward, 3, 6), {&x, &weight, &bias}, {&out, &r});
    return dot(out, dy);
  };
  EXPECT_LT(gradient_error(x, dx, loss), kDifferenceLimit);
  EXPECT_LT(gradient_error(weight, dweight, loss), kDifferenceLimit);
  EXPECT_LT(gradient_error(bias, dbias, loss), kDifferenceLimit);
}

TEST_F(Operators, ActivationsWithBiasHaveTheirDifferencesAsGradients) {
  const auto pairs = {std::pair(KernelKind::kGeluForward, KernelKind::kGeluBackward),
                      std::pair(KernelKind::kReluForward, KernelKind::kReluBackward)};
  for (const auto& [forward, backward] : pairs) {
    OwnedMatrix x = OwnedMatrix::random(3, 5, engine_), bias = OwnedMatrix::random(5, 1, engine_);
    const OwnedMatrix dy = OwnedMatrix::random(3, 5, engine_);
    OwnedMatrix dx(3, 5), dbias(5, 1), dx_alone(3, 5);
    run(kernel(backward, 3, 5, true), {&dy, &x, &bias, &dbias}, {&dx, &dbias});
    const auto loss = [&, kind = forward] {
      OwnedMatrix y(3, 5);
      run(kernel(kind, 3, 5, true), {&x, &bias}, {&y});
      return dot(y, dy);
    };
    EXPECT_LT(gradient_error(x, dx, loss), kDifferenceLimit) << name(forward);
    EXPECT_LT(gradient_error(bias, dbias, loss), kDifferenceLimit) << name(forward);
    run(kernel(backward, 3, 5), {&dy, &x}, {&dx_alone});
    const auto loss_alone = [&, kind = forward] {
      OwnedMatrix y(3, 5);
      run(kernel(kind, 3, 5), {&x}, {&y});
      return dot(y, dy);
    };
    EXPECT_LT(gradient_error(x, dx_alone, loss_alone), kDifferenceLimit) << name(forward);
  }
}

TEST_F(Operators, SwigluWithWeightsScalesItsRowsAndItsGradientsAreDifferences) {
  OwnedMatrix x = OwnedMatrix::random(3, 8, engine_), weights = OwnedMatrix::random(3, 1, engine_);
  const OwnedMatrix dy = OwnedMatrix::random(3, 4, engine_);
  OwnedMatrix plain(3, 4), y(3, 4), dx(3, 8), dweights(3, 1);
  run(kernel(KernelKind::kSwigluForward, 3, 4), {&x}, {&plain});
  run(kernel(KernelKind::kSwigluForward, 3, 4, true), {&x, &weights}, {&y});
  EXPECT_NEAR(y.at(2, 1), weights.at(2) * plain.at(2, 1), 1e-15);
  run(kernel(KernelKind::kSwigluBackward, 3, 4, true), {&dy, &x, &weights}, {&dx, &dweights});
  const auto loss = [&] {
    OwnedMatrix out(3, 4);
    run(kernel(KernelKind::kSwigluForward, 3, 4, true), {&x, &weights}, {&out});
    return dot(out, dy);
  };
  EXPECT_LT(gradient_error(x, dx, loss), kDifferenceLimit);
  EXPECT_LT(gradient_error(weights, dweights, loss), kDifferenceLimit);
}

TEST_F(Operators, MixWeighsTwoRowsByTheSoftmaxOfTheirLogits) {
  OwnedMatrix a = OwnedMatrix::random(3, 4, engine_), b = OwnedMatrix::random(3, 4, engine_),
              logits = OwnedMatrix::random(3, 2, engine_);
  const OwnedMatrix dy = OwnedMatrix::random(3, 4, engine_);
  OwnedMatrix y(3, 4), da(3, 4), db(3, 4), dlogits(3, 2);
  run(kernel(KernelKind::kMixForward, 3, 4), {&a, &b, &logits}, {&y});
  const double first = std::exp(logits.at(1, 0)), second = std::exp(logits.at(1, 1));
  EXPECT_NEAR(y.at(1, 3), (first * a.at(1, 3) + second * b.at(1, 3)) / (first + second), 1e-14);
  run(kernel(KernelKind::kMixBackward, 3, 4), {&dy, &a, &b, &logits}, {&da, &db, &dlogits});
  const auto loss = [&] {
    OwnedMatrix out(3, 4);
    run(kernel(KernelKind::kMixForward, 3, 4), {&a, &b, &logits}, {&out});
    return dot(out, dy);
  };
  EXPECT_LT(gradient_error(a, da, loss), kDifferenceLimit);
  EXPECT_LT(gradient_error(b, db, loss), kDifferenceLimit);
  EXPECT_LT(gradient_error(logits, dlogits, loss), kDifferenceLimit);
}

TEST_F(Operators, SwigluBackwardIsItsDifference) {
  OwnedMatrix x = OwnedMatrix::random(3, 8, engine_);
  const OwnedMatrix dy = OwnedMatrix::random(3, 4, engine_);
  OwnedMatrix dx(3, 8), y(3, 4);
  run(kernel(KernelKind::kSwigluForward, 3, 4), {&x}, {&y});
  // gate 1 of row 0 is x[0, 1], its up x[0, 5]
  EXPECT_NEAR(y.at(0, 1), x.at(0, 1) / (1 + std::exp(-x.at(0, 1))) * x.at(0, 5), 1e-14);
  run(kernel(KernelKind::kSwigluBackward, 3, 4), {&dy, &x}, {&dx});
  const auto loss = [&] {
    OwnedMatrix out(3, 4);
    run(kernel(KernelKind::kSwigluForward, 3, 4), {&x}, {&out});
    return dot(out, dy);
  };
  EXPECT_LT(gradient_error(x, dx, loss), kDifferenceLimit);
}

TEST_F(Operators, EmbeddingOfAShardIsZeroForForeignTokens) {
  OwnedMatrix tokens(3, 1, DataType::kInt64);
  tokens.set(0, 1);
  tokens.set(1, 4);
  tokens.set(2, 5);
  OwnedMatrix table = OwnedMatrix::random(4, 2, engine_);  // entries 4..7
  OwnedMatrix hidden(3, 2), dtable(4, 2);
  Placement placement;
  placement.first_column = 4;
  run(kernel(KernelKind::kEmbeddingForward, 3, 2), {&tokens, &table}, {&hidden}, placement);
  EXPECT_EQ(hidden.at(0, 0), 0.0);
  EXPECT_EQ(hidden.at(1, 1), table.at(0, 1));
  EXPECT_EQ(hidden.at(2, 0), table.at(1, 0));
  const OwnedMatrix dhidden = OwnedMatrix::random(3, 2, engine_);
  run(kernel(KernelKind::kEmbeddingBackward, 3, 2), {&tokens, &dhidden, &dtable}, {&dtable},
      placement);
  const auto loss = [&] {
    OwnedMatrix out(3, 2);
    run(kernel(KernelKind::kEmbeddingForward, 3, 2), {&tokens, &table}, {&out}, placement);
    return dot(out, dhidden);
  };
  EXPECT_LT(gradient_error(table, dtable, loss), kDifferenceLimit);
}

TEST_F(Operators, LearnedPositionsFollowTheGlobalRow) {
  OwnedMatrix hidden = OwnedMatrix::random(4, 2, engine_),
              table = OwnedMatrix::random(3, 2, engine_);
  Placement placement;
  placement.map.length = 3;
  placement.first_row = 2;  // rows stand at positions 2, 0, 1, 2
  OwnedMatrix y(4, 2), dtable(3, 2);
  run(kernel(KernelKind::kPositionForward, 4, 2), {&hidden, &table}, {&y}, placement);
  EXPECT_NEAR(y.at(1, 1), hidden.at(1, 1) + table.at(0, 1), 1e-15);
  const OwnedMatrix dy = OwnedMatrix::random(4, 2, engine_);
  run(kernel(KernelKind::kPositionBackward, 4, 2), {&dy, &dtable}, {&dtable}, placement);
  const auto loss = [&] {
    OwnedMatrix out(4, 2);
    run(kernel(KernelKind::kPositionForward, 4, 2), {&hidden, &table}, {&out}, placement);
    return dot(out, dy);
  };
  EXPECT_LT(gradient_error(table, dtable, loss), kDifferenceLimit);
}

TEST_F(Operators, RotaryTurnsQueriesAndKeysAndLeavesValues) {
  Kernel forward = kernel(KernelKind::kRotaryForward, 3, 8);  // two heads of 4 turn, the rest stays
  forward.head_dim = 4;
  Kernel backward = forward;
  backward.kind = KernelKind::kRotaryBackward;
  Placement placement;
  placement.map.length = 8;
  placement.first_row = 5;
  OwnedMatrix x = OwnedMatrix::random(3, 12, engine_);
  OwnedMatrix y(3, 12), dx(3, 12);
  run(forward, {&x}, {&y}, placement);
  // Row 1 stands at position 6; the second pair of a head turns by 6 * 10000^(-2/4) = 0.06.
  EXPECT_NEAR(y.at(1, 5), x.at(1, 5) * std::cos(0.06) - x.at(1, 7) * std::sin(0.06), 1e-14);
  EXPECT_EQ(y.at(1, 9), x.at(1, 9));
  const OwnedMatrix dy = OwnedMatrix::random(3, 12, engine_);
  run(backward, {&dy}, {&dx}, placement);
  const auto loss = [&] {
    OwnedMatrix out(3, 12);
    run(forward, {&x}, {&out}, placement);
    return dot(out, dy);
  };
  EXPECT_LT(gradient_error(x, dx, loss), kDifferenceLimit);
}

TEST_F(Operators, BiasDropoutAddBackwardIsItsDifference) {
  OwnedMatrix x = OwnedMatrix::random(4, 6, engine_), bias = OwnedMatrix::random(6, 1, engine_);
  const OwnedMatrix residual = OwnedMatrix::random(4, 6, engine_),
                    dy = OwnedMatrix::random(4, 6, engine_);
  Placement placement;
  placement.dropout = 0.4;
  placement.site = "layers.0.dropout";
  OwnedMatrix y(4, 6), mask(4, 6, DataType::kBool), dx(4, 6), dbias(6, 1);
  run(kernel(KernelKind::kBiasDropoutAddForward, 4, 6), {&x, &bias, &residual}, {&y, &mask},
      placement);
  run(kernel(KernelKind::kBiasDropoutAddBackward, 4, 6), {&dy, &mask, &dbias}, {&dx, &dbias},
      placement);
  const auto loss = [&] {
    OwnedMatrix out(4, 6), kept(4, 6, DataType::kBool);
    run(kernel(KernelKind::kBiasDropoutAddForward, 4, 6), {&x, &bias, &residual}, {&out, &kept},
        placement);
    return dot(out, dy);
  };
  EXPECT_LT(gradient_error(x, dx, loss), kDifferenceLimit);
  EXPECT_LT(gradient_error(bias, dbias, loss), kDifferenceLimit);
}

TEST_F(Operators, DropoutDropsTheSameElementsHoweverTheWorkIsSplit) {
  const OwnedMatrix x = OwnedMatrix::random(6, 8, engine_);
  Placement whole;
  whole.dropout = 0.5;
  whole.site = "layers.2.dropout";
  whole.first_token = 12;
  OwnedMatrix y(6, 8), mask(6, 8, DataType::kBool);
  run(kernel(KernelKind::kDropoutForward, 6, 8), {&x}, {&y, &mask}, whole);
  // Rows 3..5 and columns 4..7 alone.
  Placement part = whole;
  part.first_row = 3;
  part.first_column = 4;
  OwnedMatrix corner(3, 4), corner_y(3, 4), corner_mask(3, 4, DataType::kBool);
  for (std::int64_t i = 0; i < 12; ++i) corner.set(i, x.at(3 + i / 4, 4 + i % 4));
  run(kernel(KernelKind::kDropoutForward, 3, 4), {&corner}, {&corner_y, &corner_mask}, part);
  double kept = 0;
  for (std::int64_t i = 0; i < 12; ++i) {
    EXPECT_EQ(corner_mask.at(i), mask.at(3 + i / 4, 4 + i % 4));
    EXPECT_EQ(corner_y.at(i), 2.0 * corner.at(i) * corner_mask.at(i));
    kept += corner_mask.at(i);
  }
  EXPECT_GT(kept, 0);
  EXPECT_LT(kept, 12);
}

TEST_F(Operators, CrossEntropyInPartsIsTheWholeAndItsDifference) {
  const std::int64_t rows = 4, vocabulary = 6;
  OwnedMatrix logits = OwnedMatrix::random(rows, vocabulary, engine_, 2.0);
  const OwnedMatrix targets = OwnedMatrix::tokens(rows, vocabulary, engine_);
  const OwnedMatrix dloss = [&] {
    OwnedMatrix ones(rows, 1);
    ones.fill(0.25);
    return ones;
  }();
  const Kernel fused = kernel(KernelKind::kFusedCrossEntropyForward, rows, vocabulary);
  const auto loss = [&] {
    OwnedMatrix out(rows, 1), statistics(rows, 1);
    run(fused, {&logits, &targets}, {&out, &statistics});
    return dot(out, dloss);
  };
  OwnedMatrix out(rows, 1), statistics(rows, 1), dlogits(rows, vocabulary);
  run(fused, {&logits, &targets}, {&out, &statistics});
  Kernel fused_backward = kernel(KernelKind::kFusedCrossEntropyBackward, rows, vocabulary);
  fused_backward.scale = 0.25;
  run(fused_backward, {&logits, &targets, &statistics}, {&dlogits});
  EXPECT_LT(gradient_error(logits, dlogits, loss), kDifferenceLimit);

  // Two ranks with three entries each; maximum, predicted and sum are reduced over them.
  OwnedMatrix maximum(rows, 1), predicted(rows, 1), sum(rows, 1), whole_loss(rows, 1);
  maximum.fill(-1e30);
  std::vector<OwnedMatrix> shards;
  for (std::int64_t s = 0; s < 2; ++s) {
    OwnedMatrix shard(rows, 3), shard_maximum(rows, 1);
    for (std::int64_t i = 0; i < rows * 3; ++i) shard.set(i, logits.at(i / 3, s * 3 + i % 3));
    run(kernel(KernelKind::kCrossEntropyMaximum, rows, 3), {&shard}, {&shard_maximum});
    for (std::int64_t i = 0; i < rows; ++i) {
      maximum.set(i, std::max(maximum.at(i), shard_maximum.at(i)));
    }
    shards.push_back(shard);
  }
  for (std::int64_t s = 0; s < 2; ++s) {
    Placement placement;
    placement.first_column = 3 * s;
    OwnedMatrix own_predicted(rows, 1), own_sum(rows, 1);
    const OwnedMatrix& shard = shards[static_cast<std::size_t>(s)];
    run(kernel(KernelKind::kCrossEntropySums, rows, 3), {&shard, &maximum, &targets},
        {&own_predicted, &own_sum, &shard}, placement);
    for (std::int64_t i = 0; i < rows; ++i) {
      predicted.set(i, predicted.at(i) + own_predicted.at(i));
      sum.set(i, sum.at(i) + own_sum.at(i));
    }
  }
  run(kernel(KernelKind::kCrossEntropyLoss, rows, 1), {&predicted, &sum, &maximum}, {&whole_loss});
  Kernel part_backward = kernel(KernelKind::kCrossEntropyBackward, rows, 3);
  part_backward.scale = 0.25;
  for (std::int64_t i = 0; i < rows; ++i) EXPECT_NEAR(whole_loss.at(i), out.at(i), 1e-13);
  for (std::int64_t s = 0; s < 2; ++s) {
    Placement placement;
    placement.first_column = 3 * s;
    OwnedMatrix gradient(rows, 3);
    run(part_backward, {&shards[static_cast<std::size_t>(s)], &sum, &targets}, {&gradient},
        placement);
    for (std::int64_t i = 0; i < rows * 3; ++i) {
      EXPECT_NEAR(gradient.at(i), dlogits.at(i / 3, s * 3 + i % 3), 1e-14);
    }
  }
  OwnedMatrix total(1, 1);
  run(kernel(KernelKind::kLossSum, rows, 1), {&out, &total}, {&total});
  run(kernel(KernelKind::kLossSum, rows, 1), {&out, &total}, {&total});
  double expected = 0;
  for (std::int64_t i = 0; i < rows; ++i) expected += 2 * out.at(i);
  EXPECT_NEAR(total.at(0), expected, 1e-13);
}

TEST_F(Operators, SumsBiasesScalesAndSplitsAreWhatTheySay) {
  const OwnedMatrix a = OwnedMatrix::random(4, 3, engine_), b = OwnedMatrix::random(4, 3, engine_),
                    bias = OwnedMatrix::random(3, 1, engine_);
  OwnedMatrix y(4, 3);
  run(kernel(KernelKind::kResidualAdd, 4, 3), {&a, &b}, {&y});
  EXPECT_EQ(y.at(2, 1), a.at(2, 1) + b.at(2, 1));
  run(kernel(KernelKind::kBiasAdd, 4, 3), {&a, &bias}, {&y});
  EXPECT_EQ(y.at(2, 1), a.at(2, 1) + bias.at(1));
  OwnedMatrix dbias(3, 1);
  dbias.fill(1.0);
  run(kernel(KernelKind::kBiasBackward, 4, 3), {&a, &dbias}, {&dbias});
  EXPECT_NEAR(dbias.at(2), 1 + a.at(0, 2) + a.at(1, 2) + a.at(2, 2) + a.at(3, 2), 1e-15);
  Kernel half = kernel(KernelKind::kScale, 4, 3);
  half.scale = 0.5;
  run(half, {&y}, {&y});
  EXPECT_EQ(y.at(2, 1), 0.5 * (a.at(2, 1) + bias.at(1)));
  OwnedMatrix part(2, 3);
  Placement second;
  second.first_row = 2;
  run(kernel(KernelKind::kSplitSequence, 2, 3), {&a}, {&part}, second);
  EXPECT_EQ(part.at(1, 2), a.at(3, 2));
  run(kernel(KernelKind::kZero, 4, 3), {}, {&y});
  EXPECT_EQ(dot(y, y), 0.0);
  OwnedMatrix narrow(4, 3, DataType::kBf16);
  run(kernel(KernelKind::kCast, 4, 3), {&a}, {&narrow});
  EXPECT_EQ(narrow.at(5), rounded(static_cast<float>(a.at(5)), DataType::kBf16));
  // One flat master copy of two parameters.
  OwnedMatrix first(2, 3), rest(6, 1);
  run(kernel(KernelKind::kCastParameters, 4, 3), {&a}, {&first, &rest});
  EXPECT_EQ(first.at(5), a.at(5));
  EXPECT_EQ(rest.at(0), a.at(6));
}

TEST_F(Operators, ClippingScalesGradientsOverTheLimit) {
  OwnedMatrix gradient(2, 1), total(1, 1);
  gradient.set(0, 3);
  gradient.set(1, 4);
  run(kernel(KernelKind::kSquaredNorm, 2, 1), {&gradient, &total}, {&total});
  EXPECT_EQ(total.at(0), 25.0);
  Placement placement;
  placement.clip_norm = 1.0;
  run(kernel(KernelKind::kClip, 2, 1), {&total, &gradient}, {&gradient}, placement);
  // 1 / (5 + 1e-6)
  EXPECT_NEAR(gradient.at(1), 4.0 / 5.000001, 1e-15);
  placement.clip_norm = 10.0;
  run(kernel(KernelKind::kClip, 2, 1), {&total, &gradient}, {&gradient}, placement);
  EXPECT_NEAR(gradient.at(1), 4.0 / 5.000001, 1e-15);
}

// A step that was taken before its norm was known stands only within the limit.
TEST_F(Operators, AValidatedNormIsPassedOnOrRefused) {
  OwnedMatrix total(1, 1), validated(1, 1);
  total.set(0, 25);
  Placement placement;
  placement.clip_norm = 5;
  run(kernel(KernelKind::kValidateNorm, 1, 1), {&total}, {&validated}, placement);
  EXPECT_EQ(validated.at(0), 25);
  placement.clip_norm = 4.9;
  EXPECT_THROW(run(kernel(KernelKind::kValidateNorm, 1, 1), {&total}, {&validated}, placement),
               std::invalid_argument);
}

// Sums and products with local maxima, corrected (arXiv 2411.05288, eq. 2 to 5): logits 1 and 3 of
// which this shard has the first.
TEST_F(Operators, SumsOfAShardAreCorrectedToTheWholeVocabulary) {
  OwnedMatrix sum(1, 1), own(1, 1), maximum(1, 1), divisor(1, 1);
  sum.set(0, 1);  // exp(1 - 1)
  own.set(0, 1);
  maximum.set(0, 3);
  run(kernel(KernelKind::kCrossEntropyShift, 1, 1), {&sum, &own, &maximum}, {&sum});
  EXPECT_NEAR(sum.at(0), std::exp(-2.0), 1e-15);
  sum.set(0, 1 + std::exp(-2.0));  // of both shards, relative to 3
  run(kernel(KernelKind::kCrossEntropyShift, 1, 1), {&sum, &maximum, &own}, {&divisor});
  EXPECT_NEAR(1 / divisor.at(0), std::exp(1.0) / (std::exp(1.0) + std::exp(3.0)), 1e-15);

  OwnedMatrix product(1, 2), target_row(1, 2);
  product.set(0, 4);  // exponential 1 times the shard's row
  product.set(1, 8);
  target_row.set(0, 4);  // which is the target's
  target_row.set(1, 8);
  Kernel gradient = kernel(KernelKind::kCrossEntropyInputGradient, 1, 2);
  gradient.scale = 0.5;
  run(gradient, {&product, &target_row, &divisor}, {&product});
  const double probability = 1 / divisor.at(0);
  EXPECT_NEAR(product.at(0), 0.5 * 4 * (probability - 1), 1e-15);
  EXPECT_NEAR(product.at(1), 0.5 * 8 * (probability - 1), 1e-15);
}

TEST_F(Operators, OptimizersStepAsTheirFormulas) {
  OwnedMatrix master(1, 1), gradient(1, 1), first(1, 1), second(1, 1);
  master.set(0, 2.0);
  gradient.set(0, 0.5);
  Placement placement;
  placement.learning_rate = 0.1;
  run(kernel(KernelKind::kSgd, 1, 1), {&master, &gradient}, {&master}, placement);
  EXPECT_NEAR(master.at(0), 1.95, 1e-15);
  placement.optimizer.epsilon = 1e-4;
  run(kernel(KernelKind::kAdam, 1, 1), {&master, &gradient, &first, &second},
      {&master, &first, &second}, placement);
  // Step 1: m = 0.05, v = 0.00025, both bias-corrected to 0.5 and 0.25.
  EXPECT_NEAR(first.at(0), 0.05, 1e-15);
  EXPECT_NEAR(second.at(0), 0.00025, 1e-16);
  EXPECT_NEAR(master.at(0), 1.95 * (1 - 0.1 * 0.01) - 0.1 * 0.5 / (0.5 + 1e-4), 1e-14);
}

TEST_F(Operators, FlatGroupsOfBuffersAreUpdatedAsOne) {
  // Two parameters with two gradients cut elsewhere, and moments padded to 8.
  OwnedMatrix a(1, 3), b(2, 2), all_a(1, 3), all_b(2, 2), gradient(1, 5), rest(1, 2);
  OwnedMatrix first(1, 8), second(1, 8), whole(1, 7), whole_gradient(1, 7), m(1, 7), v(1, 7);
  for (std::int64_t i = 0; i < 7; ++i) {
    const double value = 0.5 + static_cast<double>(i), slope = 1.0 / (1.0 + static_cast<double>(i));
    (i < 3 ? a : b).set(i < 3 ? i : i - 3, value);
    (i < 5 ? gradient : rest).set(i < 5 ? i : i - 5, slope);
    whole.set(i, value);
    whole_gradient.set(i, slope);
  }
  Placement placement;
  placement.learning_rate = 0.1;
  const Kernel adam = kernel(KernelKind::kAdam, 1, 8);
  run(adam, {&a, &b, &gradient, &rest, &first, &second}, {&a, &b, &first, &second}, placement);
  run(adam, {&whole, &whole_gradient, &m, &v}, {&whole, &m, &v}, placement);
  for (std::int64_t i = 0; i < 7; ++i) {
    EXPECT_EQ((i < 3 ? a.at(i) : b.at(i - 3)), whole.at(i));
    EXPECT_EQ(first.at(i), m.at(i));
  }
  EXPECT_EQ(second.at(7), 0.0);
  // The second of two ranks takes elements 4..7 of the padded concatenation.
  OwnedMatrix share(4, 1);
  Placement second_rank;
  second_rank.first_row = 4;
  run(kernel(KernelKind::kSplitSequence, 4, 1), {&gradient, &rest}, {&share}, second_rank);
  EXPECT_EQ(share.at(0), gradient.at(4));
  EXPECT_EQ(share.at(1), rest.at(0));
  EXPECT_EQ(share.at(3), 0.0);
}

TEST_F(Operators, SplitCutsColumnsWhereTheRowsAreTheSame) {
  const OwnedMatrix x = OwnedMatrix::random(3, 4, engine_);
  OwnedMatrix part(3, 2);
  Placement placement;
  placement.first_column = 2;
  run(kernel(KernelKind::kSplitSequence, 3, 2), {&x}, {&part}, placement);
  EXPECT_EQ(part.at(2, 1), x.at(2, 3));
}

TEST_F(Operators, PaddedVocabularyEntriesCountAsMinusInfinity) {
  const OwnedMatrix logits = OwnedMatrix::random(2, 6, engine_),
                    targets = OwnedMatrix::tokens(2, 4, engine_);
  OwnedMatrix narrow(2, 4), loss(2, 1), statistics(2, 1), expected(2, 1), dlogits(2, 6);
  for (std::int64_t i = 0; i < 8; ++i) narrow.set(i, logits.at(i / 4, i % 4));
  run(kernel(KernelKind::kFusedCrossEntropyForward, 2, 4), {&narrow, &targets},
      {&expected, &statistics});
  Placement placement;
  placement.vocabulary = 4;
  run(kernel(KernelKind::kFusedCrossEntropyForward, 2, 6), {&logits, &targets},
      {&loss, &statistics}, placement);
  EXPECT_EQ(loss.at(1), expected.at(1));
  run(kernel(KernelKind::kFusedCrossEntropyBackward, 2, 6), {&logits, &targets, &statistics},
      {&dlogits}, placement);
  EXPECT_EQ(dlogits.at(1, 5), 0.0);
  // A shard that is all padding has no maximum of its own.
  OwnedMatrix maximum(2, 1);
  placement.first_column = 6;
  run(kernel(KernelKind::kCrossEntropyMaximum, 2, 6), {&logits}, {&maximum}, placement);
  EXPECT_TRUE(std::isinf(maximum.at(0)));
}

TEST_F(Operators, WrongOperandsAreRefusedByName) {
  const OwnedMatrix x(3, 4), w(5, 3);
  OwnedMatrix y(3, 5);
  EXPECT_THAT(
      [&] {
        run(gemm(GemmRole::kForward, 3, 5, 4), {&x, &w}, {&y});
      },
      testing::ThrowsMessage<std::invalid_argument>(testing::HasSubstr("5 x 3")));
  EXPECT_THAT([&] { run(gemm(GemmRole::kForward, 3, 5, 4), {&x}, {&y}); },
              testing::ThrowsMessage<std::invalid_argument>(testing::HasSubstr("missing")));
}

TEST(Rounding, IsToTheNearestEvenValueOfTheType) {
  EXPECT_EQ(rounded(1.0F + 0x1p-8F, DataType::kBf16), 1.0F);              // tie to even
  EXPECT_EQ(rounded(1.0F + 0x1.8p-7F, DataType::kBf16), 1.0F + 0x1p-6F);  // tie to even
  EXPECT_EQ(rounded(1.0F + 0x1.01p-8F, DataType::kBf16), 1.0F + 0x1p-7F);
  EXPECT_EQ(rounded(2049.0F, DataType::kFp16), 2048.0F);
  EXPECT_EQ(rounded(65519.0F, DataType::kFp16), 65504.0F);
  EXPECT_TRUE(std::isinf(rounded(65520.0F, DataType::kFp16)));
  EXPECT_EQ(rounded(0x1.8p-24F, DataType::kFp16), 0x1p-23F);  // subnormal step 2^-24: tie to even
  EXPECT_EQ(rounded(1.0F + 0x1p-11F, DataType::kTf32), 1.0F);
  EXPECT_EQ(rounded(1.1, DataType::kFp64), 1.1);
}

TEST_F(Operators, SixteenBitResultsAreRoundedToTheirType) {
  const OwnedMatrix x = OwnedMatrix::random(8, 8, engine_, 1.0, DataType::kBf16),
                    w = OwnedMatrix::random(8, 8, engine_, 1.0, DataType::kBf16);
  OwnedMatrix y(8, 8, DataType::kBf16);
  Gemm operation = gemm(GemmRole::kForward, 8, 8, 8);
  operation.type = operation.output = DataType::kBf16;
  run(operation, {&x, &w}, {&y});
  for (std::int64_t i = 0; i < y.elements(); ++i) {
    EXPECT_EQ(y.at(i), rounded(static_cast<float>(y.at(i)), DataType::kBf16));
  }
}

}  // namespace
}  // namespace headway
