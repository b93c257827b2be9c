#include "sim/program/training_step.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "sim/program/activation_offload.hpp"
#include "sim/program/data/fsdp.hpp"
#include "sim/program/embedding.hpp"
#include "sim/program/head_and_loss.hpp"
#include "sim/program/layer.hpp"
#include "sim/program/multi_token_prediction.hpp"
#include "sim/program/optimizer_step.hpp"
#include "sim/program/pipeline/overlapped_pairs.hpp"
#include "sim/program/pipeline_messages.hpp"
#include "sim/program/pipeline_vocabulary.hpp"
#include "sim/program/program_builder.hpp"
#include "sim/program/schedule.hpp"
#include "sim/program/weight_versions.hpp"

namespace headway {

namespace {

// Megatron-LM's --clip-grad.
constexpr double kClipNorm = 1.0;
// Rates at which the tiny models that are executed learn; no time depends on them. AdamW's is
// PyTorch's default, which Muon and Adafactor take too, for their updates are of the same size;
// Lion's is a tenth of it (arXiv 2302.06675, section 5); SGD's the usual one of PyTorch's examples.
constexpr double kAdamRate = 1e-3;
constexpr double kLionRate = 1e-4;
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
        schedule_(*schedule_of(job.plan)),
        path_(stage_path(schedule_, shape_.schedule)),
        messages_(builder_, layer_),
        norm_(builder_.scalar("norm.total")) {
    if (shape_.vocabulary_spread) {
      vocabulary_.emplace(builder_, layer_);
    } else {
      embedding_.emplace(builder_, layer_);
      head_.emplace(builder_, layer_, *embedding_);
      if (job_.model.num_nextn_predict_layers > 0)
        prediction_.emplace(builder_, layer_, *embedding_, *head_);
    }
    if (shape_.sharded_parameters) units_.emplace(builder_);
    for (std::int64_t l = 0; l < shape_.layers; ++l) {
      for (const Layer::Parts* parts : {&layer_.forward(l), &layer_.forward_again(l),
                                        &layer_.backward(l), &layer_.backward_input(l)}) {
        for (std::size_t p = 0; p + 1 < parts->size(); ++p) cuts_.insert((*parts)[p]);
      }
    }
    if (job_.plan.offload.activations) activations_.emplace(builder_);
  }

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
    int of[4] = {-1, -1, -1, -1};        // by ActionKind
    int last[4] = {-1, -1, -1, -1};      // the last of its kind completes gradients
    int messages[4] = {-1, -1, -1, -1};  // by MessageKind
    int await_backward = -1;
    int first_backward = -1;  // where it begins gradients that others add to
    // Of a reference run of ZeRO++: by the rank whose micro-batch it is, those of the first
    // micro-batches before those of all others.
    std::vector<int> by_position;
  };

  // What a rank does in a slot for the vocabulary, as indices of the kind's passes; -1 where there
  // is none.
  struct SlotPasses {
    int announce_spread = -1, announce_score = -1, weigh = -1, score = -1, spread = -1;
    int embed = -1, first_embed = -1;  // the first waits for the rank's gathered parameters
  };

  // Passes of what belongs to a mini-batch, as indices of the kind's passes; -1 where there is
  // none.
  struct MiniBatches {
    int update = -1, clear = -1;
    std::vector<std::pair<std::int64_t, int>> versions;  // by delay
  };

  // Where in its rank's order a stage has its last actions; -1 where it has none of that kind.
  struct LastActions {
    int whole = -1, input = -1, weight = -1;
    // The action that completes gradients of what the input half covers, and of the rest.
    int inputs() const { return std::max(whole, input); }
    int weights() const { return std::max(whole, weight); }
  };

  // A virtual stage of the rank in hand and the backward steps that complete its gradients: those
  // of its last backward pass, or of its last two halves, one behind the other.
  struct Chunk {
    const Stage* stage = nullptr;
    LastActions last_actions;
    std::vector<Step> whole, input, weight;
    std::vector<Step> last;
    std::size_t last_inputs = 0;  // how many of `last` belong to the input half
    bool early = false;           // its reductions are issued within these passes
    std::vector<FiredTensor> tensors;
  };

  void describe() {
    Program& program = builder_.program();
    program.micro_batches = job_.plan.micro_batches;
    program.sequences_per_micro_batch = shape_.sequences;
    program.sequence_length = shape_.sequence;
    program.packs = job_.packs;
    program.vocab_size = job_.model.vocab_size;
    program.dropout = job_.software.dropout;
    const std::string& optimizer = job_.plan.optimizer;
    program.learning_rate = optimizer == "sgd"    ? kSgdRate
                            : optimizer == "lion" ? kLionRate
                                                  : kAdamRate;
    program.clip_norm = keeps_weight_versions(job_.plan) ? 0 : kClipNorm;
    program.updates_every_micro_batch = keeps_weight_versions(job_.plan);
    program.steps_overlap = !job_.plan.synchronous_optimizer;
    program.expert_loads = shape_.expert_loads;
  }

  void make_stages() {
    const int count = static_cast<int>(path_.rank_of.size());
    int layer = 0;
    for (int s = 0; s < count; ++s) {
      const int place = s % path_.stages_of_a_copy;  // a second copy has the same layers
      if (place == 0) layer = 0;
      Stage stage;
      stage.index = s;
      stage.rank = path_.rank_of[static_cast<std::size_t>(s)];
      stage.first_layer = layer;
      layer += static_cast<int>(job_.plan.stage_layers[static_cast<std::size_t>(place)]);
      stage.end_layer = layer;
      stage.first = path_.previous(s) < 0;
      stage.last = path_.next(s) < 0;
      stages_.push_back(stage);
    }
    for (int rank = 0; rank < shape_.pp; ++rank) {
      if (vocabulary_) {
        VocabularyOrder order = vocabulary_->order(rank);
        actions_.push_back(std::move(order.actions));
        slots_.push_back(std::move(order.slots));
      } else {
        actions_.push_back(schedule_.actions(rank, shape_.schedule));
        if (overlaps_passes()) actions_.back() = with_overlapped_pairs(actions_.back());
      }
    }
  }

  bool reduces_early() const {
    const bool leave =
        shape_.reduces_gradients() || job_.plan.offload.optimizer || job_.plan.rounded_ranks > 0;
    return leave && (job_.plan.overlap_grad_reduce || shape_.fresh_gradients);
  }
  // Whether the last stage needs the word table, as its head or for predictions further ahead.
  bool table_at_end() const {
    return embedding_ && (job_.model.tie_word_embeddings || prediction_);
  }
  // Whether first and last stage hold a copy of the word table each.
  bool tied_apart() const {
    return table_at_end() && path_.apart(0, static_cast<int>(path_.rank_of.size()) - 1);
  }
  // The sum of the losses, on the last stage.
  int loss_total() const { return head_ ? head_->total() : vocabulary_->total(); }
  bool waits_for_messages() const { return shape_.pp > 1; }
  bool overlaps_passes() const { return job_.plan.moe.overlap; }
  // A template made from another is cut where that one is.
  int cut_like(int base, int made) {
    if (cuts_.contains(base)) cuts_.insert(made);
    return made;
  }

  // -- Passes
  // --------------------------------------------------------------------------------------

  // The host's work of a micro-batch: its data arrives. One template for each set of inputs.
  int begin(const Stage& stage) {
    std::vector<BufferRef> inputs;
    std::string name = "micro_batch.begin";
    if (stage.first && embedding_) {
      inputs.push_back({embedding_->tokens()});
      name += ".tokens";
    }
    if (stage.last && head_) {
      inputs.push_back({head_->targets()});
      if (prediction_) {
        inputs.insert(inputs.end(), prediction_->inputs().begin(), prediction_->inputs().end());
      }
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
    const int other = kind == MessageKind::kReceiveForward ? path_.previous(stage.index)
                                                           : path_.next(stage.index);
    return other >= 0 && path_.apart(stage.index, other);
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
    first.template_index =
        cut_like(first.template_index,
                 builder_.with_entry(first.template_index,
                                     waits_for_messages() ? messages_.joins() : none, awaits));
  }

  // With `converts` the layers' weights become what the step's products read.
  std::vector<Step> forward_steps(const Stage& stage, const std::vector<PortRef>& gathered,
                                  bool converts = false) {
    std::vector<Step> steps = {{begin(stage), stage.first_layer}};
    const MessageKind kind = MessageKind::kReceiveForward;
    if (receives(stage, kind) && messages_.assemble(kind) >= 0) {
      steps.push_back({messages_.assemble(kind), boundary(stage, kind)});
    }
    if (stage.first) {
      const int first = embedding_ ? embedding_->forward() : vocabulary_->first_forward();
      if (first >= 0) steps.push_back({first, 0});
    }
    for (int l = stage.first_layer; l < stage.end_layer; ++l) {
      if (converts) steps.push_back({layer_.quantise_weights(l), l});
      add_parts(steps, layer_.forward(l), l);
    }
    if (stage.last && prediction_) {
      for (const Step& step : prediction_->forward(converts)) steps.push_back(step);
    }
    if (stage.last) {
      steps.push_back({head_ ? head_->forward() : vocabulary_->last_forward(), stage.end_layer});
    }
    std::vector<PortRef> awaited = gathered;
    if (stage.first && vocabulary_) {
      awaited.insert(awaited.end(), vocabulary_->embedded().begin(), vocabulary_->embedded().end());
    }
    enter(steps, stage, kind, awaited);
    return steps;
  }

  static void add_parts(std::vector<Step>& steps, const Layer::Parts& parts, int layer) {
    for (const int part : parts) steps.push_back({part, layer});
  }

  bool recomputed(const Stage& stage, int layer) const {
    if (job_.plan.recompute != Recompute::kFull) return false;
    const std::int64_t count = job_.plan.recompute_layers;
    return count == 0 || layer - stage.first_layer < count;
  }

  bool recomputes_all() const {
    return job_.plan.recompute == Recompute::kFull && job_.plan.recompute_layers == 0;
  }

  // Whether all layers of a stage run again before the first of them goes back.
  bool rematerialises() const { return schedule_.rematerialises_stages && recomputes_all(); }

  // A backward pass, whole or its input half.
  std::vector<Step> backward_steps(const Stage& stage, ActionKind part) {
    const bool whole = part == ActionKind::kBackward;
    std::vector<Step> steps;
    const MessageKind kind = MessageKind::kReceiveBackward;
    if (receives(stage, kind) && messages_.assemble(kind) >= 0) {
      steps.push_back({messages_.assemble(kind), boundary(stage, kind)});
    }
    if (stage.last && vocabulary_) {
      steps.push_back({vocabulary_->last_backward(), stage.end_layer});
    } else if (stage.last) {
      steps.push_back({whole ? head_->backward() : head_->backward_input(), stage.end_layer});
    }
    if (stage.last && prediction_) {
      const bool again = recomputes_all();
      for (const Step& step : prediction_->backward(whole, again)) steps.push_back(step);
    }
    for (int l = stage.first_layer; rematerialises() && l < stage.end_layer; ++l) {
      add_parts(steps, layer_.forward_again(l), l);
    }
    for (int l = stage.end_layer - 1; l >= stage.first_layer; --l) {
      if (recomputed(stage, l) && !rematerialises()) {
        add_parts(steps, layer_.forward_again(l), l);
      }
      add_parts(steps, whole ? layer_.backward(l) : layer_.backward_input(l), l);
    }
    // The table's gradient is no matrix product: it stays with the input half.
    if (stage.first) {
      const int first = embedding_ ? embedding_->backward() : vocabulary_->first_backward();
      if (first >= 0) steps.push_back({first, 0});
    }
    // A stage without layers only hands the gradient on; something must wait for it.
    if (steps.empty()) steps.push_back({begin(stage), stage.first_layer});
    const std::vector<PortRef> none;
    enter(steps, stage, kind, stage.last && vocabulary_ ? vocabulary_->scored() : none);
    return steps;
  }

  // The weight half; empty for a stage without matrices.
  std::vector<Step> weight_steps(const Stage& stage) const {
    std::vector<Step> steps;
    if (stage.last) steps.push_back({head_->backward_weight(), stage.end_layer});
    if (stage.last && prediction_) {
      for (const Step& step : prediction_->backward_weight()) steps.push_back(step);
    }
    for (int l = stage.end_layer - 1; l >= stage.first_layer; --l) {
      steps.push_back({layer_.backward_weight(l), l});
    }
    return steps;
  }

  // The steps [begin, end) of those that complete a chunk's gradients: the tensors that complete a
  // bucket say so, and its reduction is issued right behind the step that they stand in. With
  // `adds` earlier micro-batches have been reduced.
  std::vector<Step> reducing_steps(const Chunk& chunk, int number, std::size_t begin,
                                   std::size_t end, OptimizerStep& optimizer, bool adds = false) {
    std::vector<std::vector<int>> completing(chunk.last.size());  // gradient families
    const std::vector<std::size_t>& buckets = optimizer.buckets_of(number);
    for (const std::size_t b : buckets) {
      if (!optimizer.reduces(b)) continue;
      const Bucket& bucket = optimizer.bucket(b);
      completing[static_cast<std::size_t>(bucket.step)].push_back(
          builder_.parameter(bucket.tensors.back().parameter).gradient);
    }
    std::vector<Step> result;
    for (std::size_t s = begin; s < end; ++s) {
      Step step = chunk.last[s];
      if (!completing[s].empty()) {
        step.template_index = with_releases(step.template_index, completing[s]);
      }
      result.push_back(step);
      for (const std::size_t b : buckets) {
        if (!optimizer.reduces(b) || optimizer.bucket(b).step != static_cast<int>(s)) continue;
        const Tensor& tensor = optimizer.bucket(b).tensors.back();
        const int gradient = builder_.parameter(tensor.parameter).gradient;
        result.push_back(optimizer.reduce(b, {complete_port(gradient), tensor.layer}, adds));
      }
    }
    return result;
  }

  // The steps with a kernel before each that clears the gradients which its own would add to though
  // nothing has begun them: those of vectors, which are small.
  std::vector<Step> clearing_steps(const std::vector<Step>& steps) {
    std::set<int> gradients;
    for (const Parameter& parameter : builder_.parameters()) gradients.insert(parameter.gradient);
    std::set<std::pair<int, int>> begun;  // family, layer
    std::vector<Step> result;
    for (const Step& step : steps) {
      std::vector<BufferRef> cleared;
      for (const TemplateOperation& operation : builder_.list(step.template_index).operations) {
        const auto begins = [&](const BufferRef& buffer) {
          const int layer = builder_.per_layer(buffer.family) ? step.layer + buffer.layer : 0;
          return gradients.contains(buffer.family) && begun.insert({buffer.family, layer}).second;
        };
        for (const BufferRef& read : operation.reads) {
          if (begins(read)) cleared.push_back(read);
        }
        for (const BufferRef& write : operation.writes) begins(write);
      }
      if (!cleared.empty()) result.push_back({clear(std::move(cleared)), step.layer});
      result.push_back(step);
    }
    return result;
  }

  int clear(std::vector<BufferRef> gradients) {
    for (const auto& [buffers, index] : clears_) {
      if (buffers == gradients) return index;
    }
    Kernel kernel;
    kernel.kind = KernelKind::kZero;
    kernel.columns = 1;
    kernel.type = kernel.output = shape_.gradient;
    for (const BufferRef& gradient : gradients) {
      kernel.rows +=
          builder_.program().buffers[static_cast<std::size_t>(gradient.family)].elements();
    }
    OperationList list("gradients.clear" + std::to_string(clears_.size()));
    list.add("gradients.clear", kernel, {}, gradients);
    clears_.emplace_back(std::move(gradients), builder_.add_template(list));
    return clears_.back().second;
  }

  int complete_port(int gradient) {
    const BufferFamily& family = builder_.program().buffers[static_cast<std::size_t>(gradient)];
    return builder_.port({"complete." + family.name, family.per_layer, shape_.fresh_gradients});
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
    const int index = cut_like(template_index, builder_.add_template(std::move(list)));
    releasing_.push_back({template_index, std::move(gradients), index});
    return index;
  }

  // -- Kinds
  // ---------------------------------------------------------------------------------------

  void make_kind(int rank) {
    RankKind kind;
    kind.name = "pipeline rank " + std::to_string(rank);
    kind.stages = {rank};
    std::vector<Chunk> chunks;
    for (const Stage& stage : stages_) {
      if (stage.rank == rank) chunks.push_back(make_chunk(stage));
    }
    if (table_at_end()) hold_table_once(chunks);
    std::vector<std::vector<FiredTensor>> tensors;
    for (const Chunk& chunk : chunks) tensors.push_back(chunk.tensors);
    const auto holds = [&](bool Stage::*end) {
      return std::any_of(chunks.begin(), chunks.end(),
                         [&](const Chunk& chunk) { return chunk.stage->*end; });
    };
    OptimizerStep optimizer(builder_, rank, tensors,
                            tied_apart() ? embedding_->word() : kNoParameter, holds(&Stage::first),
                            norm_, holds(&Stage::last) ? loss_total() : -1,
                            units_ ? &*units_ : nullptr);
    const bool second_copy = schedule_.copies > 1 && rank >= shape_.pp / 2;
    if (second_copy) optimizer.leave_norm_to_the_other_copy();
    make_persistent(kind, tensors, optimizer);
    for (const Chunk& chunk : chunks) {
      const std::vector<BufferRef> kept = of_layers(*chunk.stage, &Layer::kept);
      kind.persistent.insert(kind.persistent.end(), kept.begin(), kept.end());
    }

    std::vector<StagePasses> passes(stages_.size());
    for (std::size_t c = 0; c < chunks.size(); ++c) {
      make_passes(kind, chunks[c], static_cast<int>(c), gathered(chunks, c, optimizer), optimizer,
                  passes[static_cast<std::size_t>(chunks[c].stage->index)]);
    }
    issue(kind, "begin", optimizer.begin());
    issue(kind, "gather_parameters", optimizer.gather_first());
    std::optional<SlotPasses> slots;
    if (vocabulary_) slots = make_slot_passes(kind, rank, optimizer);
    MiniBatches mini_batches = make_mini_batches(kind, optimizer);
    issue_versions(kind, mini_batches, -1);
    issue_actions(kind, rank, chunks, passes, optimizer.validate(), slots, mini_batches);
    if (vocabulary_) issue(kind, "finish_vocabulary", vocabulary_->drain());
    if (schedule_.copies > 1) issue(kind, "sum_copies", sum_copies(rank, chunks));
    issue(kind, "roll_amaxes", roll_amaxes(rank, chunks));
    issue_update(kind, chunks, optimizer);
    builder_.program().kinds.push_back(std::move(kind));
  }

  // The families' buffers of the stage's layers.
  std::vector<BufferRef> of_layers(const Stage& stage,
                                   const std::vector<int>& (Layer::*families)(std::int64_t)
                                       const) const {
    std::vector<int> layers;
    for (int l = stage.first_layer; l < stage.end_layer; ++l) layers.push_back(l);
    if (stage.last && prediction_) {
      for (const int layer : prediction_->layers()) layers.push_back(layer);
    }
    std::vector<BufferRef> buffers;
    for (const int l : layers) {
      for (const int family : (layer_.*families)(l)) buffers.push_back({family, l});
    }
    return buffers;
  }

  // Delayed scaling: the largest magnitudes that any rank with the same layers has seen in this
  // step are those that the next one scales by.
  int roll_amaxes(int rank, const std::vector<Chunk>& chunks) {
    std::vector<BufferRef> histories;
    for (const Chunk& chunk : chunks) {
      const std::vector<BufferRef> own = of_layers(*chunk.stage, &Layer::histories);
      histories.insert(histories.end(), own.begin(), own.end());
    }
    if (histories.empty()) return -1;
    std::sort(histories.begin(), histories.end(), [](const BufferRef& a, const BufferRef& b) {
      return std::pair(a.layer, a.family) < std::pair(b.layer, b.family);
    });
    const std::int64_t elements = 2 * static_cast<std::int64_t>(histories.size());
    OperationList list("step.roll_amaxes.rank" + std::to_string(rank));
    const auto reduce = [&](const char* name, int group) {
      if (group < 0) return;
      Collective collective;
      collective.reduce = ReduceOperator::kMaximum;
      collective.elements = elements;
      collective.type = DataType::kFp32;
      list.add(name, collective, histories, histories, Cause::kOptimizer);
      list.last().group = group;
    };
    reduce("amaxes.all_reduce", builder_.group({"tp", "cp", "dp"}));
    if (schedule_.copies > 1) reduce("amaxes.all_reduce_copies", copies_group(rank));
    Kernel roll;
    roll.kind = KernelKind::kRollAmax;
    roll.rows = elements;
    roll.columns = 1;
    roll.type = roll.output = DataType::kFp32;
    list.add("amaxes.roll", roll, histories, histories, Cause::kOptimizer);
    return builder_.add_template(list);
  }

  LastActions last_actions(const Stage& stage) const {
    LastActions last;
    const std::vector<Action>& actions = actions_[static_cast<std::size_t>(stage.rank)];
    for (std::size_t k = 0; k < actions.size(); ++k) {
      if (actions[k].stage != stage.index) continue;
      const auto here = static_cast<int>(k);
      if (actions[k].kind == ActionKind::kBackward) last.whole = here;
      if (actions[k].kind == ActionKind::kBackwardInput) last.input = here;
      if (actions[k].kind == ActionKind::kBackwardWeight) last.weight = here;
    }
    return last;
  }

  Chunk make_chunk(const Stage& stage) {
    Chunk chunk;
    chunk.stage = &stage;
    chunk.last_actions = last_actions(stage);
    const LastActions& last = chunk.last_actions;
    if (last.whole >= 0) chunk.whole = backward_steps(stage, ActionKind::kBackward);
    if (last.input >= 0) {
      chunk.input = backward_steps(stage, ActionKind::kBackwardInput);
      chunk.weight = weight_steps(stage);
    }
    offload_activations(chunk);
    const bool ends_whole = last.whole > std::max(last.input, last.weight);
    const bool ends_halved = last.whole < std::min(last.input, last.weight);
    chunk.last = last.input < 0 ? chunk.whole : chunk.input;
    if (ends_whole) {
      chunk.last = chunk.whole;
    } else {
      chunk.last_inputs = chunk.last.size();
      chunk.last.insert(chunk.last.end(), chunk.weight.begin(), chunk.weight.end());
    }
    chunk.early = reduces_early() && schedule_.copies == 1 && (ends_whole || ends_halved);
    std::vector<Step> completing = chunk.last;
    if (vocabulary_) {
      // The shards of the vocabulary are worked on behind the stage's last pass.
      chunk.early = false;
      for (const Step& step : vocabulary_->completing(stage.rank)) completing.push_back(step);
    }
    chunk.tensors = firing_order(builder_, completing);
    return chunk;
  }

  // The layers of a stage whose activations live on the host: to its end where none are named.
  int offloaded_end(const Stage& stage) const {
    const std::int64_t count = job_.plan.offload.layers;
    if (count == 0 || count >= stage.end_layer - stage.first_layer) return stage.end_layer;
    return stage.first_layer + static_cast<int>(count);
  }

  void offload_activations(Chunk& chunk) {
    if (!activations_) return;
    const Stage& stage = *chunk.stage;
    std::vector<Step> backward = chunk.whole.empty() ? chunk.input : chunk.whole;
    if (chunk.whole.empty()) {
      backward.insert(backward.end(), chunk.weight.begin(), chunk.weight.end());
    }
    const int end = offloaded_end(stage);
    activations_->note(forward_steps(stage, {}), backward, stage.first_layer, end);
    chunk.whole = activations_->coming_up(chunk.whole, stage.first_layer, end);
    chunk.input = activations_->coming_up(chunk.input, stage.first_layer, end);
  }

  std::vector<Step> going_down(const Stage& stage, const std::vector<Step>& forward) {
    if (!activations_) return forward;
    return activations_->going_down(forward, stage.first_layer, offloaded_end(stage));
  }

  // Two copies of the model (DualPipe): rank r holds the stages that rank p - 1 - r holds of the
  // other, so the two sum their gradients, and their losses, before anything else is done with
  // them.
  int copies_group(int rank) {
    const int other = shape_.pp - 1 - rank;
    const int nearer = std::min(rank, other), farther = std::max(rank, other);
    return builder_.add_group(
        GroupFamily{"copies" + std::to_string(nearer), {"pp"}, {nearer, farther}});
  }

  int sum_copies(int rank, const std::vector<Chunk>& chunks) {
    const int other = shape_.pp - 1 - rank;
    const int group = copies_group(rank);
    std::vector<Tensor> tensors;
    for (const Chunk& chunk : chunks) {
      for (const FiredTensor& fired : chunk.tensors) tensors.push_back(fired.tensor);
    }
    std::sort(tensors.begin(), tensors.end(), [](const Tensor& a, const Tensor& b) {
      return std::pair(a.parameter, a.layer) < std::pair(b.parameter, b.layer);
    });
    OperationList list("step.sum_copies.rank" + std::to_string(rank));
    const auto sum = [&](const char* name, std::vector<BufferRef> buffers, std::int64_t elements,
                         DataType type) {
      Collective collective;
      collective.elements = elements;
      collective.type = type;
      list.add(name, collective, buffers, buffers, Cause::kDataParallel);
      list.last().group = group;
    };
    std::int64_t elements = 0;
    for (const Tensor& tensor : tensors)
      elements += builder_.parameter(tensor.parameter).elements();
    sum("copies.gradients", gradients_of(builder_, tensors), elements, shape_.gradient);
    if (rank == 0 || other == 0) sum("copies.loss", {{loss_total()}}, 1, DataType::kFp64);
    return builder_.add_template(list);
  }

  // Where one rank holds the first and the last stage, it holds the tied table once: with the chunk
  // that completes its gradient.
  void hold_table_once(std::vector<Chunk>& chunks) const {
    Chunk* first = nullptr;
    Chunk* last = nullptr;
    for (Chunk& chunk : chunks) {
      if (chunk.stage->first) first = &chunk;
      if (chunk.stage->last) last = &chunk;
    }
    if (first == nullptr || last == nullptr || first == last) return;
    const bool last_completes = last->last_actions.weights() > first->last_actions.inputs();
    std::vector<FiredTensor>& tensors = (last_completes ? first : last)->tensors;
    tensors.erase(std::remove_if(tensors.begin(), tensors.end(),
                                 [&](const FiredTensor& fired) {
                                   return fired.tensor.parameter == embedding_->word();
                                 }),
                  tensors.end());
  }

  // What the first forward pass of a chunk waits for: its own parameters, and the word table where
  // another chunk holds it.
  std::vector<PortRef> gathered(const std::vector<Chunk>& chunks, std::size_t number,
                                const OptimizerStep& optimizer) const {
    std::vector<PortRef> ports;
    for (const auto& arrived : optimizer.gathered(static_cast<int>(number)))
      ports.push_back(arrived.port);
    if (!chunks[number].stage->first || !table_at_end()) return ports;
    for (std::size_t c = 0; c < chunks.size(); ++c) {
      if (c == number) continue;
      for (const auto& arrived : optimizer.gathered(static_cast<int>(c))) {
        const Bucket& bucket = optimizer.bucket(arrived.bucket);
        const bool holds = std::any_of(
            bucket.tensors.begin(), bucket.tensors.end(),
            [&](const Tensor& tensor) { return tensor.parameter == embedding_->word(); });
        if (holds) ports.push_back(arrived.port);
      }
    }
    return ports;
  }

  void make_persistent(RankKind& kind, const std::vector<std::vector<FiredTensor>>& chunks,
                       const OptimizerStep& optimizer) const {
    for (const auto& chunk : chunks) {
      for (const FiredTensor& fired : chunk) {
        const Parameter& parameter = builder_.parameter(fired.tensor.parameter);
        if (units_) continue;
        if (!keeps_weight_versions(job_.plan))
          kind.persistent.push_back({parameter.family, fired.tensor.layer});
        if (shape_.fresh_gradients) continue;
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

  void make_passes(RankKind& kind, const Chunk& chunk, int number,
                   const std::vector<PortRef>& gathered, OptimizerStep& optimizer,
                   StagePasses& passes) {
    const Stage& stage = *chunk.stage;
    const std::string name = std::to_string(stage.index);
    std::vector<Step> forward = going_down(stage, forward_steps(stage, {}));
    const bool converts =
        stage.first_layer < stage.end_layer && layer_.quantise_weights(stage.first_layer) >= 0;
    if (units_ && shape_.fresh_gradients) {
      forward = units_->gathering(forward, ShardedUnits::Phase::kForward);
    }
    passes.forward = passes.first_forward = add_pass(kind, name + "F", stage.index, forward);
    if (units_ && !shape_.fresh_gradients) {
      forward = units_->gathering(forward, ShardedUnits::Phase::kStep);
      passes.first_forward = add_pass(kind, name + "F_first", stage.index, std::move(forward));
    } else if (!gathered.empty() || converts) {
      passes.first_forward = add_pass(kind, name + "F_first", stage.index,
                                      going_down(stage, forward_steps(stage, gathered, converts)));
    }
    if (shape_.fresh_gradients) return make_reducing_passes(kind, chunk, number, optimizer, passes);
    const bool reduces = chunk.early && !optimizer.buckets_of(number).empty();
    const auto backward = [&](ActionKind action, const char* suffix, const std::vector<Step>& steps,
                              std::size_t begin, std::size_t end) {
      if (steps.empty()) return;
      const auto index = static_cast<std::size_t>(action);
      passes.of[index] = passes.last[index] = add_pass(kind, name + suffix, stage.index, steps);
      if (!reduces || begin == end) return;
      passes.last[index] = add_pass(kind, name + suffix + "_last", stage.index,
                                    reducing_steps(chunk, number, begin, end, optimizer));
    };
    const std::size_t inputs = chunk.last_inputs, all = chunk.last.size();
    backward(ActionKind::kBackward, "B", chunk.whole, 0, inputs > 0 ? 0 : all);
    backward(ActionKind::kBackwardInput, "I", chunk.input, 0, inputs);
    backward(ActionKind::kBackwardWeight, "W", chunk.weight, inputs, inputs > 0 ? all : inputs);
    make_messages(kind, stage, passes);
  }

  // Backward passes that are all reduced: the first begins the shares, the others add to them.
  void make_reducing_passes(RankKind& kind, const Chunk& chunk, int number,
                            OptimizerStep& optimizer, StagePasses& passes) {
    const auto make = [&](bool adds, const std::string& of = "") {
      std::vector<Step> steps =
          clearing_steps(reducing_steps(chunk, number, 0, chunk.last.size(), optimizer, adds));
      if (units_) steps = units_->gathering(steps, ShardedUnits::Phase::kBackward);
      const bool first = !adds && !keeps_weight_versions(job_.plan);
      return add_pass(kind, std::to_string(chunk.stage->index) + (first ? "B_first" : "B") + of,
                      chunk.stage->index, std::move(steps));
    };
    for (std::int64_t p = 0; p < 2 * job_.plan.rounded_ranks; ++p) {
      if (p >= job_.plan.micro_batches) break;
      units_->at_position(p % job_.plan.rounded_ranks);
      passes.by_position.push_back(
          make(p >= job_.plan.rounded_ranks, "_of" + std::to_string(p % job_.plan.rounded_ranks)));
    }
    if (!passes.by_position.empty()) return;
    if (keeps_weight_versions(job_.plan)) {
      const int only = make(false);
      std::fill(std::begin(passes.of), std::end(passes.of), only);
      std::fill(std::begin(passes.last), std::end(passes.last), only);
      return make_messages(kind, *chunk.stage, passes);
    }
    passes.first_backward = make(false);
    const auto index = static_cast<std::size_t>(ActionKind::kBackward);
    if (job_.plan.micro_batches > 1) passes.of[index] = passes.last[index] = make(true);
  }

  void make_messages(RankKind& kind, const Stage& stage, StagePasses& passes) {
    const std::string name = std::to_string(stage.index);
    const auto message = [&](MessageKind message_kind, const char* suffix, int direction) {
      passes.messages[static_cast<std::size_t>(message_kind)] =
          add_pass(kind, name + suffix, stage.index,
                   {{messages_.message(message_kind, direction), boundary(stage, message_kind)}});
    };
    if (receives(stage, MessageKind::kReceiveForward)) {
      const int direction = path_.direction(path_.previous(stage.index));
      message(MessageKind::kReceiveForward, "RECV_F", direction);
      message(MessageKind::kSendBackward, "SEND_B", direction);
    }
    if (receives(stage, MessageKind::kReceiveBackward)) {
      const int direction = path_.direction(stage.index);
      message(MessageKind::kSendForward, "SEND_F", direction);
      message(MessageKind::kReceiveBackward, "RECV_B", direction);
    }
  }

  // -- Order
  // ---------------------------------------------------------------------------------------

  static void issue(RankKind& kind, const char* name, int template_index) {
    if (template_index < 0) return;
    kind.order.push_back({add_pass(kind, name, -1, {{template_index, 0}}), -1});
  }

  std::vector<ScheduledAction> with_their_messages(int rank) const {
    if (schedule_.asynchronous || vocabulary_ || overlaps_passes())
      return with_asynchronous_messages(actions_, path_, rank);
    return with_messages(actions_, path_.rank_of, rank, job_.plan.overlap_p2p);
  }

  void issue_actions(RankKind& kind, int rank, const std::vector<Chunk>& chunks,
                     std::vector<StagePasses>& passes, int validate,
                     std::optional<SlotPasses>& slots, const MiniBatches& mini_batches) {
    const std::vector<ScheduledAction> order = with_their_messages(rank);
    const int validates_before = validate < 0 ? -1 : validating_action(rank);
    std::vector<const Chunk*> chunk_of(stages_.size(), nullptr);
    for (const Chunk& chunk : chunks) {
      chunk_of[static_cast<std::size_t>(chunk.stage->index)] = &chunk;
    }
    int wait = -1;
    if (messages_.wait() >= 0) wait = add_pass(kind, "wait", -1, {{messages_.wait(), 0}});
    kind.order.reserve(order.size() * 3);
    int number = -1;                    // of the action, in its rank's order
    std::optional<Issue> forward_half;  // of an overlapped pair
    for (std::size_t k = 0; k < order.size(); ++k) {
      if (order[k].action) {
        const Action& action = *order[k].action;
        const auto stage = static_cast<std::size_t>(action.stage);
        ++number;
        if (slots) issue_slots(kind, rank, number, *slots);
        if (number == validates_before) issue(kind, "validate", validate);
        const int pass = pass_of(action, number, chunk_of[stage]->last_actions, passes[stage]);
        begin_mini_batch(kind, action, mini_batches);
        const Issue issue{pass, action.micro_batch};
        if (action.overlaps_next && overlaps_passes()) {
          forward_half = issue;
        } else if (forward_half) {
          issue_in_turns(kind, issue, *std::exchange(forward_half, std::nullopt));
        } else {
          if (action.overlaps_next) await_both(kind, *order[k + 1].action, passes);
          if (pass >= 0) kind.order.push_back(issue);
        }
      }
      for (const PostedMessage& message : order[k].messages) {
        const StagePasses& stage = passes[static_cast<std::size_t>(message.stage)];
        kind.order.push_back(
            {stage.messages[static_cast<std::size_t>(message.kind)], message.micro_batch});
      }
      if (wait >= 0 && !order[k].messages.empty()) kind.order.push_back({wait, -1});
      if (order[k].action) end_mini_batch(kind, *order[k].action, mini_batches);
    }
    if (slots) issue_slots(kind, rank, number + 1, *slots);
  }

  // -- Mini-batches of one micro-batch (weight_versions.hpp)

  MiniBatches make_mini_batches(RankKind& kind, OptimizerStep& optimizer) {
    MiniBatches made;
    if (!keeps_weight_versions(job_.plan)) return made;
    const auto pass = [&](const std::string& name, int template_index) {
      return add_pass(kind, name, -1, {{template_index, 0}});
    };
    made.update = pass("U", optimizer.update());
    const std::vector<std::int64_t>& late = job_.plan.weight_delays;
    std::set<std::int64_t> delays(late.begin(), late.end());
    if (delays.empty()) delays.insert(0);
    for (const std::int64_t delay : delays) {
      const int version = optimizer.version(delay);
      if (version >= 0)
        made.versions.emplace_back(delay, pass("V" + std::to_string(delay), version));
    }
    if (delays_updates(job_.plan)) made.clear = pass("CLEAR", optimizer.clear());
    return made;
  }

  std::int64_t per_update() const {
    return std::max<std::int64_t>(1, job_.plan.micro_batches_per_update);
  }

  // Of a reference run: the versions that the update of a mini-batch (-1: the weights that the step
  // begins with) is the last to be seen in.
  void issue_versions(RankKind& kind, const MiniBatches& passes, std::int64_t mini_batch) const {
    if (!delays_updates(job_.plan)) return;
    for (const auto& [delay, pass] : passes.versions) {
      const std::int64_t last = mini_batch + 1 + delay;
      for (std::int64_t m = mini_batch < 0 ? 0 : last; m <= last; ++m) {
        for (std::int64_t i = m * per_update(); i < (m + 1) * per_update(); ++i) {
          if (i < job_.plan.micro_batches) kind.order.push_back({pass, static_cast<int>(i)});
        }
      }
    }
  }

  void begin_mini_batch(RankKind& kind, const Action& action, const MiniBatches& passes) const {
    if (passes.update < 0 || action.kind != ActionKind::kForward) return;
    if (!delays_updates(job_.plan)) {
      for (const auto& version : passes.versions) {
        kind.order.push_back({version.second, action.micro_batch});
      }
    } else if (action.micro_batch > 0 && action.micro_batch % per_update() == 0) {
      kind.order.push_back({passes.clear, -1});
    }
  }

  void end_mini_batch(RankKind& kind, const Action& action, const MiniBatches& passes) const {
    if (passes.update < 0 || action.kind != ActionKind::kBackward) return;
    if ((action.micro_batch + 1) % per_update() != 0) return;
    kind.order.push_back({passes.update, action.micro_batch});
    issue_versions(kind, passes, action.micro_batch / per_update());
  }

  // -- The vocabulary over the pipeline

  SlotPasses make_slot_passes(RankKind& kind, int rank, const OptimizerStep& optimizer) {
    const auto pass = [&](const char* name, int template_index) {
      if (template_index < 0) return -1;
      return add_pass(kind, name, -1, {{template_index, 0}});
    };
    SlotPasses passes;
    passes.announce_spread = pass("ANNOUNCE_D", vocabulary_->announce_spread(rank));
    passes.announce_score = pass("ANNOUNCE_S", vocabulary_->announce_score(rank));
    passes.weigh = pass("T", vocabulary_->weigh());
    passes.score = pass("S", vocabulary_->score(rank));
    passes.embed = passes.first_embed = pass("E", vocabulary_->embed());
    passes.spread = pass("D", vocabulary_->spread());
    std::vector<PortRef> gathered;
    for (const auto& arrived : optimizer.gathered(0)) gathered.push_back(arrived.port);
    if (!gathered.empty()) {
      passes.first_embed = pass("E_first", builder_.with_entry(vocabulary_->embed(), {}, gathered));
    }
    return passes;
  }

  // The slots before the rank's action of that number. What is scored arrives first; what is waited
  // for longest comes last, so that nothing else waits behind it.
  void issue_slots(RankKind& kind, int rank, int number, SlotPasses& passes) const {
    const auto issue_part = [&](int pass, int micro_batch) {
      if (pass >= 0 && micro_batch >= 0) kind.order.push_back({pass, micro_batch});
    };
    const auto& slots = slots_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(number)];
    for (const VocabularySlot& slot : slots) {
      issue_part(passes.announce_score, slot.score);
      issue_part(passes.weigh, slot.weigh);
      issue_part(passes.score, slot.score);
      if (slot.embed >= 0) {
        issue_part(std::exchange(passes.first_embed, passes.embed), slot.embed);
      }
      issue_part(passes.announce_spread, slot.announce);
      issue_part(passes.spread, slot.spread);
    }
  }

  // The action before which a rank validates the step before: the later the farther it is from the
  // last rank, which knows first; among the first stage's forward passes that open its order
  // (zero-bubble-pipeline-parallelism, scheduler/communication.py).
  int validating_action(int rank) const {
    const std::vector<Action>& actions = actions_[static_cast<std::size_t>(rank)];
    const auto opening = std::find_if(actions.begin(), actions.end(), [&](const Action& action) {
      return action.kind != ActionKind::kForward || action.stage != actions.front().stage;
    });
    return std::min(2 * (shape_.pp - 1 - rank), static_cast<int>(opening - actions.begin()) - 1);
  }

  // -1 for the weight half of a stage without matrices.
  int pass_of(const Action& action, int number, const LastActions& last,
                     StagePasses& passes) const {
    if (action.kind == ActionKind::kForward) {
      return std::exchange(passes.first_forward, passes.forward);
    }
    if (!passes.by_position.empty()) {
      const auto here = static_cast<std::size_t>(action.micro_batch);
      const auto ranks = static_cast<std::size_t>(job_.plan.rounded_ranks);
      return passes.by_position[here < ranks ? here : ranks + here % ranks];
    }
    if (passes.first_backward >= 0) return std::exchange(passes.first_backward, -1);
    const auto index = static_cast<std::size_t>(action.kind);
    const bool is_last = number == last.whole || number == last.input || number == last.weight;
    return is_last ? passes.last[index] : passes.of[index];
  }

  // An overlapped pair whose halves are in parts: the backward pass begins, and waits for its
  // input.
  void issue_in_turns(RankKind& kind, const Issue& backward, const Issue& forward) {
    const auto parts = [&](const Issue& whole) {
      std::vector<Issue> issues;
      for (const int part : parts_of(kind, whole.pass)) {
        issues.push_back({part, whole.micro_batch});
      }
      return issues;
    };
    for (const Issue& part : in_turns(parts(backward), parts(forward))) kind.order.push_back(part);
  }

  // The parts of a pass as passes of their own.
  std::vector<int> parts_of(RankKind& kind, int pass) {
    const auto [found, is_new] = parts_.try_emplace({kind.name, pass});
    if (!is_new) return found->second;
    const Pass whole = kind.passes[static_cast<std::size_t>(pass)];
    std::vector<Step> steps;
    const auto end_part = [&] {
      const std::string name = whole.name + "." + std::to_string(found->second.size());
      found->second.push_back(add_pass(kind, name, whole.stage, std::exchange(steps, {})));
    };
    for (const Step& step : whole.steps) {
      steps.push_back(step);
      if (cuts_.contains(step.template_index)) end_part();
    }
    end_part();
    return found->second;
  }

  // An overlapped pair begins when the inputs of both its halves are there. Without parts they are
  // issued one behind the other.
  void await_both(RankKind& kind, const Action& backward, std::vector<StagePasses>& passes) {
    const Stage& stage = stages_[static_cast<std::size_t>(backward.stage)];
    if (!receives(stage, MessageKind::kReceiveBackward)) return;
    int& pass = passes[static_cast<std::size_t>(backward.stage)].await_backward;
    if (pass < 0) {
      pass =
          add_pass(kind, std::to_string(stage.index) + "AWAIT_B", stage.index,
                   {{messages_.await_backward(), boundary(stage, MessageKind::kReceiveBackward)}});
    }
    kind.order.push_back({pass, backward.micro_batch});
  }

  void issue_update(RankKind& kind, const std::vector<Chunk>& chunks,
                    OptimizerStep& optimizer) const {
    std::vector<Step> steps;
    for (std::size_t c = chunks.size(); optimizer.reduces() && c-- > 0;) {
      if (chunks[c].early) continue;
      for (const std::size_t b : optimizer.buckets_of(static_cast<int>(c))) {
        if (!optimizer.reduces(b)) continue;
        steps.push_back(optimizer.reduce(b));
      }
    }
    if (!steps.empty()) {
      kind.order.push_back({add_pass(kind, "reduce_gradients", -1, std::move(steps)), -1});
    }
    issue(kind, "finish_gradients", optimizer.finish());
    if (!keeps_weight_versions(job_.plan)) issue(kind, "update", optimizer.update());
    std::vector<Step> matrices = optimizer.update_matrices();
    if (!matrices.empty())
      kind.order.push_back({add_pass(kind, "update_matrices", -1, std::move(matrices)), -1});
  }

  const Job& job_;
  ProgramBuilder builder_;
  const StepShape& shape_;
  Layer layer_;
  // Either the two ends of the pipeline, or all of it.
  std::optional<Embedding> embedding_;
  std::optional<HeadAndLoss> head_;
  std::optional<MultiTokenPrediction> prediction_;
  std::optional<PipelineVocabulary> vocabulary_;
  const Schedule& schedule_;
  StagePath path_;
  PipelineMessages messages_;
  int norm_ = -1;
  std::vector<Stage> stages_;
  std::vector<std::vector<Action>> actions_;
  std::vector<std::vector<std::vector<VocabularySlot>>> slots_;  // by rank, before its actions
  std::vector<std::pair<std::string, int>> begins_;
  struct Releasing {
    int base = 0;
    std::vector<int> gradients;
    int index = 0;
  };
  std::vector<Releasing> releasing_;
  std::set<int> cuts_;  // templates behind which a part of another pass may stand
  std::map<std::pair<std::string, int>, std::vector<int>> parts_;  // by kind and pass
  std::vector<std::pair<std::vector<BufferRef>, int>> clears_;
  std::optional<ShardedUnits> units_;             // where the parameters are sharded
  std::optional<ActivationOffload> activations_;  // where what is saved lives on the host
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
  plan.weights_in_8_bits = job.plan.weights_in_8_bits;
  plan.optimizer = job.plan.optimizer;
  plan.moe = job.plan.moe;
  if (job.plan.dp_kind == DataParallelKind::kZeroPlusPlus && job.plan.dp > 1) {
    plan.rounded_ranks = job.plan.dp;
    plan.rounded_neighbours = job.plan.shard;
  }
  if (keeps_weight_versions(job.plan)) {
    for (int rank = 0; rank < job.plan.pp; ++rank) {
      plan.weight_delays.insert(
          plan.weight_delays.end(),
          static_cast<std::size_t>(job.plan.stage_layers[static_cast<std::size_t>(rank)]),
          update_delay(job.plan.pp, rank));
    }
    plan.micro_batches_per_update = job.plan.dp;
  }
  // Ranks fill a capacity with their own tokens. These are runs of a micro-batch's, unless a
  // sequence is dealt out in another order: then what is dropped here is not what the ranks drop.
  plan.moe.token_groups *= job.plan.tp * job.plan.cp;
  // A multiple that pads to what the split table was padded to.
  reference.software.vocabulary_multiple = padded;
  reference.software.pad_vocabulary_at_tp1 = true;
  return reference;
}

}  // namespace headway
