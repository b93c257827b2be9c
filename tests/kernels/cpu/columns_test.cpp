#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/cpu/owned_matrix.hpp"

namespace headway {
namespace {

Kernel kernel(KernelKind kind, std::int64_t rows, std::int64_t columns) {
  Kernel made;
  made.kind = kind;
  made.rows = rows;
  made.columns = columns;
  made.type = made.output = DataType::kFp64;
  return made;
}

TEST(Columns, APieceOfTwiceTheRowsTakesTwoRuns) {
  OwnedMatrix whole(2, 3), pieces(4, 1), rest(2, 1), again(2, 3);
  for (std::int64_t i = 0; i < 6; ++i) whole.set(i, static_cast<double>(i));  // 0 1 2 / 3 4 5
  run(kernel(KernelKind::kSplitColumns, 2, 3), {&whole}, {&pieces, &rest});
  const double first[] = {0, 3, 1, 4};
  for (std::int64_t i = 0; i < 4; ++i) EXPECT_EQ(pieces.at(i), first[i]);
  EXPECT_EQ(rest.at(0), 2);
  EXPECT_EQ(rest.at(1), 5);
  run(kernel(KernelKind::kJoinColumns, 2, 3), {&pieces, &rest}, {&again});
  for (std::int64_t i = 0; i < 6; ++i) EXPECT_EQ(again.at(i), whole.at(i));
}

TEST(Columns, RefusesPiecesThatDoNotMakeTheWhole) {
  OwnedMatrix whole(2, 3), piece(2, 2), odd(3, 1);
  EXPECT_THROW(run(kernel(KernelKind::kSplitColumns, 2, 3), {&whole}, {&piece}),
               std::invalid_argument);
  EXPECT_THROW(run(kernel(KernelKind::kSplitColumns, 2, 3), {&whole}, {&piece, &odd}),
               std::invalid_argument);
}

TEST(AttentionMerge, MakesTheSoftmaxOverAllKeysOfThoseOverTwoParts) {
  // One query, keys with scores ln 1, ln 3 | ln 4, values 8, 0 | 2: (8 + 0 + 4 x 2) / 8 = 2.
  Kernel merge = kernel(KernelKind::kAttentionMerge, 1, 1);
  merge.head_dim = 1;
  OwnedMatrix block(1, 1), block_lse(1, 1), context(1, 1), lse(1, 1);
  context.set(0, 8.0 / 4);
  lse.set(0, std::log(4.0));
  block.set(0, 2);
  block_lse.set(0, std::log(4.0));
  run(merge, {&block, &block_lse, &context, &lse}, {&context, &lse});
  EXPECT_NEAR(context.at(0), 2, 1e-15);
  EXPECT_NEAR(lse.at(0), std::log(8.0), 1e-15);
  // A block of which the query sees nothing adds nothing.
  block_lse.set(0, -std::numeric_limits<double>::infinity());
  block.set(0, 77);
  run(merge, {&block, &block_lse, &context, &lse}, {&context, &lse});
  EXPECT_NEAR(context.at(0), 2, 1e-15);
}

}  // namespace
}  // namespace headway
