#include "sim/plan/plan_legality.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <tuple>

#include "sim/plan/data_legality.hpp"
#include "sim/plan/expert_loads.hpp"
#include "sim/program/schedule.hpp"

namespace headway {
namespace {

std::string text(std::int64_t number) { return std::to_string(number); }

class Legality {
 public:
  Legality(PlanReading& reading, const PlanContext& context, JobSection& section, JobSection& job,
           std::vector<std::string>& notes)
      : reading_(reading),
        plan_(reading.plan),
        context_(context),
        section_(section),
        job_(job),
        notes_(notes) {}

  void resolve() {
    check_tensor_parallelism();
    check_sequence();
    check_context_parallelism();
    check_gpus();
    check_batch();
    check_experts();
    check_overlapped_passes();
    check_pipeline();
    check_data_parallelism(reading_, context_, section_, dp_, notes_);
    check_optimizer();
    check_predictions();
    note_what_has_no_effect();
  }

 private:
  void problem(std::string_view key, std::string message) {
    section_.problem(key, std::move(message));
  }
  void note(std::string_view key, const std::string& why) {
    if (section_.given(key))
      notes_.push_back("plan." + std::string(key) + " has no effect: " + why);
  }

  void check_tensor_parallelism() {
    if (!reading_.tp || !context_.model) return;
    const std::int64_t tp = *reading_.tp;
    plan_.tp = static_cast<int>(tp);
    const bool squares = tp > 1 && plan_.tp_kind != TensorKind::k1d;
    if (squares && !check_squares()) return;
    const Transformer& model = *context_.model;
    const std::int64_t ranks = squares ? plan_.tp_side : tp;
    const std::string who = squares ? "side " + text(ranks) + " of tp " + text(tp) : text(tp);
    const auto must_divide = [&](std::int64_t size, const std::string& what) {
      if (size % ranks != 0) problem("tp", who + " does not divide the " + text(size) + " " + what);
    };
    must_divide(model.num_attention_heads, "attention heads");
    must_divide(model.intermediate_size, "columns of the MLP (intermediate_size)");
    if (squares) must_divide(model.hidden_size, "columns of the residual stream (hidden_size)");
    // Megatron-LM, arguments.py: tp_comm_overlap needs sequence parallelism.
    if (tp > 1 && plan_.tp_overlap != TensorOverlap::kNothing && !plan_.sequence_parallel) {
      problem("tp_overlap", std::string(name(plan_.tp_overlap)) +
                                " overlaps the exchanges of sequence parallelism; expected "
                                "sequence_parallel true, or none");
    }
    const std::int64_t kv = model.num_key_value_heads;
    if (kv % ranks == 0 || model.num_attention_heads % ranks != 0) return;
    if (squares) {
      not_yet(reading_.not_built, section_, "tp_kind",
              std::string(name(plan_.tp_kind)) + " with fewer key-value heads than columns");
    } else if (tp % kv != 0) {
      problem("tp", text(tp) + " neither divides the " + text(kv) +
                        " key-value heads nor is a multiple of them");
    }
  }

  // Finds the side and depth of the ranks' squares, and what else they ask for; whether there are.
  bool check_squares() {
    const std::int64_t tp = *reading_.tp;
    const std::string kind(name(plan_.tp_kind));
    if (plan_.tp_kind == TensorKind::k2_5d && !reading_.tp_depth) {
      if (!section_.left_open("tp_depth"))
        problem("tp_depth", "missing; expected the squares of a stack, for tp_kind 2.5d");
      return false;
    }
    const std::int64_t depth = plan_.tp_kind == TensorKind::k2_5d ? *reading_.tp_depth : 1;
    const auto side = static_cast<std::int64_t>(
        std::llround(std::sqrt(static_cast<double>(tp) / static_cast<double>(depth))));
    if (plan_.tp_kind == TensorKind::k3d) return false;  // refused already
    if (side * side * depth != tp || side == 1) {
      problem("tp", text(tp) + " ranks are no " +
                        (depth == 1 ? "square" : "stack of " + text(depth) + " squares") +
                        " of more than one, as tp_kind " + kind + " has them");
      return false;
    }
    plan_.tp_side = static_cast<int>(side);
    plan_.tp_depth = static_cast<int>(depth);
    plan_.sequence_parallel = true;  // tokens are shared out between the matrices
    const std::int64_t rows = side * depth;
    if (reading_.micro_batch && *reading_.micro_batch % rows != 0) {
      problem("micro_batch", text(*reading_.micro_batch) + " sequences do not divide among the " +
                                 text(rows) + " rows of tp_kind " + kind +
                                 ", whose attention works on whole sequences");
    }
    if (plan_.tp_overlap == TensorOverlap::kRing)
      problem("tp_overlap", "ring is a way of tp_kind 1d; expected none with " + kind);
    refuse_with_squares(kind);
    return true;
  }

  void refuse_with_squares(const std::string& kind) {
    const auto refuse = [&](const std::string& what) {
      not_yet(reading_.not_built, section_, "tp_kind", kind + " with " + what);
    };
    const Transformer& model = *context_.model;
    if (model.num_experts > 0) refuse("experts, whose ranks fold over those of one dimension");
    if (model.latent_attention) refuse("latent attention");
    if (reading_.cp.value_or(1) > 1) refuse("context parallelism: both share out the tokens");
    if (plan_.vocabulary != Vocabulary::kLastStage)
      refuse("vocabulary " + std::string(name(plan_.vocabulary)));
  }

  void check_sequence() {
    if (!context_.sequence_length) return;
    const std::int64_t length = *context_.sequence_length;
    if (reading_.tp && *reading_.tp > 1 && plan_.sequence_parallel && length % *reading_.tp != 0) {
      problem("sequence_parallel", "tp " + text(*reading_.tp) +
                                       " does not divide the sequence of " + text(length) +
                                       " tokens");
    }
  }

  // Who exchanges heads, and who deals out tokens, must find them divisible.
  void check_context_parallelism() {
    if (!reading_.cp || *reading_.cp == 1) return;
    const std::int64_t cp = *reading_.cp;
    plan_.cp = static_cast<int>(cp);
    const bool mixed = plan_.cp_kind == ContextParallelKind::kUlyssesRing;
    std::int64_t degree = plan_.cp_kind == ContextParallelKind::kUlysses ? cp : 1;
    if (mixed && !reading_.ulysses_degree) {
      if (!section_.left_open("ulysses_degree")) {
        problem(
            "ulysses_degree",
            "missing; expected how many of the cp ranks exchange heads, for cp_kind ulysses+ring");
      }
      return;
    }
    if (mixed) degree = *reading_.ulysses_degree;
    if (cp % degree != 0) {
      problem("ulysses_degree", text(degree) + " does not divide cp " + text(cp));
      return;
    }
    plan_.ulysses_degree = static_cast<int>(degree);
    check_window(cp / degree);
    if (context_.model && context_.model->latent_attention) {
      not_yet(reading_.not_built, section_, "cp", "latent attention with context parallelism");
    }
    check_exchanged_heads(degree);
    check_dealt_tokens(cp, cp / degree);
  }

  // TransformerEngine refuses this too (attention/dot_product_attention/context_parallel.py): the
  // blocks that a ring passes on are masked by their place alone.
  void check_window(std::int64_t ring) {
    if (ring == 1 || plan_.cp_kind == ContextParallelKind::kAllGather) return;
    if (!context_.model || !context_.model->sliding_window || !context_.sequence_length) return;
    if (*context_.model->sliding_window >= *context_.sequence_length) return;
    problem("cp_kind",
            std::string(name(plan_.cp_kind)) + " does not go with the model's window of " +
                text(*context_.model->sliding_window) + " tokens; expected ulysses or allgather");
  }

  void check_exchanged_heads(std::int64_t degree) {
    if (degree == 1 || !context_.model || !reading_.tp) return;
    const auto must_divide = [&](std::int64_t heads, const std::string& what) {
      const std::int64_t own = std::max<std::int64_t>(heads / *reading_.tp, 1);
      const bool shared = heads % *reading_.tp == 0 || *reading_.tp % heads == 0;
      if (!shared || own % degree == 0) return;
      problem("cp_kind", "Ulysses over " + text(degree) + " ranks does not divide the " +
                             text(own) + " " + what + " that tp " + text(*reading_.tp) +
                             " leaves a rank; expected a degree that does, or cp_kind ring");
    };
    must_divide(context_.model->num_attention_heads, "attention heads");
    must_divide(context_.model->num_key_value_heads, "key-value heads");
  }

  void check_dealt_tokens(std::int64_t cp, std::int64_t ring) {
    // In zigzag each rank holds a part from the front and its mirror image from the back.
    const bool halves = ring > 1 && plan_.cp_balance == TokenOrder::kZigzag;
    if (!context_.sequence_length) return;
    const std::int64_t length = *context_.sequence_length;
    const std::int64_t parts = halves ? std::lcm(cp, 2 * ring) : cp;
    if (length % parts != 0) {
      problem("cp", std::string(parts == 2 * cp ? "2 x cp = "
                                : parts == cp   ? "cp = "
                                                : "") +
                        text(parts) + " does not divide the sequence of " + text(length) +
                        " tokens");
    } else if (plan_.sequence_parallel && reading_.tp && length / cp % *reading_.tp != 0) {
      problem("cp", "tp " + text(*reading_.tp) + " does not divide the " + text(length / cp) +
                        " tokens that cp " + text(cp) + " leaves a rank");
    }
  }

  void check_gpus() {
    if (!reading_.tp || !reading_.pp || !reading_.cp) return;
    plan_.pp = static_cast<int>(*reading_.pp);
    plan_.cp = static_cast<int>(*reading_.cp);
    if (reading_.ep) plan_.ep = static_cast<int>(*reading_.ep);
    if (!context_.gpus) return;
    const std::int64_t model_ranks = *reading_.tp * *reading_.pp * *reading_.cp;
    const std::string product = "tp " + text(*reading_.tp) + " x cp " + text(*reading_.cp) +
                                " x pp " + text(*reading_.pp) + " = " + text(model_ranks);
    if (*context_.gpus % model_ranks != 0) {
      problem("", product + " does not divide the " + text(*context_.gpus) + " GPUs");
      return;
    }
    dp_ = *context_.gpus / model_ranks;
    plan_.dp = static_cast<int>(*dp_);
    if (reading_.dp && *reading_.dp != *dp_) {
      problem("dp", text(*reading_.dp) + " is not what remains: " + text(*context_.gpus) +
                        " GPUs / (" + product + ") = " + text(*dp_));
    }
  }

  void check_batch() {
    if (!reading_.micro_batch) return;
    plan_.micro_batch = *reading_.micro_batch;
    if (!dp_ || !context_.global_batch) return;
    const std::int64_t share = *dp_ * *reading_.micro_batch;
    if (*context_.global_batch % share != 0) {
      job_.problem("global_batch", text(*context_.global_batch) + " does not divide by dp " +
                                       text(*dp_) + " x micro_batch " +
                                       text(*reading_.micro_batch) + " = " + text(share));
      return;
    }
    micro_batches_ = *context_.global_batch / share;
    plan_.micro_batches = *micro_batches_;
  }

  void check_experts() {
    if (!context_.model || context_.model->num_experts == 0) return;
    for (const std::string& rule : reading_.expert_rules)
      not_yet(reading_.not_built, section_, "moe", rule);
    if (context_.model->linear_bias)
      not_yet(reading_.not_built, section_, "moe", "experts with biases");
    check_expert_kind();
    check_dispatch();
    const std::string& kind = reading_.dp_kind;
    if (kind == "zero++" || kind == "hsdp")
      not_yet(reading_.not_built, section_, "dp_kind", kind + " with experts");
    if (!reading_.ep || !reading_.etp) return;
    check_expert_degrees(*reading_.ep, *reading_.etp);
    check_expert_loads();
  }

  void check_expert_kind() {
    const ExpertKind kind = plan_.moe.kind;
    const ExpertLayers& experts = context_.model->experts;
    const auto needs = [&](std::int64_t per_token) {
      if (experts.per_token == per_token) return;
      problem("moe", "experts of kind " + std::string(name(kind)) + " are " + text(per_token) +
                         " a token; the model has num_experts_per_tok " + text(experts.per_token));
    };
    if (kind == ExpertKind::kSwitch) needs(1);
    if (kind == ExpertKind::kGshard || kind == ExpertKind::kGlam) needs(2);
    if (experts.shared_gate)
      not_yet(reading_.not_built, section_, "moe", "a gate on the shared experts");
  }

  // Megatron-LM's all-gather dispatcher has neither (transformer/moe/token_dispatcher.py).
  void check_dispatch() {
    if (plan_.moe.dispatch != Dispatch::kAllGather) return;
    const auto refuse = [&](const std::string& what) {
      problem("moe", "dispatch allgather has no " + what +
                         "; expected dispatch alltoall, deepep or hybridep");
    };
    if (plan_.moe.dispatch_in_8_bits) refuse("dispatch_dtype fp8");
    if (plan_.moe.shared_overlap) refuse("shared_overlap");
    if (plan_.moe.overlap) refuse("overlap");
  }

  // Which schedules have pairs of a forward and a backward pass to overlap.
  void check_overlapped_passes() {
    if (!plan_.moe.overlap || !context_.model || context_.model->num_experts == 0) return;
    if (reading_.ep == 1) {
      notes_.push_back("plan.moe.overlap has no effect: ep is 1");
      plan_.moe.overlap = false;
      return;
    }
    // Megatron-LM refuses this too (arguments.py): both would travel on one stream.
    if (plan_.moe.shared_overlap) {
      problem("moe", "overlap and shared_overlap both put work beside the exchange; expected one");
    }
    // What is made again would stand in the buffers of the pass beside (Megatron-LM refuses it
    // too).
    if (plan_.recompute == Recompute::kFull || plan_.recomputed_parts.experts) {
      problem("moe",
              "overlap with experts that are recomputed whole; expected recompute none, or "
              "selective without \"moe\"");
    }
    static constexpr std::array paired = {"1f1b", "interleaved", "dualpipe", "dualpipe-v"};
    const std::string schedule = reading_.schedule.value_or("1f1b");
    if (reading_.pp.value_or(1) > 1 &&
        std::find(paired.begin(), paired.end(), schedule) == paired.end()) {
      not_yet(reading_.not_built, section_, "moe", "overlapped passes with schedule " + schedule);
    }
    if (plan_.vocabulary != Vocabulary::kLastStage &&
        plan_.vocabulary != Vocabulary::kRedistributed) {
      not_yet(reading_.not_built, section_, "moe",
              "overlapped passes with vocabulary " + std::string(name(plan_.vocabulary)));
    }
  }

  void check_expert_loads() {
    if (reading_.zipf) {
      plan_.moe.loads = {zipf_loads(context_.model->num_experts, *reading_.zipf)};
    } else if (reading_.histogram) {
      plan_.moe.loads = histogram_loads(*reading_.histogram, *context_.model, section_.problems());
    }
  }

  void check_expert_degrees(std::int64_t ep, std::int64_t etp) {
    const Transformer& model = *context_.model;
    if (model.num_experts % ep != 0)
      problem("ep", text(ep) + " does not divide the " + text(model.num_experts) + " experts");
    if (model.experts.intermediate_size % etp != 0) {
      problem("etp", text(etp) + " does not divide the " + text(model.experts.intermediate_size) +
                         " columns of an expert");
    }
    plan_.etp = static_cast<int>(etp);
    if (!reading_.tp || !reading_.cp) return;
    const std::int64_t tp = *reading_.tp;
    if (model.experts.shared_intermediate_size % tp != 0) {
      problem("tp", text(tp) + " does not divide the " +
                        text(model.experts.shared_intermediate_size) +
                        " columns of the shared experts");
    }
    // Megatron-LM refuses this too (transformer/moe/moe_layer.py): every rank of a tensor-parallel
    // group would route the same tokens.
    if (tp > 1 && !plan_.sequence_parallel)
      problem("sequence_parallel", "experts with tp " + text(tp) + " need it; expected true");
    if (!dp_) return;
    const std::int64_t ranks = *dp_ * *reading_.cp * tp;
    if (ranks % (etp * ep) != 0) {
      problem("ep", "etp " + text(etp) + " x ep " + text(ep) + " does not divide the " +
                        text(ranks) + " ranks of a pipeline stage");
      return;
    }
    plan_.edp = static_cast<int>(ranks / (etp * ep));
    const bool split = !plan_.order.starts_with("pp") && !plan_.order.ends_with("pp");
    if (split && reading_.pp.value_or(1) > 1) {
      problem("order", "\"" + plan_.order + "\": with experts, whose axes fold over those of a " +
                           "stage, pp is expected innermost or outermost");
    }
  }

  void check_predictions() {
    if (!context_.model || context_.model->num_nextn_predict_layers == 0) return;
    if (reading_.tp.value_or(1) > 1 && plan_.tp_kind != TensorKind::k1d) {
      not_yet(reading_.not_built, section_, "tp_kind",
              std::string(name(plan_.tp_kind)) + " with multi-token prediction");
    }
    if (plan_.schedule == "pipedream")
      not_yet(reading_.not_built, section_, "schedule", "pipedream with multi-token prediction");
  }

  void check_pipeline() {
    if (!reading_.pp) return;
    // A value that was wrong or is left open leaves nothing to judge.
    const bool whole = (reading_.vpp || !section_.given("vpp")) &&
                       (reading_.vpp_group || !section_.given("vpp_group")) &&
                       (reading_.stage_layers || !section_.given("stage_layers"));
    if (!whole) return;
    if (*reading_.pp == 1) {
      collapse_pipeline();
      return;
    }
    if (!reading_.schedule) return;
    plan_.schedule = *reading_.schedule;
    const Schedule* schedule = schedule_of(plan_);
    if (schedule == nullptr) return;  // not built: what it demands is not known yet
    const int fixed = schedule->fixed_stages_per_rank;
    plan_.vpp = static_cast<int>(reading_.vpp.value_or(fixed > 0 ? fixed : 1));
    plan_.vpp_group = static_cast<int>(reading_.vpp_group.value_or(0));
    if (micro_batches_) {
      const std::string refusal = schedule->refusal(
          {plan_.pp, plan_.vpp, static_cast<int>(*micro_batches_), plan_.vpp_group});
      if (!refusal.empty()) {
        problem("schedule", schedule->name + " " + refusal);
        return;
      }
    }
    check_vocabulary(*schedule);
    if (schedule->splits_backward && plan_.tp > 1 && plan_.tp_kind != TensorKind::k1d) {
      not_yet(reading_.not_built, section_, "schedule",
              schedule->name + " with tp_kind " + std::string(name(plan_.tp_kind)) +
                  ": its weight gradients cannot be put off");
    }
    const std::int64_t stages = static_cast<std::int64_t>(plan_.pp) * plan_.vpp / schedule->copies;
    resolve_layers(stages);
    if (static_cast<std::int64_t>(plan_.stage_layers.size()) == stages) check_apart(*schedule);
  }

  // The published runtimes spread the vocabulary over 1F1B (and V-Half) alone.
  void check_vocabulary(const Schedule& schedule) {
    if (plan_.vocabulary == Vocabulary::kLastStage) return;
    const std::string what = "vocabulary " + std::string(name(plan_.vocabulary));
    if (schedule.name != "1f1b") {
      not_yet(reading_.not_built, section_, "vocabulary", what + " with schedule " + schedule.name);
    }
    if (plan_.vocabulary == Vocabulary::kRedistributed) return;
    if (context_.model && context_.model->num_nextn_predict_layers > 0) {
      not_yet(reading_.not_built, section_, "vocabulary", what + " with multi-token prediction");
    }
    if (plan_.sequence_parallel && plan_.tp > 1) {
      not_yet(reading_.not_built, section_, "vocabulary", what + " with sequence parallelism");
    }
    if (is_fsdp(plan_.dp_kind) && plan_.dp > 1) {
      not_yet(reading_.not_built, section_, "vocabulary",
              what + " with dp_kind " + reading_.dp_kind);
    }
    note("overlap_p2p", "the messages of " + what + " are always asynchronous");
    note("overlap_grad_reduce", what + " completes its gradients behind the last backward pass");
  }

  // What crosses a boundary is known by its layer, so a rank may receive at no two boundaries of
  // one layer in the same direction.
  void check_apart(const Schedule& schedule) {
    const ScheduleShape shape = {plan_.pp, plan_.vpp, 1, plan_.vpp_group};
    const int stages = static_cast<int>(plan_.stage_layers.size());
    std::map<std::tuple<int, bool, std::int64_t>, int> seen;  // rank, forward, layer -> stage
    std::int64_t layer = 0;
    for (int s = 1; s < stages; ++s) {
      layer += plan_.stage_layers[static_cast<std::size_t>(s - 1)];
      const int before = schedule.rank_of(s - 1, shape), behind = schedule.rank_of(s, shape);
      if (before == behind) continue;
      for (const bool forward : {true, false}) {
        const int rank = forward ? behind : before, stage = forward ? s : s - 1;
        const auto [found, fresh] = seen.try_emplace({rank, forward, layer}, stage);
        if (fresh) continue;
        const int from = forward ? found->second : found->second + 1;
        problem("stage_layers", "no layer in virtual stages " + text(from) + " to " +
                                    text(from + stage - found->second - 1) + ", between two of " +
                                    "pipeline rank " + text(rank) + "; expected at least one");
        return;
      }
    }
  }

  // Optimizers that look at whole matrices, where these are in pieces.
  void check_optimizer() {
    const std::string& optimizer = plan_.optimizer;
    if (optimizer != "muon" && optimizer != "adafactor") return;
    const auto refuse = [&](const std::string& with) {
      not_yet(reading_.not_built, section_, "optimizer", optimizer + " with " + with);
    };
    if (!reading_.dp_kind.empty() && reading_.dp_kind != "ddp")
      refuse("dp_kind " + reading_.dp_kind);
    if (plan_.offload.optimizer) refuse("an offloaded optimizer");
    if (plan_.schedule == "pipedream") refuse("schedule pipedream");
    const std::int64_t tp = reading_.tp.value_or(1);
    if (optimizer == "adafactor" && tp > 1) refuse("tensor parallelism");
    if (optimizer == "muon" && tp > 1 && plan_.tp_kind != TensorKind::k1d)
      refuse(std::string(name(plan_.tp_kind)) + " tensor parallelism");
    if (optimizer == "muon" && context_.model && context_.model->num_key_value_heads % tp != 0)
      refuse("fewer key-value heads than tp ranks");
    if (context_.model && context_.model->num_experts > 0 && reading_.etp.value_or(1) > 1)
      refuse("experts split over etp");
  }

  // One pipeline rank runs forward and backward in turn, whatever schedule is named.
  void collapse_pipeline() {
    plan_.schedule = "1f1b";
    plan_.custom_schedule = nullptr;
    plan_.vpp = 1;
    plan_.overlap_p2p = false;
    plan_.scatter_gather = false;
    if (!context_.model) return;
    const std::int64_t layers = context_.model->num_hidden_layers;
    if (reading_.stage_layers) check_sum();
    plan_.stage_layers = {layers};
  }

  void check_sum() {
    const std::int64_t layers = context_.model->num_hidden_layers;
    const auto& given = *reading_.stage_layers;
    // Saturating: every entry is below 2^24, but a list may be long.
    const std::int64_t sum = std::accumulate(given.begin(), given.end(), std::int64_t{0});
    if (sum != layers) {
      problem("stage_layers",
              "the entries add up to " + text(sum) + ", the model has " + text(layers) + " layers");
    }
  }

  void resolve_layers(std::int64_t stages) {
    if (!context_.model) return;
    const std::int64_t layers = context_.model->num_hidden_layers;
    if (reading_.stage_layers) {
      const auto entries = static_cast<std::int64_t>(reading_.stage_layers->size());
      if (entries != stages) {
        problem("stage_layers", text(entries) + " entries; expected one for each of the " +
                                    text(stages) + " virtual stages (pp " + text(plan_.pp) +
                                    " x vpp " + text(plan_.vpp) + ")");
      }
      check_sum();
      plan_.stage_layers = *reading_.stage_layers;
      if (plan_.vocabulary == Vocabulary::kRedistributed)
        note("vocabulary", "stage_layers is given");
      return;
    }
    if (plan_.vocabulary == Vocabulary::kRedistributed && layers >= stages &&
        context_.sequence_length) {
      plan_.stage_layers = redistributed_layers(*context_.model, *context_.sequence_length, stages);
      return;
    }
    if (layers < stages && layers + 2 != stages) {
      problem(plan_.vpp > 1 ? "vpp" : "pp",
              "pp " + text(plan_.pp) + " x vpp " + text(plan_.vpp) + " = " + text(stages) +
                  " virtual stages for " + text(layers) +
                  " layers; expected at most as many, or stage_layers");
      return;
    }
    plan_.stage_layers = divided_layers(layers, stages);
  }

  void note_what_has_no_effect() {
    note_tensor_and_context();
    note_pipeline();
    note_data();
    if (plan_.recompute != Recompute::kFull) {
      note("recompute_layers", "recompute is not full");
      note("recompute_keep", "recompute is not full");
      plan_.recompute_layers = 0;
    }
    if (plan_.recompute != Recompute::kSelective)
      note("recompute_modules", "recompute is not selective");
    if (context_.model) {
      drop_missing_parts("recompute_modules", plan_.recomputed_parts);
      drop_missing_parts("recompute_keep", plan_.kept_parts);
    }
    if (plan_.moe.shared_overlap && plan_.recompute == Recompute::kSelective &&
        plan_.recomputed_parts.shared_experts) {
      // Megatron-LM refuses this too (transformer_config.py).
      problem("recompute_modules",
              "shared_experts do not go with plan.moe.shared_overlap: what is computed beside the "
              "exchange cannot be run again alone; expected one of the two");
    }
    note_depth();
    if (!context_.model) return;
    if (context_.model->num_experts > 0) {
      notes_.insert(notes_.end(), reading_.notes.begin(), reading_.notes.end());
      return;
    }
    for (const char* key : {"etp", "moe"}) note(key, "the model has no experts");
    if (reading_.ep.value_or(1) > 1) note("ep", "the model has no experts");
    plan_.ep = 1;
    plan_.etp = 1;
  }

  // Parts that no layer of the model has.
  void drop_missing_parts(const char* key, LayerParts& parts) {
    const Transformer& model = *context_.model;
    const auto drop = [&](bool& part, const char* word, const char* why) {
      if (part && section_.given(key)) {
        notes_.push_back("plan." + std::string(key) + " " + word + " has no effect: " + why);
      }
      part = false;
    };
    if (!model.latent_attention)
      drop(parts.up_projections, "mla_up_proj", "the model has no latent attention");
    if (model.num_experts == 0) {
      drop(parts.expert_activation, "moe_act", "the model has no experts");
      drop(parts.experts, "moe", "the model has no experts");
    }
    if (model.num_experts == 0 || model.experts.shared_intermediate_size == 0)
      drop(parts.shared_experts, "shared_experts", "the model has no shared experts");
  }

  void note_tensor_and_context() {
    if (reading_.tp == 1) {
      if (plan_.sequence_parallel) note("sequence_parallel", "tp is 1");
      plan_.sequence_parallel = false;
      plan_.tp_overlap = TensorOverlap::kNothing;
      plan_.tp_kind = TensorKind::k1d;
      for (const char* key : {"tp_overlap", "tp_kind", "tp_depth"}) note(key, "tp is 1");
    } else if (plan_.tp_kind != TensorKind::k2_5d) {
      note("tp_depth", "tp_kind is " + std::string(name(plan_.tp_kind)));
    }
    if (reading_.cp == 1) {
      for (const char* key : {"cp_kind", "cp_balance", "ulysses_degree"}) note(key, "cp is 1");
    } else if (reading_.cp) {
      const std::string kind(name(plan_.cp_kind));
      if (plan_.cp_kind != ContextParallelKind::kUlyssesRing)
        note("ulysses_degree", "cp_kind is " + kind);
      if (plan_.ulysses_degree == plan_.cp)
        note("cp_balance", "with Ulysses every rank sees whole sequences");
    }
  }

  void note_pipeline() {
    if (reading_.pp == 1) {
      for (const char* key : {"vpp", "vpp_group", "schedule", "overlap_p2p", "scatter_gather",
                              "vocabulary", "synchronous_optimizer"}) {
        note(key, "pp is 1");
      }
      plan_.synchronous_optimizer = true;
      plan_.vocabulary = Vocabulary::kLastStage;
      return;
    }
    if (reading_.schedule_deadlock) {
      notes_.push_back("plan.schedule " + plan_.schedule + ": " + *reading_.schedule_deadlock);
    }
    if (plan_.schedule != "interleaved") note("vpp_group", "the schedule is not interleaved");
    const Schedule* schedule = schedule_of(plan_);
    if (schedule != nullptr && schedule->asynchronous) {
      note("overlap_p2p", "the messages of " + schedule->name + " are always asynchronous");
    }
    // The framework's default is for the schedules that can.
    if (schedule != nullptr && !schedule->validates_afterwards) {
      if (!plan_.synchronous_optimizer)
        note("synchronous_optimizer", schedule->name + " has no post-validated optimizer step");
      plan_.synchronous_optimizer = true;
    }
    if (plan_.scatter_gather && reading_.tp == 1) {
      note("scatter_gather", "tp is 1");
      plan_.scatter_gather = false;
    } else if (plan_.scatter_gather && plan_.sequence_parallel) {
      note("scatter_gather", "sequence parallelism sends slices already");
      plan_.scatter_gather = false;
    }
  }

  void note_data() {
    const std::string& kind = reading_.dp_kind;
    if (kind != "horovod") note("cycle_time", "dp_kind is not horovod");
    if (kind == "ddp" || kind == "horovod") {
      note("overlap_param_gather", "dp_kind " + kind + " gathers no parameters");
      note("param_gather_dtype", "dp_kind " + kind + " gathers no parameters");
      note("shard", "dp_kind " + kind + " shards nothing");
      plan_.overlap_param_gather = false;
    }
    const bool torch = is_fsdp(plan_.dp_kind), sharded = shards_parameters(plan_.dp_kind);
    if (kind == "zero2" || sharded) {
      note("overlap_param_gather",
           "dp_kind " + kind +
               (kind == "zero2" ? " gathers after the update"
                                : " gathers before each use, as far ahead as prefetch says"));
      plan_.overlap_param_gather = false;
    }
    if (torch) {
      note("overlap_grad_reduce", "dp_kind " + kind + " reduces beside the backward pass");
      plan_.overlap_grad_reduce = true;
    }
    if (!torch)
      note("reshard_after_forward", "it is a choice of fsdp and hsdp alone");
    if (sharded) {
      for (const char* key : {"bucket", "bucket_elements"})
        note(key, "dp_kind " + kind + " reduces the gradients of a unit together");
      plan_.bucket_elements = std::nullopt;
      reading_.bucket = std::nullopt;
    }
    if (kind == "ddp" || kind == "horovod" || kind == "zero1" || kind == "zero2" ||
        kind == "distributed_optimizer") {
      note("prefetch", "dp_kind " + kind + " keeps the parameters whole");
    }
    if (!plan_.offload.activations) note("offload_layers", "no activations are offloaded");
    if (dp_ == 1 && reading_.cp == 1) {
      for (const char* key : {"overlap_grad_reduce", "overlap_param_gather"}) note(key, "dp is 1");
    }
  }

  // A whole stage is the most that can be recomputed.
  void note_depth() {
    if (plan_.recompute_layers == 0 || plan_.stage_layers.empty()) return;
    const std::int64_t most =
        *std::max_element(plan_.stage_layers.begin(), plan_.stage_layers.end());
    if (plan_.recompute_layers < most) return;
    if (plan_.recompute_layers > most) {
      notes_.push_back("plan.recompute_layers " + text(plan_.recompute_layers) +
                       " is more than the " + text(most) +
                       " layers of a stage: all are recomputed");
    }
    plan_.recompute_layers = 0;
  }

  PlanReading& reading_;
  ParallelPlan& plan_;
  const PlanContext& context_;
  JobSection& section_;
  JobSection& job_;
  std::vector<std::string>& notes_;
  std::optional<std::int64_t> dp_, micro_batches_;
};

}  // namespace

void resolve_plan(PlanReading& reading, const PlanContext& context, JobSection& section,
                  JobSection& job, std::vector<std::string>& notes) {
  Legality(reading, context, section, job, notes).resolve();
}

std::vector<std::int64_t> redistributed_layers(const Transformer& model,
                                               std::int64_t sequence_length, std::int64_t stages) {
  Transformer bare = model;
  bare.num_hidden_layers = 0;
  const double head = model_flops(bare, sequence_length, 1).count;
  const std::int64_t layers = model.num_hidden_layers;
  const double layer =
      (model_flops(model, sequence_length, 1).count - head) / static_cast<double>(layers);
  const double head_layers = head / layer;
  const double balanced = (static_cast<double>(layers) + head_layers) / static_cast<double>(stages);
  const auto last = static_cast<std::int64_t>(std::max(0.0, std::ceil(balanced - head_layers)));
  const std::int64_t others = stages - 1;
  std::vector<std::int64_t> result(static_cast<std::size_t>(stages), (layers - last) / others);
  result.back() = last;
  for (std::int64_t i = 0; i < (layers - last) % others; ++i) {
    ++result[static_cast<std::size_t>(stages - 2 - i)];
  }
  return result;
}

std::vector<std::int64_t> divided_layers(std::int64_t layers, std::int64_t stages) {
  std::vector<std::int64_t> result(static_cast<std::size_t>(stages), layers / stages);
  if (layers % stages == 0) return result;
  if ((layers + 2) % stages == 0) {
    std::fill(result.begin(), result.end(), (layers + 2) / stages);
    --result.front();
    --result.back();
    return result;
  }
  for (std::int64_t i = 0; i < layers % stages; ++i) ++result[static_cast<std::size_t>(i)];
  return result;
}

}  // namespace headway
