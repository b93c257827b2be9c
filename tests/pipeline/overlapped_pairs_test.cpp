#include "sim/program/pipeline/overlapped_pairs.hpp"

#include <gmock/gmock.h>

namespace headway {
namespace {

using testing::ElementsAre;

// The steady part of 1F1B in pairs, each backward pass with the forward pass behind it; what opens
// and closes the order stands alone.
TEST(OverlappedPairs, AreABackwardPassAndTheForwardPassBehindIt) {
  const auto paired = [](const char* order) {
    return to_text(with_overlapped_pairs(parse_actions(order)));
  };
  EXPECT_EQ(paired("0F0 0F1 0B0 0F2 0B1 0F3 0B2 0B3"),
            "0F0 0F1 (0F2;0B0)OVERLAP_F_B (0F3;0B1)OVERLAP_F_B 0B2 0B3");
  EXPECT_EQ(paired("0F0 0B0"), "0F0 0B0");
  EXPECT_EQ(paired("0F0 0I0 0F1 0W0"), "0F0 0I0 0F1 0W0");
}

TEST(OverlappedPairs, OfDualPipeAreItsOwn) {
  const std::vector<Action> actions =
      find_schedule("dualpipe")->actions(0, {.ranks = 2, .stages_per_rank = 2, .micro_batches = 8});
  EXPECT_EQ(with_overlapped_pairs(actions), actions);
}

TEST(OverlappedPairs, AreIssuedInTurns) {
  EXPECT_THAT(in_turns<int>({1, 2, 3}, {10, 20}), ElementsAre(1, 10, 2, 20, 3));
  EXPECT_THAT(in_turns<int>({1}, {10, 20, 30}), ElementsAre(1, 10, 20, 30));
}

}  // namespace
}  // namespace headway
