#include "sim/program/training_step.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "sim/program/embedding.hpp"
#include "sim/program/head_and_loss.hpp"
#include "sim/program/layer.hpp"
#include "sim/program/optimizer_step.hpp"
#include "sim/program/pipeline_messages.hpp"
#include "sim/program/program_builder.hpp"
#include "sim/program/schedule.hpp"

namespace headway {

namespace {

// Megatron-LM's --clip-grad.
constexpr double kClipNorm = 1.0;
// Rates at which the tiny models that are executed learn; no time depends on them. AdamW's is
// PyTorch's default, SGD's the usual one of its examples.
constexpr double kAdamRate = 1e-3;
constexpr double kSgdRate = 0.1;

// A virtual stage: its place and its layers.
struct Stage {
  int index = 0;
  int rank = 0;
  int first_layer = 0, end_layer = 0;
  bool first = false, last = false;
};

class TrainingStep {
 public:
  explicit TrainingStep(const Job& job)
      : job_(job),
        builder_(job),
        shape_(builder_.shape()),
        layer_(builder_),
        embedding_(builder_, layer_),
        head_(builder_, layer_, embedding_),
        messages_(builder_, layer_),
        norm_(builder_.activation("norm.total", DataType::kFp64, 1, 1, Copies::kScratch,
                                  ProgramBuilder::Split::kNone, BufferCategory::kCommunication)) {}

  Program run() {
    describe();
    make_stages();
    for (int rank = 0; rank < shape_.pp; ++rank) make_kind(rank);
    return std::move(builder_.program());
  }

 private:
  // The passes of one virtual stage, as indices of the kind's passes; -1 where there is none.
  struct StagePasses {
    int forward = -1, first_forward = -1;
    int backward = -1, last_backward = -1;
    int messages[4] = {-1, -1, -1, -1};  // by MessageKind
    int first_forward_action = -1, last_backward_action = -1;
  };

  void describe() {
    Program& program = builder_.program();
    program.micro_batches = job_.plan.micro_batches;
    program.sequences_per_micro_batch = shape_.sequences;
    program.sequence_length = shape_.sequence;
    program.vocab_size = job_.model.vocab_size;
    program.dropout = job_.software.dropout;
    program.learning_rate = job_.plan.optimizer == "adamw" ? kAdamRate : kSgdRate;
    program.clip_norm = kClipNorm;
  }

  void make_stages() {
    const Schedule* schedule = find_schedule(job_.plan.schedule);
    ScheduleShape shape;
    shape.ranks = shape_.pp;
    shape.stages_per_rank = job_.plan.vpp;
    shape.micro_batches = static_cast<int>(job_.plan.micro_batches);
    shape.group = job_.plan.vpp_group;
    const int count = shape.ranks * shape.stages_per_rank;
    int layer = 0;
    for (int s = 0; s < count; ++s) {
      Stage stage;
      stage.index = s;
      stage.rank = schedule->rank_of(s, shape);
      stage.first_layer = layer;
      layer += static_cast<int>(job_.plan.stage_layers[static_cast<std::size_t>(s)]);
      stage.end_layer = layer;
      stage.first = s == 0;
      stage.last = s + 1 == count;
      stages_.push_back(stage);
      rank_of_.push_back(stage.rank);
    }
    for (int rank = 0; rank < shape.ranks; ++rank)
      actions_.push_back(schedule->actions(rank, shape));
  }

  bool tied_apart() const { return job_.model.tie_word_embeddings && shape_.pp > 1; }
  bool reduces_early() const { return shape_.dp > 1 && job_.plan.overlap_grad_reduce; }
  bool waits_for_messages() const { return shape_.pp > 1; }

  // -- Passes
  // --------------------------------------------------------------------------------------

  // The host's work of a micro-batch: its data arrives. One template for each set of inputs.
  int begin(const Stage& stage) {
    std::vector<BufferRef> inputs;
    std::string name = "micro_batch.begin";
    if (stage.first) {
      inputs.push_back({embedding_.tokens()});
      name += ".tokens";
    }
    if (stage.last) {
      inputs.push_back({head_.targets()});
      name += ".targets";
    }
    const auto found = std::find_if(begins_.begin(), begins_.end(),
                                    [&](const auto& other) { return other.first == name; });
    if (found != begins_.end()) return found->second;
    OperationList list(name);
    list.add("host", HostWork{HostKind::kMicroBatch}, {}, inputs, Cause::kHost);
    begins_.emplace_back(name, builder_.add_template(list));
    return begins_.back().second;
  }

  bool receives(const Stage& stage, MessageKind kind) const {
    const int other = kind == MessageKind::kReceiveForward ? stage.index - 1 : stage.index + 1;
    if (other < 0 || other >= static_cast<int>(stages_.size())) return false;
    return rank_of_[static_cast<std::size_t>(other)] != stage.rank;
  }

  // The layer that names what crosses a boundary of the stage.
  static int boundary(const Stage& stage, MessageKind kind) {
    const bool input = kind == MessageKind::kReceiveForward || kind == MessageKind::kSendBackward;
    return input ? stage.first_layer : stage.end_layer;
  }

  // Lets the first step wait for messages (and ports of its own). Its ports are relative to its
  // layer.
  void enter(std::vector<Step>& steps, const Stage& stage, MessageKind kind,
             const std::vector<PortRef>& others = {}) {
    std::vector<PortRef> awaits;
    Step& first = steps.front();
    if (receives(stage, kind)) {
      awaits = messages_.arrival(kind);
      for (PortRef& port : awaits) port.layer = boundary(stage, kind) - first.layer;
    }
    awaits.insert(awaits.end(), others.begin(), others.end());
    const std::vector<int> none;
    first.template_index = builder_.with_entry(
        first.template_index, waits_for_messages() ? messages_.joins() : none, awaits);
  }

  std::vector<Step> forward_steps(const Stage& stage, const std::vector<PortRef>& gathered) {
    std::vector<Step> steps = {{begin(stage), stage.first_layer}};
    const MessageKind kind = MessageKind::kReceiveForward;
    if (receives(stage, kind) && messages_.assemble(kind) >= 0) {
      steps.push_back({messages_.assemble(kind), boundary(stage, kind)});
    }
    if (stage.first) steps.push_back({embedding_.forward(), 0});
    for (int l = stage.first_layer; l < stage.end_layer; ++l)
      steps.push_back({layer_.forward(), l});
    if (stage.last) steps.push_back({head_.forward(), stage.end_layer});
    enter(steps, stage, kind, gathered);
    return steps;
  }

  bool recomputed(const Stage& stage, int layer) const {
    if (job_.plan.recompute != Recompute::kFull) return false;
    const std::int64_t count = job_.plan.recompute_layers;
    return count == 0 || layer - stage.first_layer < count;
  }

  std::vector<Step> backward_steps(const Stage& stage) const {
    std::vector<Step> steps;
    const MessageKind kind = MessageKind::kReceiveBackward;
    if (receives(stage, kind) && messages_.assemble(kind) >= 0) {
      steps.push_back({messages_.assemble(kind), boundary(stage, kind)});
    }
    if (stage.last) steps.push_back({head_.backward(), stage.end_layer});
    for (int l = stage.end_layer - 1; l >= stage.first_layer; --l) {
      if (recomputed(stage, l)) steps.push_back({layer_.forward(), l});
      steps.push_back({layer_.backward(), l});
    }
    if (stage.first) steps.push_back({embedding_.backward(), 0});
    return steps;
  }

  void enter_backward(std::vector<Step>& steps, const Stage& stage) {
    // A stage without layers only hands the gradient on; something must wait for it.
    if (steps.empty()) steps.push_back({begin(stage), stage.first_layer});
    enter(steps, stage, MessageKind::kReceiveBackward);
  }

  // The last backward pass of a chunk: the tensors that complete a bucket say so, and its reduction
  // is issued right behind the step that they stand in.
  std::vector<Step> reducing_steps(const std::vector<Step>& steps, int chunk,
                                   OptimizerStep& optimizer) {
    std::vector<std::vector<int>> completing(steps.size());  // gradient families
    for (const std::size_t b : optimizer.buckets_of(chunk)) {
      const Bucket& bucket = optimizer.bucket(b);
      completing[static_cast<std::size_t>(bucket.step)].push_back(
          builder_.parameter(bucket.tensors.back().parameter).gradient);
    }
    std::vector<Step> result;
    std::size_t next = 0;
    const std::vector<std::size_t>& buckets = optimizer.buckets_of(chunk);
    for (std::size_t s = 0; s < steps.size(); ++s) {
      Step step = steps[s];
      if (!completing[s].empty()) {
        step.template_index = with_releases(step.template_index, completing[s]);
      }
      result.push_back(step);
      for (; next < buckets.size() && optimizer.bucket(buckets[next]).step == static_cast<int>(s);
           ++next) {
        const Tensor& tensor = optimizer.bucket(buckets[next]).tensors.back();
        const int gradient = builder_.parameter(tensor.parameter).gradient;
        result.push_back(
            {optimizer.reduce(buckets[next], {complete_port(gradient), tensor.layer}), 0});
      }
    }
    return result;
  }

  int complete_port(int gradient) {
    const BufferFamily& family = builder_.program().buffers[static_cast<std::size_t>(gradient)];
    return builder_.port({"complete." + family.name, family.per_layer, false});
  }

  // The template whose last write of each of these gradients releases its port.
  int with_releases(int template_index, std::vector<int> gradients) {
    std::sort(gradients.begin(), gradients.end());
    for (const auto& variant : releasing_) {
      if (variant.base == template_index && variant.gradients == gradients) return variant.index;
    }
    Template list = builder_.list(template_index);
    for (const int gradient : gradients) {
      const auto last = std::find_if(
          list.operations.rbegin(), list.operations.rend(),
          [&](const TemplateOperation& operation) {
            return std::any_of(operation.writes.begin(), operation.writes.end(),
                               [&](const BufferRef& write) { return write.family == gradient; });
          });
      last->releases.push_back({complete_port(gradient)});
    }
    list.name += ".complete" + std::to_string(releasing_.size());
    const int index = builder_.add_template(std::move(list));
    releasing_.push_back({template_index, std::move(gradients), index});
    return index;
  }

  // -- Kinds
  // ---------------------------------------------------------------------------------------

  void make_kind(int rank) {
    RankKind kind;
    kind.name = "pipeline rank " + std::to_string(rank);
    kind.stages = {rank};
    std::vector<const Stage*> own;
    for (const Stage& stage : stages_) {
      if (stage.rank == rank) own.push_back(&stage);
    }
    std::vector<std::vector<Step>> backwards;
    std::vector<std::vector<FiredTensor>> chunks;
    for (const Stage* stage : own) {
      backwards.push_back(backward_steps(*stage));
      enter_backward(backwards.back(), *stage);
      chunks.push_back(firing_order(builder_, backwards.back()));
    }
    if (tied_apart() && own.front()->first && own.back()->last) drop_second_copy(chunks);
    const bool has_loss = own.back()->last;
    OptimizerStep optimizer(builder_, rank, chunks, tied_apart() ? embedding_.word() : kNoParameter,
                            own.front()->first, norm_, has_loss ? head_.total() : -1);
    make_persistent(kind, chunks, optimizer);

    std::vector<StagePasses> passes(stages_.size());
    for (std::size_t c = 0; c < own.size(); ++c) {
      make_passes(kind, *own[c], static_cast<int>(c), backwards[c], optimizer,
                  passes[static_cast<std::size_t>(own[c]->index)]);
    }
    issue(kind, "begin", optimizer.begin());
    issue(kind, "gather_parameters", optimizer.gather_first());
    issue_actions(kind, rank, passes);
    issue_update(kind, own.size(), optimizer);
    builder_.program().kinds.push_back(std::move(kind));
  }

  // Where one rank holds the first and the last stage, it holds the tied table once.
  void drop_second_copy(std::vector<std::vector<FiredTensor>>& chunks) const {
    auto& last = chunks.back();
    last.erase(std::remove_if(last.begin(), last.end(),
                              [&](const FiredTensor& fired) {
                                return fired.tensor.parameter == embedding_.word();
                              }),
               last.end());
  }

  void make_persistent(RankKind& kind, const std::vector<std::vector<FiredTensor>>& chunks,
                       const OptimizerStep& optimizer) const {
    for (const auto& chunk : chunks) {
      for (const FiredTensor& fired : chunk) {
        const Parameter& parameter = builder_.parameter(fired.tensor.parameter);
        kind.persistent.push_back({parameter.family, fired.tensor.layer});
        kind.persistent.push_back({parameter.gradient, fired.tensor.layer});
      }
    }
    kind.persistent.insert(kind.persistent.end(), optimizer.persistent().begin(),
                           optimizer.persistent().end());
  }

  static int add_pass(RankKind& kind, std::string name, int stage, std::vector<Step> steps) {
    Pass pass;
    pass.name = std::move(name);
    pass.stage = stage;
    pass.steps = std::move(steps);
    kind.passes.push_back(std::move(pass));
    return static_cast<int>(kind.passes.size()) - 1;
  }

  void make_passes(RankKind& kind, const Stage& stage, int chunk, const std::vector<Step>& backward,
                   OptimizerStep& optimizer, StagePasses& passes) {
    const std::string name = std::to_string(stage.index);
    passes.forward = passes.first_forward =
        add_pass(kind, name + "F", stage.index, forward_steps(stage, {}));
    if (!optimizer.gathered(chunk).empty()) {
      passes.first_forward = add_pass(kind, name + "F_first", stage.index,
                                      forward_steps(stage, optimizer.gathered(chunk)));
    }
    passes.backward = passes.last_backward = add_pass(kind, name + "B", stage.index, backward);
    if (reduces_early() && !optimizer.buckets_of(chunk).empty()) {
      passes.last_backward =
          add_pass(kind, name + "B_last", stage.index, reducing_steps(backward, chunk, optimizer));
    }
    const auto message = [&](MessageKind message_kind, const char* suffix) {
      passes.messages[static_cast<std::size_t>(message_kind)] =
          add_pass(kind, name + suffix, stage.index,
                   {{messages_.message(message_kind), boundary(stage, message_kind)}});
    };
    if (receives(stage, MessageKind::kReceiveForward)) {
      message(MessageKind::kReceiveForward, "RECV_F");
      message(MessageKind::kSendBackward, "SEND_B");
    }
    if (receives(stage, MessageKind::kReceiveBackward)) {
      message(MessageKind::kSendForward, "SEND_F");
      message(MessageKind::kReceiveBackward, "RECV_B");
    }
  }

  // -- Order
  // ---------------------------------------------------------------------------------------

  static void issue(RankKind& kind, const char* name, int template_index) {
    if (template_index < 0) return;
    kind.order.push_back({add_pass(kind, name, -1, {{template_index, 0}}), -1});
  }

  void issue_actions(RankKind& kind, int rank, std::vector<StagePasses>& passes) {
    const std::vector<ScheduledAction> order =
        with_messages(actions_, rank_of_, rank, job_.plan.overlap_p2p);
    for (std::size_t k = 0; k < order.size(); ++k) {
      if (!order[k].action) continue;
      StagePasses& stage = passes[static_cast<std::size_t>(order[k].action->stage)];
      const bool forward = order[k].action->kind == ActionKind::kForward;
      if (forward && stage.first_forward_action < 0) {
        stage.first_forward_action = static_cast<int>(k);
      }
      if (!forward) stage.last_backward_action = static_cast<int>(k);
    }
    int wait = -1;
    if (messages_.wait() >= 0) wait = add_pass(kind, "wait", -1, {{messages_.wait(), 0}});
    kind.order.reserve(order.size() * 3);
    for (std::size_t k = 0; k < order.size(); ++k) {
      if (order[k].action) {
        const Action& action = *order[k].action;
        const StagePasses& stage = passes[static_cast<std::size_t>(action.stage)];
        const auto index = static_cast<int>(k);
        int pass = index == stage.last_backward_action ? stage.last_backward : stage.backward;
        if (action.kind == ActionKind::kForward) {
          pass = index == stage.first_forward_action ? stage.first_forward : stage.forward;
        }
        kind.order.push_back({pass, action.micro_batch});
      }
      for (const PostedMessage& message : order[k].messages) {
        const StagePasses& stage = passes[static_cast<std::size_t>(message.stage)];
        kind.order.push_back(
            {stage.messages[static_cast<std::size_t>(message.kind)], message.micro_batch});
      }
      if (wait >= 0 && !order[k].messages.empty()) kind.order.push_back({wait, -1});
    }
  }

  void issue_update(RankKind& kind, std::size_t chunks, OptimizerStep& optimizer) const {
    if (optimizer.reduces() && !reduces_early()) {
      std::vector<Step> steps;
      for (std::size_t c = chunks; c-- > 0;) {
        for (const std::size_t b : optimizer.buckets_of(static_cast<int>(c))) {
          steps.push_back({optimizer.reduce(b), 0});
        }
      }
      if (!steps.empty()) {
        kind.order.push_back({add_pass(kind, "reduce_gradients", -1, std::move(steps)), -1});
      }
    }
    issue(kind, "finish_gradients", optimizer.finish());
    issue(kind, "update", optimizer.update());
  }

  const Job& job_;
  ProgramBuilder builder_;
  const StepShape& shape_;
  Layer layer_;
  Embedding embedding_;
  HeadAndLoss head_;
  PipelineMessages messages_;
  int norm_ = -1;
  std::vector<Stage> stages_;
  std::vector<int> rank_of_;
  std::vector<std::vector<Action>> actions_;
  std::vector<std::pair<std::string, int>> begins_;
  struct Releasing {
    int base = 0;
    std::vector<int> gradients;
    int index = 0;
  };
  std::vector<Releasing> releasing_;
};

}  // namespace

Program lower(const Job& job) { return TrainingStep(job).run(); }

Job reference_job(const Job& job) {
  Job reference = job;
  ParallelPlan& plan = reference.plan;
  const std::int64_t padded = job.padded_vocabulary();
  plan = ParallelPlan{};
  plan.stage_layers = {
      std::accumulate(job.plan.stage_layers.begin(), job.plan.stage_layers.end(), std::int64_t{0})};
  plan.micro_batch = job.plan.micro_batch;
  plan.micro_batches = job.global_batch / job.plan.micro_batch;
  plan.gradient_type = job.plan.gradient_type;
  plan.optimizer = job.plan.optimizer;
  // A multiple that pads to what the split table was padded to.
  reference.software.vocabulary_multiple = padded;
  reference.software.pad_vocabulary_at_tp1 = true;
  return reference;
}

}  // namespace headway
