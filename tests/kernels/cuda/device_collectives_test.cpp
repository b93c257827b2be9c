#include "kernels/cuda/device_operators.hpp"
#include "tests/kernels/cuda/both_backends.hpp"

namespace headway {
namespace {

using Shapes = std::vector<std::vector<Shape>>;

Collective collective(CollectiveKind kind, std::int64_t elements,
                      ReduceOperator reduce = ReduceOperator::kSum) {
  Collective made;
  made.kind = kind;
  made.elements = elements;
  made.reduce = reduce;
  return made;
}

Shape matrix(std::int64_t rows, std::int64_t columns, DataType type = DataType::kBf16) {
  return {type, rows, columns};
}
constexpr int kFirst = 0, kSecond = 1;
Shape same_as(int operand) { return {DataType::kBf16, 0, 0, operand}; }

TEST(DeviceCollectives, ReduceInPlaceOverSeveralBuffers) {
  SKIP_WITHOUT_DEVICE();
  const Shapes reads{{matrix(3, 8), matrix(1, 5)}, {matrix(1, 29)}, {matrix(2, 7)}};
  const Shapes writes{{same_as(kFirst), same_as(kSecond)}, {same_as(kFirst)}, {same_as(kFirst)}};
  for (const ReduceOperator reduce :
       {ReduceOperator::kSum, ReduceOperator::kMaximum, ReduceOperator::kAverage}) {
    // Sums are added in the same order in float: equal to the bit.
    EXPECT_EQ(BothBackends().communicate(collective(CollectiveKind::kAllReduce, 29, reduce), reads,
                                         writes),
              0);
  }
  EXPECT_EQ(BothBackends().communicate(collective(CollectiveKind::kReduce, 29), reads, writes), 0);
  EXPECT_EQ(BothBackends().communicate(collective(CollectiveKind::kBroadcast, 29), reads, writes),
            0);
}

TEST(DeviceCollectives, SharesAreCutByRowsOrByColumns) {
  SKIP_WITHOUT_DEVICE();
  for (const std::int64_t columns : {3, 8}) {
    const Shapes whole{{matrix(4, 2 * columns)}, {matrix(4, 2 * columns)}};
    const Shapes beside{{matrix(4, columns)}, {matrix(4, columns)}};
    const Shapes below{{matrix(2, 2 * columns)}, {matrix(2, 2 * columns)}};
    for (const Shapes& part : {beside, below}) {
      BothBackends backends;
      EXPECT_EQ(backends.communicate(collective(CollectiveKind::kReduceScatter, 8 * columns), whole,
                                     part),
                0);
      EXPECT_EQ(
          backends.communicate(collective(CollectiveKind::kAllGather, 8 * columns), part, whole),
          0);
    }
  }
}

TEST(DeviceCollectives, ExchangesAndMessages) {
  SKIP_WITHOUT_DEVICE();
  const Shapes each{{matrix(2, 6)}, {matrix(2, 6)}, {matrix(2, 6)}};
  BothBackends backends;
  EXPECT_EQ(backends.communicate(collective(CollectiveKind::kAllToAll, 12), each, each), 0);
  EXPECT_EQ(backends.communicate(collective(CollectiveKind::kShift, 12), each, each), 0);
  EXPECT_EQ(backends.communicate(collective(CollectiveKind::kSend, 12), {{matrix(2, 6)}, {}},
                                 {{}, {matrix(2, 6)}}),
            0);
}

TEST(DeviceCollectives, RowsByCountsGoWhereTheyGoOnTheCpu) {
  SKIP_WITHOUT_DEVICE();
  const auto counts = [](std::vector<double> values) {
    return Shape{DataType::kInt32, 1, static_cast<std::int64_t>(values.size()), -1, 0,
                 std::move(values)};
  };
  Collective made = collective(CollectiveKind::kAllToAll, 24);
  made.shares = Shares::kByCounts;
  const Shapes sent{{matrix(6, 4), counts({2, 1})}, {matrix(6, 4), counts({0, 4})}};
  const Shapes received{{matrix(7, 4)}, {matrix(7, 4)}};
  BothBackends backends;
  EXPECT_EQ(backends.communicate(made, sent, received), 0);
  made.shares = Shares::kBackByCounts;
  EXPECT_EQ(backends.communicate(made, sent, received), 0);
  made.shares = Shares::kByCounts;
  made.kind = CollectiveKind::kAllGather;
  EXPECT_EQ(backends.communicate(made, sent, {{matrix(8, 4)}, {matrix(8, 4)}}), 0);
  made.kind = CollectiveKind::kReduceScatter;
  EXPECT_EQ(
      backends.communicate(made, {{matrix(8, 4), counts({2, 1})}, {matrix(8, 4), counts({0, 4})}},
                           {{matrix(4, 4)}, {matrix(5, 4)}}),
      0);
}

}  // namespace
}  // namespace headway
