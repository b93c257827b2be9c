// The messages between pipeline stages and their order, as Megatron-LM posts them (schedules.py):
// what a stage has computed and what the next action needs travel together, and by default the next
// action waits for both. With `overlap_p2p` messages are posted one action ahead, and only who
// needs a tensor waits for it. Interleaved stages exchange forward and backward tensors in one
// batch after each forward-backward pair; there the first rank runs p - 1 actions ahead of the
// last, and what comes from the last is received when it is sent. Schedules with a runtime of their
// own (zero-bubble's, PyTorch's, DualPipe's) never wait for what they send and receive in the order
// in which the neighbour computes.
#pragma once

#include <optional>
#include <vector>

#include "sim/program/layer.hpp"
#include "sim/program/program_builder.hpp"
#include "sim/program/schedule.hpp"

namespace headway {

// What travels between two stages for a micro-batch.
enum class MessageKind : std::uint8_t {
  kSendForward,
  kReceiveForward,
  kSendBackward,
  kReceiveBackward
};

// Where the stages live and which way a micro-batch takes through them.
struct StagePath {
  std::vector<int> rank_of;  // by stage
  int ranks = 1;
  int stages_of_a_copy = 1;

  // The neighbours of a stage; -1 where its copy of the model ends.
  int next(int stage) const { return (stage + 1) % stages_of_a_copy == 0 ? -1 : stage + 1; }
  int previous(int stage) const { return stage % stages_of_a_copy == 0 ? -1 : stage - 1; }
  bool apart(int stage, int other) const { return rank(stage) != rank(other); }
  // How far the rank of the next stage is, along the ring of ranks: 1, or -1 on the way back of a
  // path that folds. REQUIRES: next(stage) lives on another rank.
  int direction(int stage) const;
  bool folds() const;

 private:
  int rank(int stage) const { return rank_of[static_cast<std::size_t>(stage)]; }
};
StagePath stage_path(const Schedule& schedule, const ScheduleShape& shape);

struct PostedMessage {
  MessageKind kind = MessageKind::kSendForward;
  int stage = 0;  // whose output is sent, whose input is received
  int micro_batch = 0;
  friend bool operator==(const PostedMessage&, const PostedMessage&) = default;
};

// A compute action and the batch of messages that is posted after it. The first entry has no
// action.
struct ScheduledAction {
  std::optional<Action> action;
  std::vector<PostedMessage> messages;
};

// The order of actions and messages of `rank`. `actions` of every rank; stage s lives on rank
// `rank_of[s]`.
std::vector<ScheduledAction> with_messages(const std::vector<std::vector<Action>>& actions,
                                           const std::vector<int>& rank_of, int rank, bool overlap);

// The same for schedules whose messages are asynchronous. What an action has computed is sent after
// it; what the next but one needs is received then too, so that it travels while the next computes.
// A rank receives from a neighbour in the order in which that sends. An overlapped pair counts as
// one action: it sends when both halves have ended.
std::vector<ScheduledAction> with_asynchronous_messages(
    const std::vector<std::vector<Action>>& actions, const StagePath& path, int rank);

// The templates that carry messages.
class PipelineMessages {
 public:
  PipelineMessages(ProgramBuilder& builder, const Layer& layer);

  // Only who needs a tensor waits for it.
  bool asynchronous() const { return asynchronous_; }
  // Template of a message, applied to the first layer behind the boundary it crosses; `direction`
  // of the path there.
  int message(MessageKind kind, int direction) const {
    return messages_[2 * static_cast<std::size_t>(kind) + (direction < 0 ? 1 : 0)];
  }
  // Waits for a received gradient, where a pass must not begin without it; -1 where there are no
  // overlapped pairs.
  int await_backward() const { return await_backward_; }
  // What puts a received slice together; -1 where whole tensors travel.
  int assemble(MessageKind kind) const {
    return kind == MessageKind::kReceiveForward ? assemble_forward_ : assemble_backward_;
  }
  // The host waits for all messages; -1 where it does not.
  int wait() const { return wait_; }

  // What the first operation after a batch waits for: streams, or, for a receiver, the tensor's
  // port.
  const std::vector<int>& joins() const { return joins_; }
  std::vector<PortRef> arrival(MessageKind kind) const;

 private:
  int make(MessageKind kind, int family, int direction);
  int make_assemble(const char* name, int slice, int whole);
  bool sliced() const;

  ProgramBuilder& builder_;
  int forward_slice_ = -1, backward_slice_ = -1;
  std::vector<int> messages_;
  bool asynchronous_ = false;
  int assemble_forward_ = -1, assemble_backward_ = -1, wait_ = -1, await_backward_ = -1;
  std::vector<int> joins_;
  int forward_port_ = -1, backward_port_ = -1;
};

}  // namespace headway
