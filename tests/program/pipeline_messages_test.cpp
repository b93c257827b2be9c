// What is posted after which action, as Megatron-LM's schedules.py does it.
#include "sim/program/pipeline_messages.hpp"

#include <gtest/gtest.h>

namespace headway {
namespace {

std::string word(const PostedMessage& message) {
  const char* kinds[] = {"SEND_F", "RECV_F", "SEND_B", "RECV_B"};
  return std::to_string(message.stage) + kinds[static_cast<std::size_t>(message.kind)] +
         std::to_string(message.micro_batch);
}

// "0F0 (0SEND_F0) 0F1 ..."; a batch stands in brackets.
std::string order(const char* schedule_name, const ScheduleShape& shape, int rank, bool overlap) {
  const Schedule& schedule = *find_schedule(schedule_name);
  std::vector<std::vector<Action>> actions;
  for (int r = 0; r < shape.ranks; ++r) actions.push_back(schedule.actions(r, shape));
  std::vector<int> rank_of;
  for (int s = 0; s < shape.ranks * shape.stages_per_rank; ++s) {
    rank_of.push_back(schedule.rank_of(s, shape));
  }
  std::string text;
  const auto add = [&](const std::string& item) { text += (text.empty() ? "" : " ") + item; };
  for (const ScheduledAction& entry : with_messages(actions, rank_of, rank, overlap)) {
    if (entry.action) add(to_text(*entry.action));
    std::string batch;
    for (const PostedMessage& message : entry.messages) {
      batch += (batch.empty() ? "" : " ") + word(message);
    }
    if (!batch.empty()) add("(" + batch + ")");
  }
  return text;
}

TEST(PipelineMessages, OneForwardOneBackwardExchangesNeighbours) {
  const ScheduleShape shape{2, 1, 3, 0};
  EXPECT_EQ(
      order("1f1b", shape, 0, false),
      "0F0 (0SEND_F0) 0F1 (0SEND_F1 0RECV_B0) 0B0 0F2 (0SEND_F2 0RECV_B1) 0B1 (0RECV_B2) 0B2");
  EXPECT_EQ(
      order("1f1b", shape, 1, false),
      "(1RECV_F0) 1F0 1B0 (1SEND_B0 1RECV_F1) 1F1 1B1 (1SEND_B1 1RECV_F2) 1F2 1B2 (1SEND_B2)");
}

TEST(PipelineMessages, TheMiddleOfAPipelineSendsAndReceivesInOneBatch) {
  // send_forward_recv_backward and send_backward_recv_forward of the steady state.
  EXPECT_EQ(order("1f1b", {3, 1, 3, 0}, 1, false),
            "(1RECV_F0) 1F0 (1SEND_F0 1RECV_F1) 1F1 (1SEND_F1 1RECV_B0) 1B0 (1SEND_B0 1RECV_F2) "
            "1F2 (1SEND_F2 1RECV_B1) 1B1 (1SEND_B1 1RECV_B2) 1B2 (1SEND_B2)");
}

TEST(PipelineMessages, OverlappedMessagesArePostedOneActionOfTheirKindAhead) {
  EXPECT_EQ(order("1f1b", {3, 1, 3, 0}, 1, true),
            "(1RECV_F0) 1F0 (1SEND_F0 1RECV_F1 1RECV_B0) 1F1 (1SEND_F1 1RECV_F2) 1B0 (1SEND_B0 "
            "1RECV_B1) 1F2 (1SEND_F2) 1B1 (1SEND_B1 1RECV_B2) 1B2 (1SEND_B2)");
}

TEST(PipelineMessages, InterleavedPairsShareABatch) {
  const ScheduleShape shape{2, 2, 4, 0};
  EXPECT_EQ(
      order("interleaved", shape, 0, false),
      "0F0 (0SEND_F0) 0F1 (0SEND_F1 2RECV_F0) 2F0 (2SEND_F0 2RECV_F1) 2F1 (2SEND_F1 2RECV_B0) "
      "0F2 2B0 (0SEND_F2 2SEND_B0 2RECV_B1) 0F3 2B1 (0SEND_F3 2RECV_F2 2SEND_B1 0RECV_B0) "
      "2F2 0B0 (2SEND_F2 2RECV_F3 0RECV_B1) 2F3 0B1 (2SEND_F3 2RECV_B2) 2B2 (2SEND_B2 "
      "2RECV_B3) 2B3 (2SEND_B3 0RECV_B2) 0B2 (0RECV_B3) 0B3");
}

TEST(PipelineMessages, EveryTensorThatCrossesRanksIsSentAndReceivedOnce) {
  struct Case {
    const char* schedule;
    ScheduleShape shape;
  };
  for (const Case& one : {Case{"gpipe", {4, 1, 5, 0}}, Case{"1f1b", {4, 1, 6, 0}},
                          Case{"1f1b", {4, 1, 2, 0}}, Case{"interleaved", {4, 3, 8, 0}},
                          Case{"interleaved", {2, 2, 5, 3}}, Case{"interleaved", {4, 2, 10, 5}}}) {
    for (const bool overlap : {false, true}) {
      const Schedule& schedule = *find_schedule(one.schedule);
      std::vector<std::vector<Action>> actions;
      for (int r = 0; r < one.shape.ranks; ++r) actions.push_back(schedule.actions(r, one.shape));
      const int stages = one.shape.ranks * one.shape.stages_per_rank;
      std::vector<int> rank_of;
      for (int s = 0; s < stages; ++s) rank_of.push_back(schedule.rank_of(s, one.shape));
      std::vector<std::string> seen;
      for (int r = 0; r < one.shape.ranks; ++r) {
        for (const ScheduledAction& entry : with_messages(actions, rank_of, r, overlap)) {
          for (const PostedMessage& message : entry.messages) seen.push_back(word(message));
        }
      }
      std::vector<std::string> expected;
      for (int m = 0; m < one.shape.micro_batches; ++m) {
        for (int s = 0; s + 1 < stages; ++s) {
          for (const PostedMessage& message :
               {PostedMessage{MessageKind::kSendForward, s, m},
                PostedMessage{MessageKind::kReceiveForward, s + 1, m},
                PostedMessage{MessageKind::kSendBackward, s + 1, m},
                PostedMessage{MessageKind::kReceiveBackward, s, m}}) {
            expected.push_back(word(message));
          }
        }
      }
      std::sort(seen.begin(), seen.end());
      std::sort(expected.begin(), expected.end());
      EXPECT_EQ(seen, expected) << one.schedule << " overlap " << overlap;
    }
  }
}

}  // namespace
}  // namespace headway
