#include "sim/program/pipeline_messages.hpp"

#include <algorithm>
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

}  // namespace

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
  if (builder_.job().plan.overlap_p2p) {
    forward_port_ = builder_.port({"arrived.forward", true, true});
    backward_port_ = builder_.port({"arrived.backward", true, true});
  }
  const std::vector<int> wholes = {layer.hidden(), layer.hidden(), layer.hidden_gradient(),
                                   layer.hidden_gradient()};
  for (const MessageKind kind : {MessageKind::kSendForward, MessageKind::kReceiveForward,
                                 MessageKind::kSendBackward, MessageKind::kReceiveBackward}) {
    messages_.push_back(make(kind, wholes[static_cast<std::size_t>(kind)]));
  }
  const bool together = builder_.job().software.batched_p2p;
  if (!builder_.job().plan.overlap_p2p) {
    for (const char* name : {"send_next", "receive_previous", "send_previous", "receive_next"}) {
      if (together || std::string(name).starts_with("receive"))
        joins_.push_back(builder_.stream(name));
    }
  }
  // Messages that are to be overlapped cannot be waited for where they are posted.
  if (builder_.job().software.p2p_synchronises && !builder_.job().plan.overlap_p2p) {
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

int PipelineMessages::make(MessageKind kind, int family) {
  const StepShape& shape = builder_.shape();
  const bool sends = kind == MessageKind::kSendForward || kind == MessageKind::kSendBackward;
  const bool forward = kind == MessageKind::kSendForward || kind == MessageKind::kReceiveForward;
  const bool next = sends == forward;
  const std::string verb = sends ? "send" : "receive";
  OperationList list("pipeline." + verb + (forward ? "_forward" : "_backward"));
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
  if (!sends && builder_.job().plan.overlap_p2p) {
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
  if (!builder_.job().plan.overlap_p2p) return {};
  return {{kind == MessageKind::kReceiveForward ? forward_port_ : backward_port_}};
}

}  // namespace headway
