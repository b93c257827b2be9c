#include "sim/program/sequence/token_layout.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <vector>

namespace headway {
namespace {

using testing::ElementsAre;

std::vector<std::int64_t> positions(TokenMap map) {
  std::vector<std::int64_t> all;
  for (std::int64_t i = 0; i < map.local_length(); ++i) all.push_back(map.position(i));
  return all;
}

TokenMap of(std::int64_t length, TokenOrder order, std::int64_t ring, std::int64_t place) {
  TokenMap map;
  map.length = length;
  map.order = order;
  map.ring = ring;
  map.place = place;
  return map;
}

TEST(TokenMap, ZigzagGivesChunksIAndItsMirrorImage) {
  // Facts section 5: 2 c chunks; rank i has chunks i and 2 c - 1 - i.
  EXPECT_THAT(positions(of(8, TokenOrder::kZigzag, 2, 0)), ElementsAre(0, 1, 6, 7));
  EXPECT_THAT(positions(of(8, TokenOrder::kZigzag, 2, 1)), ElementsAre(2, 3, 4, 5));
}

TEST(TokenMap, ContiguousAndStripedGiveARunAndEveryNth) {
  EXPECT_THAT(positions(of(8, TokenOrder::kContiguous, 2, 1)), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(positions(of(8, TokenOrder::kStriped, 2, 1)), ElementsAre(1, 3, 5, 7));
}

TEST(TokenMap, UlyssesCutsTheRingsPieceIntoRuns) {
  TokenMap map = of(8, TokenOrder::kZigzag, 2, 0);
  map.parts = 2;
  EXPECT_THAT(positions(map), ElementsAre(0, 1));
  map.part = 1;
  EXPECT_THAT(positions(map), ElementsAre(6, 7));
}

TEST(TokenMap, RowsOfTheSecondSequenceBeginAgain) {
  const TokenMap map = of(8, TokenOrder::kStriped, 4, 3);
  EXPECT_EQ(map.sequence(3), 1);
  EXPECT_EQ(map.position(3), 7);
}

TEST(TokenMap, EveryTokenIsHeldOnce) {
  for (const TokenOrder order :
       {TokenOrder::kContiguous, TokenOrder::kZigzag, TokenOrder::kStriped}) {
    for (const std::int64_t ring : {1, 2, 4}) {
      for (const std::int64_t parts : {1, 2, 3}) {
        std::vector<std::int64_t> all, expected;
        for (std::int64_t place = 0; place < ring; ++place) {
          for (std::int64_t part = 0; part < parts; ++part) {
            TokenMap map = of(48, order, ring, place);
            map.parts = parts;
            map.part = part;
            const std::vector<std::int64_t> own = positions(map);
            all.insert(all.end(), own.begin(), own.end());
          }
        }
        std::sort(all.begin(), all.end());
        for (std::int64_t i = 0; i < 48; ++i) expected.push_back(i);
        EXPECT_EQ(all, expected) << name(order) << " " << ring << " " << parts;
      }
    }
  }
}

}  // namespace
}  // namespace headway
