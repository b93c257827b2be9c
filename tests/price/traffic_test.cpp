#include "sim/price/traffic.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/program/tiny_program.hpp"

namespace headway {
namespace {

Collective collective(CollectiveKind kind, std::int64_t elements) {
  return {.kind = kind, .elements = elements, .type = DataType::kBf16};
}

TEST(Traffic, OfACollectiveIsWhatARingMoves) {
  // Facts 4.1: n bytes over p ranks; all-reduce 2 (p-1)/p n, all-gather and reduce-scatter (p-1)/p
  // n.
  const std::int64_t n = 8000, bytes = 2 * n;
  EXPECT_EQ(sent_bytes(collective(CollectiveKind::kAllReduce, n), 8).count, 2 * bytes * 7 / 8);
  EXPECT_EQ(sent_bytes(collective(CollectiveKind::kAllGather, n), 8).count, bytes * 7 / 8);
  EXPECT_EQ(sent_bytes(collective(CollectiveKind::kReduceScatter, n), 8).count, bytes * 7 / 8);
  EXPECT_EQ(sent_bytes(collective(CollectiveKind::kAllToAll, n), 8).count, bytes * 7 / 8);
  EXPECT_EQ(received_bytes(collective(CollectiveKind::kAllReduce, n), 8).count, 2 * bytes * 7 / 8);
}

TEST(Traffic, OfAGroupOfOneIsNothing) {
  for (const auto kind : {CollectiveKind::kAllReduce, CollectiveKind::kAllGather,
                          CollectiveKind::kReduceScatter, CollectiveKind::kAllToAll}) {
    EXPECT_EQ(sent_bytes(collective(kind, 100), 1).count, 0);
  }
  Program program = tiny::two_stages();
  program.grid = RankGrid({{"dp", 1}, {"pp", 2}});
  for (const TrafficLine& line : traffic(program, program.kinds[0])) EXPECT_EQ(line.group, "pp");
}

TEST(Traffic, AMessageIsSentByOneEndAndReceivedByTheOther) {
  EXPECT_EQ(sent_bytes(collective(CollectiveKind::kSend, 100), 2).count, 200);
  EXPECT_EQ(received_bytes(collective(CollectiveKind::kSend, 100), 2).count, 0);
  EXPECT_EQ(sent_bytes(collective(CollectiveKind::kReceive, 100), 2).count, 0);
  EXPECT_EQ(received_bytes(collective(CollectiveKind::kReceive, 100), 2).count, 200);
}

TEST(Traffic, OfTwoStagesIsTwoMessagesEachWayAndTheUpdate) {
  const Program program = tiny::two_stages();
  const std::vector<TrafficLine> lines = traffic(program, program.kinds[0]);
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0].cause, Cause::kPipelineParallel);
  EXPECT_EQ(lines[0].kind, CollectiveKind::kSend);
  EXPECT_EQ(lines[0].count, 2);
  EXPECT_EQ(lines[0].sent.count, 20);
  EXPECT_EQ(lines[1].kind, CollectiveKind::kReceive);
  EXPECT_EQ(lines[1].received.count, 14);
  EXPECT_EQ(lines[2].group, "dp");
  EXPECT_EQ(lines[2].sent.count, 100);  // 2 x 1/2 x 100
}

TEST(Traffic, WhatIsSentIsReceived) {
  const Program program = tiny::two_stages();
  std::int64_t sent = 0, received = 0;
  for (const RankKind& kind : program.kinds) {
    for (const TrafficLine& line : traffic(program, kind)) {
      sent += line.sent.count;
      received += line.received.count;
    }
  }
  EXPECT_EQ(sent, 2 * (10 + 7) + 2 * 100);
  EXPECT_EQ(sent, received);
}

}  // namespace
}  // namespace headway
