#include "sim/program/pipeline_messages.hpp"

#include <algorithm>
#include <cassert>
#include <map>
#include <tuple>
#include <utility>

namespace headway {

namespace {

bool is_forward(const Action& action) { return action.kind == ActionKind::kForward; }

// Collects the batches of one rank.
class MessageOrder {
 public:
  MessageOrder(const std::vector<std::vector<Action>>& actions, const std::vector<int>& rank_of,
               int rank)
      : actions_(actions[static_cast<std::size_t>(rank)]),
        rank_of_(rank_of),
        rank_(rank),
        last_stage_(static_cast<int>(rank_of.size()) - 1) {
    ranks_ = static_cast<int>(actions.size());
    for (const Action& action : actions_)
      (is_forward(action) ? forward_ : backward_).push_back(action);
    // Whose tensors wrap around: the last rank's outputs reach the first, and the other way back.
    for (const Action& action : actions.back()) {
      if (is_forward(action)) last_forward_.push_back(action);
    }
    for (const Action& action : actions.front()) {
      if (!is_forward(action)) first_backward_.push_back(action);
    }
    // The forwards before the first forward-backward pair; all of them where they all come first.
    const auto backward = std::find_if(actions_.begin(), actions_.end(),
                                       [](const Action& action) { return !is_forward(action); });
    const auto leading = static_cast<std::size_t>(backward - actions_.begin());
    warm_up_ = leading == forward_.size() ? leading : leading - 1;
  }

  // After each action: its output, and the next action's input.
  std::vector<ScheduledAction> one_ahead() {
    open();
    receive(batch(), actions_.front());
    for (std::size_t k = 0; k < actions_.size(); ++k) {
      take(actions_[k]);
      send(batch(), actions_[k]);
      if (k + 1 < actions_.size()) receive(batch(), actions_[k + 1]);
    }
    return std::move(result_);
  }

  // Forward and backward tensors each follow their own chain: after a forward, the next forward's
  // input; after a backward, the next backward's. With `paired` a steady forward's messages are
  // posted together with those of the backward after it.
  std::vector<ScheduledAction> chained(bool paired) {
    open();
    receive(batch(), forward_.front());
    if (warm_up_ == 0) receive(batch(), backward_.front());
    std::size_t f = 0, b = 0;
    std::vector<PostedMessage> held;
    for (std::size_t k = 0; k < actions_.size(); ++k) {
      const Action& action = actions_[k];
      take(action);
      if (is_forward(action)) {
        std::vector<PostedMessage>& target = paired && k >= warm_up_ ? held : batch();
        send(target, action);
        receive_after_forward(target, f++);
        if (k + 1 == warm_up_) receive(batch(), backward_.front());
      } else {
        std::vector<PostedMessage>& target = batch();
        target.insert(target.end(), held.begin(), held.end());
        held.clear();
        send(target, action);
        receive_after_backward(target, b++);
      }
    }
    return std::move(result_);
  }

 private:
  void open() { result_.emplace_back(); }
  void take(const Action& action) { result_.push_back({action, {}}); }
  std::vector<PostedMessage>& batch() { return result_.back().messages; }

  bool apart(int stage, int other) const {
    return rank_of_[static_cast<std::size_t>(stage)] != rank_of_[static_cast<std::size_t>(other)];
  }

  void send(std::vector<PostedMessage>& messages, const Action& action) const {
    if (is_forward(action)) {
      if (action.stage == last_stage_ || !apart(action.stage, action.stage + 1)) return;
      messages.push_back({MessageKind::kSendForward, action.stage, action.micro_batch});
    } else {
      if (action.stage == 0 || !apart(action.stage, action.stage - 1)) return;
      messages.push_back({MessageKind::kSendBackward, action.stage, action.micro_batch});
    }
  }
  // What `action` needs from another rank.
  void receive(std::vector<PostedMessage>& messages, const Action& action) const {
    if (is_forward(action)) {
      if (action.stage == 0 || !apart(action.stage, action.stage - 1)) return;
      messages.push_back({MessageKind::kReceiveForward, action.stage, action.micro_batch});
    } else {
      if (action.stage == last_stage_ || !apart(action.stage, action.stage + 1)) return;
      messages.push_back({MessageKind::kReceiveBackward, action.stage, action.micro_batch});
    }
  }

  // After this rank's k-th forward. A message is received when its sender posts it: the first rank
  // gets what the last has computed, p - 1 actions behind it.
  void receive_after_forward(std::vector<PostedMessage>& messages, std::size_t k) const {
    if (rank_ > 0 || ranks_ == 1) {
      if (k + 1 < forward_.size()) receive(messages, forward_[k + 1]);
      return;
    }
    const auto behind = static_cast<std::size_t>(ranks_ - 1);
    if (k < behind) return;
    const Action& computed = last_forward_[k - behind];
    if (computed.stage == last_stage_) return;
    receive(messages, {computed.stage + 1, ActionKind::kForward, computed.micro_batch});
  }
  void receive_after_backward(std::vector<PostedMessage>& messages, std::size_t k) const {
    if (rank_ < ranks_ - 1 || ranks_ == 1) {
      if (k + 1 < backward_.size()) receive(messages, backward_[k + 1]);
      return;
    }
    const auto behind = static_cast<std::size_t>(ranks_ - 1);
    if (k < behind) return;
    const Action& computed = first_backward_[k - behind];
    if (computed.stage == 0) return;
    receive(messages, {computed.stage - 1, ActionKind::kBackward, computed.micro_batch});
  }

  const std::vector<Action>& actions_;
  const std::vector<int>& rank_of_;
  int rank_ = 0, ranks_ = 1, last_stage_ = 0;
  std::vector<Action> forward_, backward_, last_forward_, first_backward_;
  std::size_t warm_up_ = 0;
  std::vector<ScheduledAction> result_;
};

// Collects the batches of one rank where messages are asynchronous.
class AsynchronousOrder {
 public:
  AsynchronousOrder(const std::vector<std::vector<Action>>& actions, const StagePath& path,
                    int rank)
      : actions_(actions[static_cast<std::size_t>(rank)]), path_(path) {
    for (const std::vector<Action>& others : actions) {
      for (const Action& action : others) {
        const std::optional<Sent> sent = sent_by(action);
        if (sent && path.rank_of[static_cast<std::size_t>(sent->received.stage)] == rank) {
          expect(*sent, path.rank_of[static_cast<std::size_t>(action.stage)]);
        }
      }
    }
  }

  std::vector<ScheduledAction> run() {
    result_.emplace_back();
    receive(0, end_of(0));
    for (std::size_t begin = 0; begin < actions_.size();) {
      const std::size_t end = end_of(begin);
      // What the unit behind this one needs travels while this one computes.
      if (end < actions_.size()) receive(end, end_of(end));
      for (std::size_t k = begin; k < end; ++k) result_.push_back({actions_[k], {}});
      for (std::size_t k = begin; k < end; ++k) {
        const std::optional<Sent> sent = sent_by(actions_[k]);
        if (sent) result_.back().messages.push_back(sent->message);
      }
      begin = end;
    }
    return std::move(result_);
  }

 private:
  struct Sent {
    PostedMessage message, received;
    int direction = 1;
  };
  // What comes from one neighbour over one stream, in its order.
  struct Channel {
    std::vector<PostedMessage> messages;
    std::size_t posted = 0;
  };

  // An overlapped pair is one unit.
  std::size_t end_of(std::size_t begin) const {
    return begin + (actions_[begin].overlaps_next ? 2 : 1);
  }

  std::optional<Sent> sent_by(const Action& action) const {
    if (action.kind == ActionKind::kBackwardWeight) return std::nullopt;
    const bool forward = is_forward(action);
    const int other = forward ? path_.next(action.stage) : path_.previous(action.stage);
    if (other < 0 || !path_.apart(action.stage, other)) return std::nullopt;
    const auto sends = forward ? MessageKind::kSendForward : MessageKind::kSendBackward;
    const auto receives = forward ? MessageKind::kReceiveForward : MessageKind::kReceiveBackward;
    return Sent{{sends, action.stage, action.micro_batch},
                {receives, other, action.micro_batch},
                forward ? path_.direction(action.stage) : -path_.direction(other)};
  }

  using Key = std::tuple<MessageKind, int, int>;
  static Key key_of(const PostedMessage& message) {
    return {message.kind, message.stage, message.micro_batch};
  }

  void expect(const Sent& sent, int sender) {
    Channel& channel = channels_[{sender, sent.direction}];
    places_[key_of(sent.received)] = {&channel, channel.messages.size()};
    channel.messages.push_back(sent.received);
  }

  // Posts what the actions of a unit need from other ranks, and whatever comes before it.
  void receive(std::size_t begin, std::size_t end) {
    for (std::size_t k = begin; k < end; ++k) {
      const Action& action = actions_[k];
      if (action.kind == ActionKind::kBackwardWeight) continue;
      const auto kind =
          is_forward(action) ? MessageKind::kReceiveForward : MessageKind::kReceiveBackward;
      const auto place = places_.find({kind, action.stage, action.micro_batch});
      if (place == places_.end()) continue;
      auto& [channel, index] = place->second;
      for (; channel->posted <= index; ++channel->posted) {
        result_.back().messages.push_back(channel->messages[channel->posted]);
      }
    }
  }

  const std::vector<Action>& actions_;
  const StagePath& path_;
  std::map<std::pair<int, int>, Channel> channels_;  // by sender and direction
  std::map<Key, std::pair<Channel*, std::size_t>> places_;
  std::vector<ScheduledAction> result_;
};

}  // namespace

int StagePath::direction(int stage) const {
  const int offset = rank(next(stage)) - rank(stage);
  if (!folds() && offset == 1 - ranks) return 1;
  assert(offset == 1 || offset == -1);
  return offset;
}

bool StagePath::folds() const {
  const auto turn = static_cast<std::size_t>(ranks);
  return turn < rank_of.size() && rank_of[turn - 1] == rank_of[turn];
}

StagePath stage_path(const Schedule& schedule, const ScheduleShape& shape) {
  StagePath path;
  path.ranks = shape.ranks;
  const int stages = shape.ranks * shape.stages_per_rank;
  path.stages_of_a_copy = stages / schedule.copies;
  for (int s = 0; s < stages; ++s) path.rank_of.push_back(schedule.rank_of(s, shape));
  return path;
}

std::vector<ScheduledAction> with_asynchronous_messages(
    const std::vector<std::vector<Action>>& actions, const StagePath& path, int rank) {
  return AsynchronousOrder(actions, path, rank).run();
}

std::vector<ScheduledAction> with_messages(const std::vector<std::vector<Action>>& actions,
                                           const std::vector<int>& rank_of, int rank,
                                           bool overlap) {
  MessageOrder order(actions, rank_of, rank);
  const bool wraps = rank_of.size() > actions.size();
  if (!overlap && !wraps) return order.one_ahead();
  return order.chained(!overlap);
}

PipelineMessages::PipelineMessages(ProgramBuilder& builder, const Layer& layer)
    : builder_(builder) {
  const StepShape& shape = builder_.shape();
  if (shape.pp == 1) return;
  int forward = layer.hidden(), backward = layer.hidden_gradient();
  if (sliced()) {
    const auto slice = [&](const char* name) {
      return builder_.activation(name, shape.storage, shape.tokens / shape.tp, shape.hidden,
                                 Copies::kPerLayerAndMicroBatch, ProgramBuilder::Split::kRows,
                                 BufferCategory::kCommunication);
    };
    forward_slice_ = forward = slice("pipeline.forward_slice");
    backward_slice_ = backward = slice("pipeline.backward_slice");
    assemble_forward_ = make_assemble("pipeline.assemble_forward", forward, layer.hidden());
    assemble_backward_ =
        make_assemble("pipeline.assemble_backward", backward, layer.hidden_gradient());
  }
  const Schedule* schedule = schedule_of(builder_.job().plan);
  asynchronous_ =
      builder_.job().plan.overlap_p2p || schedule->asynchronous || shape.vocabulary_spread ||
      builder_.job().plan.moe.overlap;
  const bool folds = stage_path(*schedule, shape.schedule).folds();
  if (asynchronous_) {
    forward_port_ = builder_.port({"arrived.forward", true, true});
    backward_port_ = builder_.port({"arrived.backward", true, true});
  }
  const std::vector<int> wholes = {layer.hidden(), layer.hidden(), layer.hidden_gradient(),
                                   layer.hidden_gradient()};
  for (const MessageKind kind : {MessageKind::kSendForward, MessageKind::kReceiveForward,
                                 MessageKind::kSendBackward, MessageKind::kReceiveBackward}) {
    const int whole = wholes[static_cast<std::size_t>(kind)];
    messages_.push_back(make(kind, whole, 1));
    messages_.push_back(folds ? make(kind, whole, -1) : -1);
  }
  if (schedule->splits_backward) {
    OperationList list("pipeline.await_backward");
    list.add("await", HostWork{HostKind::kAwait}, {}, {}, Cause::kPipelineParallel);
    list.last().awaits = {{backward_port_}};
    await_backward_ = builder_.add_template(list);
  }
  const bool together = builder_.job().software.batched_p2p;
  if (!asynchronous_) {
    for (const char* name : {"send_next", "receive_previous", "send_previous", "receive_next"}) {
      if (together || std::string(name).starts_with("receive"))
        joins_.push_back(builder_.stream(name));
    }
  }
  // Messages that are to be overlapped cannot be waited for where they are posted.
  if (builder_.job().software.p2p_synchronises && !asynchronous_) {
    OperationList list("pipeline.wait");
    list.add("wait", HostWork{HostKind::kSynchronise}, {}, {}, Cause::kPipelineParallel);
    for (const char* name : {"send_next", "receive_previous", "send_previous", "receive_next"}) {
      list.last().joins.push_back(builder_.stream(name));
    }
    list.last().host_waits = true;
    wait_ = builder_.add_template(list);
  }
}

bool PipelineMessages::sliced() const {
  const StepShape& shape = builder_.shape();
  return builder_.job().plan.scatter_gather && shape.tp > 1 && !shape.sequence_parallel;
}

int PipelineMessages::make(MessageKind kind, int family, int direction) {
  const StepShape& shape = builder_.shape();
  const bool sends = kind == MessageKind::kSendForward || kind == MessageKind::kSendBackward;
  const bool forward = kind == MessageKind::kSendForward || kind == MessageKind::kReceiveForward;
  const bool next = (sends == forward) == (direction > 0);
  const std::string verb = sends ? "send" : "receive";
  OperationList list("pipeline." + verb + (forward ? "_forward" : "_backward") +
                     (direction > 0 ? "" : ".returning"));
  int carried = family;
  if (sliced()) {
    carried = forward ? forward_slice_ : backward_slice_;
    if (sends) {
      Kernel split;
      split.kind = KernelKind::kSplitSequence;
      split.rows = shape.tokens / shape.tp;
      split.columns = shape.hidden;
      split.type = split.output = shape.storage;
      list.add("split", split, {{family}}, {{carried}}, Cause::kPipelineParallel);
    }
  }
  Collective message;
  message.kind = sends ? CollectiveKind::kSend : CollectiveKind::kReceive;
  message.elements = builder_.program().buffers[static_cast<std::size_t>(carried)].elements();
  message.type = shape.storage;
  std::vector<BufferRef> buffers = {{carried}};
  list.add(verb, message, sends ? buffers : std::vector<BufferRef>{},
           sends ? std::vector<BufferRef>{} : buffers, Cause::kPipelineParallel);
  TemplateOperation& operation = list.last();
  operation.stream = builder_.stream(verb + (next ? "_next" : "_previous"));
  operation.peer_axis = "pp";
  operation.peer_offset = next ? 1 : -1;
  operation.joins = {0};
  if (!sends && asynchronous_) {
    operation.releases = {{forward ? forward_port_ : backward_port_}};
  }
  return builder_.add_template(list);
}

int PipelineMessages::make_assemble(const char* name, int slice, int whole) {
  const StepShape& shape = builder_.shape();
  Collective gather;
  gather.kind = CollectiveKind::kAllGather;
  gather.elements = shape.tokens * shape.hidden;
  gather.type = shape.storage;
  OperationList list(name);
  list.add("gather", gather, {{slice}}, {{whole}}, Cause::kPipelineParallel);
  list.last().group = builder_.tensor_group();
  return builder_.add_template(list);
}

std::vector<PortRef> PipelineMessages::arrival(MessageKind kind) const {
  if (!asynchronous_) return {};
  return {{kind == MessageKind::kReceiveForward ? forward_port_ : backward_port_}};
}

}  // namespace headway
