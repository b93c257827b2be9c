#include "kernels/cpu/collectives.hpp"

#include <gmock/gmock.h>

#include "tests/kernels/cpu/owned_matrix.hpp"

namespace headway {
namespace {

OwnedMatrix counted(std::int64_t rows, std::int64_t columns, double first,
                    DataType type = DataType::kFp64) {
  OwnedMatrix tensor(rows, columns, type);
  for (std::int64_t i = 0; i < tensor.elements(); ++i)
    tensor.set(i, first + static_cast<double>(i));
  return tensor;
}

std::vector<double> values(const OwnedMatrix& tensor) {
  std::vector<double> out;
  for (std::int64_t i = 0; i < tensor.elements(); ++i) out.push_back(tensor.at(i));
  return out;
}

Collective collective(CollectiveKind kind, std::int64_t elements,
                      ReduceOperator reduce = ReduceOperator::kSum) {
  Collective made;
  made.kind = kind;
  made.elements = elements;
  made.reduce = reduce;
  made.type = DataType::kFp64;
  return made;
}

using testing::ElementsAre;

TEST(Collectives, AShiftBringsWhatTheMemberBeforeHas) {
  std::vector<OwnedMatrix> from, to;
  for (int m = 0; m < 3; ++m) {
    from.push_back(counted(1, 2, 10 * m));
    to.emplace_back(1, 2);
  }
  std::vector<CollectiveMember> members;
  for (std::size_t m = 0; m < 3; ++m) {
    members.push_back({{from[m].operand()}, {to[m].operand()}});
  }
  communicate(collective(CollectiveKind::kShift, 2), members);
  EXPECT_THAT(values(to[0]), ElementsAre(20, 21));
  EXPECT_THAT(values(to[1]), ElementsAre(0, 1));
  EXPECT_THAT(values(to[2]), ElementsAre(10, 11));
}

TEST(Collectives, AReductionLeavesWhatOtherMembersHaveOfIt) {
  std::vector<OwnedMatrix> partial, sum;
  for (int m = 0; m < 2; ++m) {
    partial.push_back(counted(1, 2, 10 * m));
    sum.push_back(counted(1, 2, 100));
  }
  std::vector<CollectiveMember> members;
  for (std::size_t m = 0; m < 2; ++m) {
    members.push_back({{partial[m].operand(), sum[m].operand()}, {sum[m].operand()}});
  }
  Collective to_second = collective(CollectiveKind::kReduce, 2);
  to_second.root = 1;
  communicate(to_second, members);
  EXPECT_THAT(values(sum[0]), ElementsAre(100, 101));
  EXPECT_THAT(values(sum[1]), ElementsAre(10, 12));
  EXPECT_THAT(values(partial[0]), ElementsAre(0, 1));
}

TEST(Collectives, AllReduceSumsAveragesAndTakesMaxima) {
  for (const auto& [reduce, first] :
       {std::pair(ReduceOperator::kSum, 11.0), std::pair(ReduceOperator::kAverage, 5.5),
        std::pair(ReduceOperator::kMaximum, 10.0)}) {
    const OwnedMatrix a = counted(1, 2, 1), b = counted(1, 2, 10);
    communicate(collective(CollectiveKind::kAllReduce, 2, reduce),
                std::vector<CollectiveMember>{{{a.operand()}, {a.operand()}},
                                              {{b.operand()}, {b.operand()}}});
    EXPECT_EQ(a.at(0), first);
    EXPECT_EQ(values(a), values(b));
  }
}

TEST(Collectives, AllReduceTakesSeveralBuffersAsOneArray) {
  const OwnedMatrix a = counted(1, 2, 0), c = counted(1, 1, 5), b = counted(1, 3, 100);
  communicate(
      collective(CollectiveKind::kAllReduce, 3),
      std::vector<CollectiveMember>{{{a.operand(), c.operand()}, {a.operand(), c.operand()}},
                                    {{b.operand()}, {b.operand()}}});
  EXPECT_THAT(values(b), ElementsAre(100, 102, 107));
  EXPECT_THAT(values(c), ElementsAre(107));
}

TEST(Collectives, ReduceScatterPadsWithZerosAndCutsByRows) {
  const OwnedMatrix a = counted(1, 3, 1), b = counted(1, 3, 10);
  OwnedMatrix first(1, 2), second(1, 2);
  communicate(collective(CollectiveKind::kReduceScatter, 4),
              std::vector<CollectiveMember>{{{a.operand()}, {first.operand()}},
                                            {{b.operand()}, {second.operand()}}});
  EXPECT_THAT(values(first), ElementsAre(11, 13));
  EXPECT_THAT(values(second), ElementsAre(15, 0));
}

TEST(Collectives, AllGatherLaysRowsEndToEndAndColumnsSideBySide) {
  const OwnedMatrix a = counted(2, 1, 0), b = counted(2, 1, 10);
  OwnedMatrix by_rows_a(4, 1), by_rows_b(4, 1), by_columns_a(2, 2), by_columns_b(2, 2);
  communicate(collective(CollectiveKind::kAllGather, 4),
              std::vector<CollectiveMember>{{{a.operand()}, {by_rows_a.operand()}},
                                            {{b.operand()}, {by_rows_b.operand()}}});
  EXPECT_THAT(values(by_rows_a), ElementsAre(0, 1, 10, 11));
  communicate(collective(CollectiveKind::kAllGather, 4),
              std::vector<CollectiveMember>{{{a.operand()}, {by_columns_a.operand()}},
                                            {{b.operand()}, {by_columns_b.operand()}}});
  EXPECT_THAT(values(by_columns_b), ElementsAre(0, 10, 1, 11));
}

TEST(Collectives, BroadcastReduceAllToAllAndSend) {
  OwnedMatrix a = counted(1, 2, 1), b = counted(1, 2, 10);
  Collective broadcast = collective(CollectiveKind::kBroadcast, 2);
  broadcast.root = 1;
  std::vector<CollectiveMember> in_place{{{a.operand()}, {a.operand()}},
                                         {{b.operand()}, {b.operand()}}};
  communicate(broadcast, in_place);
  EXPECT_THAT(values(a), ElementsAre(10, 11));
  Collective reduce = collective(CollectiveKind::kReduce, 2);
  reduce.root = 1;
  communicate(reduce, in_place);
  EXPECT_THAT(values(a), ElementsAre(10, 11));
  EXPECT_THAT(values(b), ElementsAre(20, 22));
  OwnedMatrix to_a(1, 2), to_b(1, 2);
  communicate(collective(CollectiveKind::kAllToAll, 2),
              std::vector<CollectiveMember>{{{a.operand()}, {to_a.operand()}},
                                            {{b.operand()}, {to_b.operand()}}});
  EXPECT_THAT(values(to_a), ElementsAre(10, 20));
  EXPECT_THAT(values(to_b), ElementsAre(11, 22));
  communicate(collective(CollectiveKind::kSend, 2),
              std::vector<CollectiveMember>{{{b.operand()}, {}}, {{}, {to_a.operand()}}});
  EXPECT_THAT(values(to_a), ElementsAre(20, 22));
}

TEST(Collectives, ReductionsOfSixteenBitValuesAddInFloatAndRoundOnce) {
  // 256 + 1 + 1 = 258 in fp32, which bf16 holds; rounding after each addition would give 256.
  std::vector<OwnedMatrix> parts;
  for (const double value : {256.0, 1.0, 1.0}) {
    parts.emplace_back(1, 1, DataType::kBf16);
    parts.back().set(0, value);
  }
  std::vector<CollectiveMember> members;
  for (const OwnedMatrix& part : parts) members.push_back({{part.operand()}, {part.operand()}});
  communicate(collective(CollectiveKind::kAllReduce, 1), members);
  EXPECT_EQ(parts[0].at(0), 258.0);
}

TEST(Collectives, SizesThatDoNotFitAreRefused) {
  const OwnedMatrix a(1, 3);
  EXPECT_THAT(
      [&] {
        communicate(collective(CollectiveKind::kAllReduce, 2),
                    std::vector<CollectiveMember>{{{a.operand()}, {a.operand()}}});
      },
      testing::ThrowsMessage<std::invalid_argument>(testing::HasSubstr("3 elements")));
}

}  // namespace
}  // namespace headway
