// The kernels of a mixture of experts: gradients against differences, permutations against their
// definition, small cases by hand.
#include "kernels/cpu/routing.hpp"

#include <gmock/gmock.h>

#include <array>
#include <cmath>

#include "kernels/cpu/collectives.hpp"
#include "tests/kernels/cpu/owned_matrix.hpp"

namespace headway {
namespace {

using testing::ElementsAre;

// As in operators_test: truncation and cancellation of central differences.
constexpr double kDifferenceLimit = 1e-7;

OwnedMatrix counts(std::int64_t rows, std::int64_t columns, const std::vector<double>& values) {
  OwnedMatrix made(rows, columns, DataType::kInt32);
  for (std::size_t i = 0; i < values.size(); ++i) made.set(static_cast<std::int64_t>(i), values[i]);
  return made;
}

std::vector<double> values(const OwnedMatrix& matrix) {
  std::vector<double> all;
  for (std::int64_t i = 0; i < matrix.elements(); ++i) all.push_back(matrix.at(i));
  return all;
}

Routing routing(RoutingKind kind, std::int64_t tokens, std::int64_t experts, std::int64_t per_token,
                std::int64_t columns = 0) {
  Routing made;
  made.kind = kind;
  made.tokens = tokens;
  made.experts = made.local_experts = experts;
  made.per_token = per_token;
  made.columns = columns;
  made.rows = tokens * per_token;
  made.type = DataType::kFp64;
  return made;
}

TEST(RouterKernel, ChoosesTheBestAndWeighsThemBySoftmax) {
  OwnedMatrix logits(1, 4), weights(1, 2), scores(1, 4), choice(1, 2, DataType::kInt32);
  for (const std::int64_t e : {0, 1, 2, 3})
    logits.set(e, std::log(std::array{1., 4., 2., 3.}[static_cast<std::size_t>(e)]));
  Routing choose = routing(RoutingKind::kChoose, 1, 4, 2);
  run(choose, {&logits}, {&choice, &weights, &scores});
  EXPECT_THAT(values(choice), ElementsAre(1, 3));
  EXPECT_NEAR(weights.at(0), 4.0 / 7, 1e-15);  // of the chosen alone
  EXPECT_NEAR(scores.at(0), 0.1, 1e-15);
  choose.score = RouterScore::kSoftmax;
  run(choose, {&logits}, {&choice, &weights, &scores});
  EXPECT_NEAR(weights.at(0), 0.4, 1e-15);
  choose.score = RouterScore::kSigmoid;  // x / (1 + x): 1/2, 4/5, 2/3, 3/4
  run(choose, {&logits}, {&choice, &weights, &scores});
  EXPECT_THAT(values(choice), ElementsAre(1, 3));
  EXPECT_NEAR(weights.at(0), 0.8 / (0.8 + 0.75), 1e-15);
}

TEST(RouterKernel, LimitsATokenToItsBestGroups) {
  // Two groups of two: the best expert stands in the first, the best two together in the second.
  OwnedMatrix logits(1, 4), weights(1, 1), scores(1, 4), choice(1, 1, DataType::kInt32);
  logits.set(0, 3.0);
  logits.set(1, -9.0);
  logits.set(2, 2.0);
  logits.set(3, 2.5);
  Routing choose = routing(RoutingKind::kChoose, 1, 4, 1);
  choose.groups = 2;
  choose.groups_per_token = 1;
  choose.score = RouterScore::kSoftmax;
  run(choose, {&logits}, {&choice, &weights, &scores});
  EXPECT_EQ(choice.at(0), 0);
  choose.score = RouterScore::kSigmoid;
  run(choose, {&logits}, {&choice, &weights, &scores});
  EXPECT_EQ(choice.at(0), 3);
}

TEST(RouterKernel, RepeatsARecordedChoice) {
  std::mt19937_64 engine(3);
  const OwnedMatrix logits = OwnedMatrix::random(2, 4, engine);
  OwnedMatrix weights(2, 2), scores(2, 4), choice(2, 2, DataType::kInt32);
  const std::array<std::int32_t, 4> recorded = {3, 0, 1, 2};
  Placement placement;
  placement.choice = recorded.data();
  run(routing(RoutingKind::kChoose, 2, 4, 2), {&logits}, {&choice, &weights, &scores}, placement);
  EXPECT_THAT(values(choice), ElementsAre(3, 0, 1, 2));
}

// With the auxiliary loss: coefficient x sum over experts of chosen x score.
TEST(RouterKernel, GradientIsItsDifference) {
  constexpr std::int64_t kTokens = 5, kExperts = 6, kPerToken = 3;
  for (const RouterScore score :
       {RouterScore::kSoftmax, RouterScore::kSoftmaxOfChosen, RouterScore::kSigmoid}) {
    std::mt19937_64 engine(5);
    OwnedMatrix logits = OwnedMatrix::random(kTokens, kExperts, engine);
    const OwnedMatrix dweights = OwnedMatrix::random(kTokens, kPerToken, engine);
    const OwnedMatrix chosen = counts(1, kExperts, {4, 1, 3, 2, 0, 5});
    OwnedMatrix weights(kTokens, kPerToken), scores(kTokens, kExperts),
        choice(kTokens, kPerToken, DataType::kInt32), dlogits(kTokens, kExperts);
    Routing forward = routing(RoutingKind::kChoose, kTokens, kExperts, kPerToken);
    forward.score = score;
    Routing backward = forward;
    backward.kind = RoutingKind::kChooseBackward;
    backward.with_chosen = true;
    backward.auxiliary = 0.1;
    run(forward, {&logits}, {&choice, &weights, &scores});
    run(backward, {&dweights, &choice, &weights, &scores, &chosen}, {&dlogits});
    const auto loss = [&] {
      OwnedMatrix w(kTokens, kPerToken), s(kTokens, kExperts),
          c(kTokens, kPerToken, DataType::kInt32);
      run(forward, {&logits}, {&c, &w, &s});
      double sum = dot(w, dweights);
      for (std::int64_t t = 0; t < kTokens; ++t) {
        double all = 0;
        for (std::int64_t e = 0; e < kExperts; ++e) all += s.at(t, e);
        for (std::int64_t e = 0; e < kExperts; ++e) sum += 0.1 * chosen.at(e) * s.at(t, e) / all;
      }
      return sum;
    };
    EXPECT_LT(gradient_error(logits, dlogits, loss), kDifferenceLimit) << name(score);
  }
}

TEST(AssignKernel, OrdersChoicesByExpertThenByToken) {
  // Token 0 chooses experts 2 and 0, token 1 experts 0 and 1, token 2 experts 2 and 1.
  const OwnedMatrix choice = counts(3, 2, {2, 0, 0, 1, 2, 1});
  const OwnedMatrix weights(3, 2);
  OwnedMatrix taken(1, 3, DataType::kInt32), rows(3, 2, DataType::kInt32),
      chosen(1, 3, DataType::kInt32);
  Routing assign = routing(RoutingKind::kAssign, 3, 3, 2);
  assign.with_chosen = true;
  run(assign, {&choice, &weights}, {&taken, &rows, &chosen});
  EXPECT_THAT(values(taken), ElementsAre(2, 2, 2));
  EXPECT_THAT(values(rows), ElementsAre(4, 0, 1, 2, 5, 3));
}

TEST(AssignKernel, DropsWhatExceedsTheCapacity) {
  const OwnedMatrix choice = counts(4, 1, {0, 0, 1, 0});
  OwnedMatrix weights(4, 1), taken(1, 2, DataType::kInt32), rows(4, 1, DataType::kInt32),
      chosen(1, 2, DataType::kInt32);
  for (const std::int64_t t : {0, 1, 2, 3})
    weights.set(t, std::array{.1, .5, .2, .3}[static_cast<std::size_t>(t)]);
  Routing assign = routing(RoutingKind::kAssign, 4, 2, 1);
  assign.capacity = 2;
  assign.with_chosen = true;
  run(assign, {&choice, &weights}, {&taken, &rows, &chosen});
  EXPECT_THAT(values(rows), ElementsAre(0, 1, 2, -1));  // the first
  EXPECT_THAT(values(taken), ElementsAre(2, 1));
  EXPECT_THAT(values(chosen), ElementsAre(3, 1));
  assign.by_score = true;
  run(assign, {&choice, &weights}, {&taken, &rows, &chosen});
  EXPECT_THAT(values(rows), ElementsAre(-1, 0, 2, 1));  // the lightest of three goes
  assign.padded = true;
  run(assign, {&choice, &weights}, {&taken, &rows, &chosen});
  EXPECT_THAT(values(taken), ElementsAre(2, 2));
  assign.padded = false;
  assign.capacity = 1;
  assign.token_groups = 2;  // tokens 0 and 1, 2 and 3: each fills a capacity of its own
  run(assign, {&choice, &weights}, {&taken, &rows, &chosen});
  EXPECT_THAT(values(rows), ElementsAre(-1, 0, 2, 1));
}

TEST(SplitsKernel, PicksTheOwnExpertsOfEveryRank) {
  // Two ranks that share the experts, two slices each; experts 2 and 3 are the second rank's.
  const OwnedMatrix all = counts(4, 4, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16});
  OwnedMatrix received(2, 2, DataType::kInt32), gathered(4, 2, DataType::kInt32);
  Routing splits = routing(RoutingKind::kSplits, 1, 4, 1);
  splits.local_experts = 2;
  splits.parts = 4;
  Placement placement;
  placement.expert_rank = 1;
  placement.expert_slice = 1;
  run(splits, {&all}, {&received, &gathered}, placement);
  EXPECT_THAT(values(received), ElementsAre(7, 8, 15, 16));  // ranks 1 and 3
  EXPECT_THAT(values(gathered), ElementsAre(3, 4, 11, 12, 7, 8, 15, 16));
  placement.slices_innermost = false;
  run(splits, {&all}, {&received, &gathered}, placement);
  EXPECT_THAT(values(received), ElementsAre(11, 12, 15, 16));  // ranks 2 and 3
}

TEST(SortKernel, BringsRowsFromSourceMajorToExpertMajorAndBack) {
  // Source 0 sends 1 row of expert 0 and 2 of expert 1, source 1 sends 2 and 0: rows a b c d e.
  OwnedMatrix x(6, 1), sorted(6, 1), back(6, 1);
  for (std::int64_t i = 0; i < 5; ++i) x.set(i, static_cast<double>(i + 1));
  x.set(5, 99);  // past the rows that there are
  const OwnedMatrix gathered = counts(2, 2, {1, 2, 2, 0});
  Routing sort = routing(RoutingKind::kSort, 5, 2, 1, 1);
  sort.parts = 2;
  run(sort, {&x, &gathered}, {&sorted});
  EXPECT_THAT(values(sorted), ElementsAre(1, 4, 5, 2, 3, 0));
  sort.kind = RoutingKind::kUnsort;
  run(sort, {&sorted, &gathered}, {&back});
  EXPECT_THAT(values(back), ElementsAre(1, 2, 3, 4, 5, 0));
}

TEST(SortKernel, BeginsEachExpertAtAMultipleWithZerosBetween) {
  // As above, in fours: expert 0 has rows a d e and a zero, expert 1 b c and zeros.
  OwnedMatrix x(5, 1), sorted(9, 1), back(5, 1);
  for (std::int64_t i = 0; i < 5; ++i) x.set(i, static_cast<double>(i + 1));
  const OwnedMatrix gathered = counts(2, 2, {1, 2, 2, 0});
  Routing sort = routing(RoutingKind::kSort, 5, 2, 1, 1);
  sort.parts = 2;
  sort.multiple = 4;
  run(sort, {&x, &gathered}, {&sorted});
  EXPECT_THAT(values(sorted), ElementsAre(1, 4, 5, 0, 2, 3, 0, 0, 0));
  sort.kind = RoutingKind::kUnsort;
  run(sort, {&sorted, &gathered}, {&back});
  EXPECT_THAT(values(back), ElementsAre(1, 2, 3, 4, 5));
}

TEST(AssignKernel, OfGatheredTokensTakesTheChoicesOfItsOwnExperts) {
  const OwnedMatrix choice = counts(4, 1, {3, 0, 2, 3}), weights(4, 1);
  OwnedMatrix taken(1, 2, DataType::kInt32), rows(4, 1, DataType::kInt32);
  Routing assign = routing(RoutingKind::kAssign, 4, 4, 1);
  assign.own_experts = true;
  assign.local_experts = 2;
  Placement placement;
  placement.expert_rank = 1;  // experts 2 and 3
  run(assign, {&choice, &weights}, {&taken, &rows}, placement);
  EXPECT_THAT(values(taken), ElementsAre(1, 2));
  EXPECT_THAT(values(rows), ElementsAre(1, -1, 0, 2));
}

TEST(PermuteKernel, GradientsAreTheirDifferences) {
  constexpr std::int64_t kTokens = 4, kColumns = 3;
  std::mt19937_64 engine(7);
  OwnedMatrix x = OwnedMatrix::random(kTokens, kColumns, engine),
              weights = OwnedMatrix::random(kTokens, 2, engine);
  const OwnedMatrix rows = counts(kTokens, 2, {3, 0, 1, -1, 4, 2, 6, 5});  // one dropped
  const OwnedMatrix dout = OwnedMatrix::random(kTokens, kColumns, engine);
  const auto of = [](RoutingKind kind) { return routing(kind, kTokens, 4, 2, kColumns); };
  OwnedMatrix sent(7, kColumns), dsent(7, kColumns), dweights(kTokens, 2), dx(kTokens, kColumns);
  run(of(RoutingKind::kPermute), {&x, &rows}, {&sent});
  EXPECT_EQ(sent.at(3, 1), x.at(0, 1));
  run(of(RoutingKind::kCombineBackward), {&dout, &sent, &rows, &weights}, {&dsent, &dweights});
  run(of(RoutingKind::kPermuteBackward), {&dsent, &rows}, {&dx});
  const auto loss = [&] {
    OwnedMatrix s(7, kColumns), out(kTokens, kColumns);
    run(of(RoutingKind::kPermute), {&x, &rows}, {&s});
    run(of(RoutingKind::kCombine), {&s, &rows, &weights}, {&out});
    return dot(out, dout);
  };
  EXPECT_LT(gradient_error(x, dx, loss), kDifferenceLimit);
  EXPECT_LT(gradient_error(weights, dweights, loss), kDifferenceLimit);
  EXPECT_EQ(dweights.at(1, 1), 0);
}

TEST(GroupedGemmKernel, FindsEachExpertsRowsAtAMultiple) {
  // Two experts that multiply by 10 and by 100; rows of the first end after one, the second begins
  // at the third.
  const OwnedMatrix split = counts(1, 2, {1, 2});
  OwnedMatrix x(4, 1), w(2, 1), y(4, 1), dw(2, 1);
  for (std::int64_t i = 0; i < 4; ++i) x.set(i, static_cast<double>(i + 1));
  w.set(0, 10);
  w.set(1, 100);
  GroupedGemm gemm;
  gemm.groups = 2;
  gemm.m = 4;
  gemm.n = gemm.k = 1;
  gemm.type = gemm.output = DataType::kFp64;
  gemm.multiple = 2;
  run(gemm, {&x, &w, &split}, {&y});
  EXPECT_THAT(values(y), ElementsAre(10, 0, 300, 400));
  gemm.role = GemmRole::kWeightGradient;
  run(gemm, {&y, &x, &split}, {&dw});
  EXPECT_THAT(values(dw), ElementsAre(10, 300 * 3 + 400 * 4));
}

TEST(GroupedGemmKernel, MultipliesEachExpertsRowsAndItsGradientsAreDifferences) {
  constexpr std::int64_t kGroups = 3, kRows = 6, kOut = 2, kIn = 4;
  std::mt19937_64 engine(9);
  OwnedMatrix x = OwnedMatrix::random(kRows, kIn, engine),
              w = OwnedMatrix::random(kGroups * kOut, kIn, engine);
  // Of two sources: expert 0 has 2 rows, expert 1 none, expert 2 three; the last row is nobody's.
  const OwnedMatrix split = counts(2, kGroups, {2, 0, 1, 0, 0, 2});
  OwnedMatrix dy = OwnedMatrix::random(kRows, kOut, engine);
  for (std::int64_t j = 0; j < kOut; ++j) dy.set(5 * kOut + j, 0);
  GroupedGemm gemm;
  gemm.groups = kGroups;
  gemm.m = 5;
  gemm.n = kOut;
  gemm.k = kIn;
  gemm.type = gemm.output = DataType::kFp64;
  const auto role = [&](GemmRole of) {
    GroupedGemm made = gemm;
    made.role = of;
    return made;
  };
  OwnedMatrix y(kRows, kOut), dx(kRows, kIn), dw(kGroups * kOut, kIn);
  run(gemm, {&x, &w, &split}, {&y});
  double expected = 0;  // row 2 is expert 2's first
  for (std::int64_t l = 0; l < kIn; ++l) expected += x.at(2, l) * w.at(2 * kOut + 1, l);
  EXPECT_NEAR(y.at(2, 1), expected, 1e-14);
  EXPECT_EQ(y.at(5, 0), 0);
  run(role(GemmRole::kInputGradient), {&dy, &w, &split}, {&dx});
  run(role(GemmRole::kWeightGradient), {&dy, &x, &split}, {&dw});
  const auto loss = [&] {
    OwnedMatrix out(kRows, kOut);
    run(gemm, {&x, &w, &split}, {&out});
    return dot(out, dy);
  };
  EXPECT_LT(gradient_error(x, dx, loss), kDifferenceLimit);
  EXPECT_LT(gradient_error(w, dw, loss), kDifferenceLimit);
  GroupedGemm adding = role(GemmRole::kWeightGradient);
  adding.accumulate = true;
  const double once = dw.at(0);
  run(adding, {&dy, &x, &split, &dw}, {&dw});
  EXPECT_NEAR(dw.at(0), 2 * once, 1e-14);
}

Collective by_counts(CollectiveKind kind, Shares shares) {
  Collective made;
  made.kind = kind;
  made.type = DataType::kFp64;
  made.shares = shares;
  return made;
}

TEST(CollectivesByCounts, BringRowsThereAndBack) {
  // Rank 0 has rows 1 2 3 and sends one of them to itself; rank 1 has 4 5 and sends both to rank 0.
  OwnedMatrix a(4, 1), b(4, 1), there_a(4, 1), there_b(4, 1), back_a(4, 1), back_b(4, 1);
  for (std::int64_t i = 0; i < 3; ++i) a.set(i, static_cast<double>(i + 1));
  b.set(0, 4);
  b.set(1, 5);
  const OwnedMatrix of_a = counts(1, 2, {1, 2}), of_b = counts(1, 2, {2, 0});
  const auto members = [](const OwnedMatrix& x, const OwnedMatrix& n, const OwnedMatrix& y) {
    return CollectiveMember{{x.operand(), n.operand()}, {y.operand()}};
  };
  const std::vector<CollectiveMember> there = {members(a, of_a, there_a),
                                               members(b, of_b, there_b)};
  communicate(by_counts(CollectiveKind::kAllToAll, Shares::kByCounts), there);
  EXPECT_THAT(values(there_a), ElementsAre(1, 4, 5, 0));
  EXPECT_THAT(values(there_b), ElementsAre(2, 3, 0, 0));
  const std::vector<CollectiveMember> back = {members(there_a, of_a, back_a),
                                              members(there_b, of_b, back_b)};
  communicate(by_counts(CollectiveKind::kAllToAll, Shares::kBackByCounts), back);
  EXPECT_THAT(values(back_a), ElementsAre(1, 2, 3, 0));
  EXPECT_THAT(values(back_b), ElementsAre(4, 5, 0, 0));
}

TEST(CollectivesByCounts, GatherAndScatterRowsOfUnequalRanks) {
  OwnedMatrix a(4, 1), b(4, 1), all_a(4, 1), all_b(4, 1), part_a(4, 1), part_b(4, 1);
  a.set(0, 1);
  b.set(0, 2);
  b.set(1, 3);
  const OwnedMatrix one = counts(1, 2, {1, 0}), two = counts(1, 2, {1, 1});
  const std::vector<CollectiveMember> gather = {{{a.operand(), one.operand()}, {all_a.operand()}},
                                                {{b.operand(), two.operand()}, {all_b.operand()}}};
  communicate(by_counts(CollectiveKind::kAllGather, Shares::kByCounts), gather);
  EXPECT_THAT(values(all_a), ElementsAre(1, 2, 3, 0));
  EXPECT_THAT(values(all_b), ElementsAre(1, 2, 3, 0));
  const std::vector<CollectiveMember> scatter = {
      {{all_a.operand(), one.operand()}, {part_a.operand()}},
      {{all_b.operand(), two.operand()}, {part_b.operand()}}};
  communicate(by_counts(CollectiveKind::kReduceScatter, Shares::kByCounts), scatter);
  EXPECT_THAT(values(part_a), ElementsAre(2, 0, 0, 0));
  EXPECT_THAT(values(part_b), ElementsAre(4, 6, 0, 0));
  const OwnedMatrix many = counts(1, 2, {3, 2});
  const std::vector<CollectiveMember> too_many = {
      {{a.operand(), many.operand()}, {all_a.operand()}},
      {{b.operand(), two.operand()}, {all_b.operand()}}};
  EXPECT_THROW(communicate(by_counts(CollectiveKind::kAllGather, Shares::kByCounts), too_many),
               std::invalid_argument);
}

}  // namespace
}  // namespace headway
