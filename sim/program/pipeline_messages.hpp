// The messages between pipeline stages and their order, as Megatron-LM posts them (schedules.py):
// what a stage has computed and what the next action needs travel together, and by default the next
// action waits for both. With `overlap_p2p` messages are posted one action ahead, and only who
// needs a tensor waits for it. Interleaved stages exchange forward and backward tensors in one
// batch after each forward-backward pair; there the first rank runs p - 1 actions ahead of the
// last, and what comes from the last is received when it is sent.
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

// The templates that carry messages.
class PipelineMessages {
 public:
  PipelineMessages(ProgramBuilder& builder, const Layer& layer);

  // Template of a message, applied to the first layer behind the boundary it crosses.
  int message(MessageKind kind) const { return messages_[static_cast<std::size_t>(kind)]; }
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
  int make(MessageKind kind, int family);
  int make_assemble(const char* name, int slice, int whole);
  bool sliced() const;

  ProgramBuilder& builder_;
  int forward_slice_ = -1, backward_slice_ = -1;
  std::vector<int> messages_;
  int assemble_forward_ = -1, assemble_backward_ = -1, wait_ = -1;
  std::vector<int> joins_;
  int forward_port_ = -1, backward_port_ = -1;
};

}  // namespace headway
