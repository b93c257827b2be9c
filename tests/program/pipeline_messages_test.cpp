// What is posted after which action, as Megatron-LM's schedules.py does it.
#include "sim/program/pipeline_messages.hpp"

#include <gtest/gtest.h>

#include <map>
#include <tuple>

namespace headway {
namespace {

std::string word(const PostedMessage& message) {
  const char* kinds[] = {"SEND_F", "RECV_F", "SEND_B", "RECV_B"};
  return std::to_string(message.stage) + kinds[static_cast<std::size_t>(message.kind)] +
         std::to_string(message.micro_batch);
}

// "0F0 (0SEND_F0) 0F1 ..."; a batch stands in brackets.
std::string text_of(const std::vector<ScheduledAction>& order) {
  std::string text;
  const auto add = [&](const std::string& item) { text += (text.empty() ? "" : " ") + item; };
  for (const ScheduledAction& entry : order) {
    if (entry.action) add(to_text(*entry.action));
    std::string batch;
    for (const PostedMessage& message : entry.messages) {
      batch += (batch.empty() ? "" : " ") + word(message);
    }
    if (!batch.empty()) add("(" + batch + ")");
  }
  return text;
}

std::vector<std::vector<Action>> actions_of(const Schedule& schedule, const ScheduleShape& shape) {
  std::vector<std::vector<Action>> actions;
  for (int r = 0; r < shape.ranks; ++r) actions.push_back(schedule.actions(r, shape));
  return actions;
}

std::string order(const char* schedule_name, const ScheduleShape& shape, int rank, bool overlap) {
  const Schedule& schedule = *find_schedule(schedule_name);
  return text_of(with_messages(actions_of(schedule, shape), stage_path(schedule, shape).rank_of,
                               rank, overlap));
}

std::string asynchronous_order(const char* schedule_name, const ScheduleShape& shape, int rank) {
  const Schedule& schedule = *find_schedule(schedule_name);
  return text_of(
      with_asynchronous_messages(actions_of(schedule, shape), stage_path(schedule, shape), rank));
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

// What the next action but one needs is received after an action, what it has computed is sent.
TEST(PipelineMessages, AsynchronousOnesTravelBesideTheNextAction) {
  EXPECT_EQ(asynchronous_order("zb-h1", {2, 1, 3, 0}, 0),
            "0F0 (0SEND_F0 0RECV_B0) 0F1 (0SEND_F1) 0I0 0W0 (0RECV_B1) 0F2 (0SEND_F2) 0I1 "
            "(0RECV_B2) 0W1 0I2 0W2");
  EXPECT_EQ(asynchronous_order("zb-h1", {2, 1, 3, 0}, 1),
            "(1RECV_F0) 1F0 (1RECV_F1) 1I0 (1SEND_B0) 1F1 1I1 (1SEND_B1 1RECV_F2) 1W0 1F2 1I2 "
            "(1SEND_B2) 1W1 1W2");
}

// Stages 1 and 2 live on rank 1; an overlapped pair sends when both halves have ended.
TEST(PipelineMessages, OfAFoldedPathComeBack) {
  EXPECT_EQ(asynchronous_order("dualpipe-v", {2, 2, 4, 0}, 0),
            "0F0 (0SEND_F0) 0F1 (0SEND_F1 3RECV_F0) 0F2 (0SEND_F2) 3F0 3I0 (3SEND_B0 3RECV_F1) 3W0 "
            "3F1 (3RECV_F2 0RECV_B0) 0F3 3B1 (0SEND_F3 3SEND_B1) 3F2 0B0 (3RECV_F3 0RECV_B1) 3B2 "
            "(3SEND_B2) 3F3 0B1 (0RECV_B2) 3B3 (3SEND_B3) 0I2 (0RECV_B3) 0W2 0I3 0W3");
}

// Of every pair of ranks, and of each direction of the ring, receiver and sender have the same
// order.
TEST(PipelineMessages, AsynchronousOnesAreReceivedInTheirSendersOrder) {
  struct Case {
    const char* schedule;
    ScheduleShape shape;
  };
  for (const Case& one : {Case{"zb-h1", {4, 1, 6, 0}}, Case{"zb-h2", {4, 1, 9, 0}},
                          Case{"zb-v", {4, 2, 8, 0}}, Case{"zb-v", {3, 2, 2, 0}},
                          Case{"dualpipe", {4, 2, 8, 0}}, Case{"dualpipe-v", {3, 2, 7, 0}},
                          Case{"looped-bfs", {4, 3, 5, 0}}, Case{"looped-bfs", {2, 2, 1, 0}}}) {
    SCOPED_TRACE(one.schedule);
    const Schedule& schedule = *find_schedule(one.schedule);
    const StagePath path = stage_path(schedule, one.shape);
    const auto actions = actions_of(schedule, one.shape);
    using Channel = std::tuple<int, int, int>;  // sender, receiver, direction
    std::map<Channel, std::string> sent, received;
    int messages = 0;
    for (int r = 0; r < one.shape.ranks; ++r) {
      for (const ScheduledAction& entry : with_asynchronous_messages(actions, path, r)) {
        for (const PostedMessage& message : entry.messages) {
          const bool sends = message.kind == MessageKind::kSendForward ||
                             message.kind == MessageKind::kSendBackward;
          const bool forward = message.kind == MessageKind::kSendForward ||
                               message.kind == MessageKind::kReceiveForward;
          const bool towards_next = sends == forward;
          const int other = towards_next ? path.next(message.stage) : path.previous(message.stage);
          const int boundary = std::min(message.stage, other);
          const int peer = path.rank_of[static_cast<std::size_t>(other)];
          const int along = path.direction(boundary) * (forward ? 1 : -1);
          const Channel channel = sends ? Channel{r, peer, along} : Channel{peer, r, along};
          (sends ? sent : received)[channel] += (forward ? " F" : " B") + std::to_string(boundary) +
                                                "." + std::to_string(message.micro_batch);
          ++messages;
        }
      }
    }
    EXPECT_EQ(sent, received);
    int boundaries = 0;
    for (int s = 0; s < one.shape.ranks * one.shape.stages_per_rank; ++s) {
      if (path.next(s) >= 0 && path.apart(s, path.next(s))) ++boundaries;
    }
    EXPECT_EQ(messages, 4 * boundaries * one.shape.micro_batches / schedule.copies);
  }
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
