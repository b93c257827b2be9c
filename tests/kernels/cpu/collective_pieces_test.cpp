#include "kernels/cpu/collective_pieces.hpp"

#include <gmock/gmock.h>

#include "tests/kernels/cpu/owned_matrix.hpp"

namespace headway {
namespace {

// What a member holds: matrices of these sizes in a row, with numbers that tell them apart.
std::vector<OwnedMatrix> buffers(const std::vector<std::int64_t>& sizes, double first) {
  std::vector<OwnedMatrix> made;
  for (const std::int64_t size : sizes) {
    OwnedMatrix& buffer = made.emplace_back(1, size);
    for (std::int64_t i = 0; i < size; ++i) buffer.set(i, first + 0.25 * static_cast<double>(i));
    first += 100;
  }
  return made;
}

struct Shape {
  CollectiveKind kind;
  std::int64_t elements;
  std::vector<std::int64_t> reads, writes;  // sizes of a member's buffers
};

// The results of all members, laid end to end.
std::vector<double> carried_out(const Shape& shape, int members, std::int64_t most) {
  Collective collective;
  collective.kind = shape.kind;
  collective.elements = shape.elements;
  collective.type = DataType::kFp64;
  std::vector<std::vector<OwnedMatrix>> reads, writes;
  std::vector<CollectiveMember> all;
  for (int m = 0; m < members; ++m) {
    reads.push_back(buffers(shape.reads, 1000 * (m + 1)));
    writes.push_back(buffers(shape.writes, 0));
    CollectiveMember& member = all.emplace_back();
    for (const OwnedMatrix& buffer : reads.back()) member.reads.push_back(buffer.operand());
    for (const OwnedMatrix& buffer : writes.back()) member.writes.push_back(buffer.operand());
  }
  for (const CollectivePiece& piece : pieces_of(collective, all, most)) {
    std::vector<CollectiveMember> cut;
    for (const CollectiveMember& member : all) cut.push_back(operands_of(piece, member));
    for (std::size_t own = 0; own < cut.size(); ++own) {
      communicate_for(piece.collective, cut, own);
    }
  }
  std::vector<double> results;
  for (const auto& member : writes) {
    for (const OwnedMatrix& buffer : member) {
      for (std::int64_t i = 0; i < buffer.elements(); ++i) results.push_back(buffer.at(i));
    }
  }
  return results;
}

TEST(CollectivePieces, GiveWhatTheWholeGives) {
  const std::vector<Shape> shapes = {
      {CollectiveKind::kAllReduce, 23, {7, 16}, {7, 16}},
      {CollectiveKind::kAllReduce, 24, {7, 16}, {23}},  // padded
      {CollectiveKind::kReduceScatter, 24, {7, 16}, {8}},
      {CollectiveKind::kReduceScatter, 24, {24}, {3, 5}},
      {CollectiveKind::kAllGather, 24, {8}, {7, 16}},  // the padding is dropped
      {CollectiveKind::kAllGather, 24, {3, 5}, {24}},
      {CollectiveKind::kBroadcast, 23, {23}, {7, 16}},
      {CollectiveKind::kReduce, 23, {7, 16}, {23}},
      {CollectiveKind::kShift, 23, {23}, {7, 16}},
      {CollectiveKind::kAllToAll, 24, {24}, {24}}};
  for (const Shape& shape : shapes) {
    const std::vector<double> whole = carried_out(shape, 3, 1000);
    for (const std::int64_t most : {1, 2, 5, 8, 22}) {
      EXPECT_EQ(carried_out(shape, 3, most), whole)
          << name(shape.kind) << " of " << shape.elements << " in pieces of " << most;
    }
  }
}

TEST(CollectivePieces, AreNoLargerThanAsked) {
  Collective collective;
  collective.kind = CollectiveKind::kReduceScatter;
  collective.elements = 24;
  std::vector<OwnedMatrix> whole = buffers({24}, 0), share = buffers({12}, 0);
  const std::vector<CollectiveMember> members(2, {{whole[0].operand()}, {share[0].operand()}});
  const std::vector<CollectivePiece> pieces = pieces_of(collective, members, 5);
  EXPECT_EQ(pieces.size(), 6U);  // 5 + 5 + 2 to each of two members
  std::int64_t sum = 0;
  for (const CollectivePiece& piece : pieces) {
    EXPECT_LE(piece.collective.elements, 5);
    sum += piece.collective.elements;
  }
  EXPECT_EQ(sum, 24);
}

TEST(CollectivePieces, MatricesSideBySideStayWhole) {
  Collective collective;
  collective.kind = CollectiveKind::kAllGather;
  collective.elements = 24;
  const OwnedMatrix part(4, 3), whole(4, 6);
  const std::vector<CollectiveMember> members(2, {{part.operand()}, {whole.operand()}});
  EXPECT_EQ(pieces_of(collective, members, 5).size(), 1U);
}

}  // namespace
}  // namespace headway
