#include "sim/formats/deepspeed.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "sim/core/json_writer.hpp"
#include "sim/formats/resolved_values.hpp"

namespace headway {
namespace {

using Words = std::vector<std::string>;
using Pair = std::pair<std::string_view, std::string_view>;

// Keys that change no cost of a step, by section; "" is the file itself.
const Words kIgnoredTop = {"scheduler",
                           "gradient_clipping",
                           "steps_per_print",
                           "wall_clock_breakdown",
                           "dump_state",
                           "flops_profiler",
                           "tensorboard",
                           "wandb",
                           "csv_monitor",
                           "comet",
                           "monitor_config",
                           "elasticity",
                           "autotuning",
                           "checkpoint",
                           "comms_logger",
                           "data_efficiency",
                           "curriculum_learning",
                           "prescale_gradients",
                           "gradient_predivide_factor",
                           "zero_allow_untested_optimizer",
                           "zero_force_ds_cpu_optimizer",
                           "memory_breakdown",
                           "aio",
                           "seed",
                           "disable_allgather",
                           "fp32_allreduce",
                           "dataloader_drop_last",
                           "use_data_before_expert_parallel_",
                           "load_universal_checkpoint",
                           "timers",
                           "eigenvalue",
                           "data_sampling",
                           "nebula",
                           "graph_harvesting",
                           "hybrid_engine",
                           "progressive_layer_drop",
                           "train_steps"};
// Keys that do, and that a job cannot say.
const Words kLostTop = {"amp",
                        "sparse_gradients",
                        "sparse_attention",
                        "compression_training",
                        "compile",
                        "communication_data_type",
                        "communication_data_type_seq",
                        "zenflow",
                        "torch_autocast"};
const Words kIgnoredZero = {"allgather_partitions",
                            "contiguous_gradients",
                            "reduce_scatter",
                            "round_robin_gradients",
                            "sub_group_size",
                            "elastic_checkpoint",
                            "load_from_fp32_weights",
                            "ignore_unused_parameters",
                            "legacy_stage1",
                            "stage3_gather_16bit_weights_on_model_save",
                            "stage3_gather_fp16_weights_on_model_save",
                            "use_multi_rank_bucket_allreduce",
                            "use_all_reduce_for_fetch_params",
                            "memory_efficient_linear",
                            "override_module_apply",
                            "log_trace_cache_warnings",
                            "zero_quantized_nontrainable_weights",
                            "allgather_bucket_size",
                            "pipeline_loading_checkpoint"};
const Words kLostZero = {"stage3_max_live_parameters",
                         "stage3_max_reuse_distance",
                         "stage3_param_persistence_threshold",
                         "stage3_model_persistence_threshold",
                         "stage3_module_granularity_threshold",
                         "mics_shard_size",
                         "mics_hierarchical_params_gather",
                         "cpu_offload",
                         "cpu_offload_params",
                         "cpu_offload_use_pin_memory",
                         "zeropp_loco_param",
                         "module_granularity"};

class DeepSpeedImport {
 public:
  explicit DeepSpeedImport(const JsonNode& file) : root_(file, problems_) {}

  JobDraft draft() {
    draft_.set("software.framework", "deepspeed");
    read_batch();
    read_precision();
    read_zero();
    read_optimizer();
    read_parallelism();
    read_experts();
    read_checkpointing();
    finish(root_, "", kIgnoredTop, kLostTop);
    problems_.throw_if_any();
    return std::move(draft_);
  }

 private:
  // A number that may be "auto", and may be written 5e8.
  std::optional<std::int64_t> count(ObjectReader& reader, std::string_view key) {
    const auto node = reader.any(key);
    if (!node || is_auto(*node)) return std::nullopt;
    if (node->is_number()) {
      const double value = node->number();
      if (value >= 1 && value <= 1e15 && std::floor(value) == value)
        return static_cast<std::int64_t>(value);
    }
    reader.problem(key, node->text() + " is not allowed; expected a count or \"auto\"");
    return std::nullopt;
  }
  static bool is_auto(const JsonNode& node) { return node.is_string() && node.string() == "auto"; }

  static bool truth(ObjectReader& reader, std::string_view key) {
    const auto node = reader.any(key);
    if (!node || is_auto(*node)) return false;
    if (node->is_boolean()) return node->boolean();
    reader.problem(key, node->text() + " is not allowed; expected true, false or \"auto\"");
    return false;
  }

  void read_batch() {
    const auto step = count(root_, "train_batch_size");
    const auto micro = count(root_, "train_micro_batch_size_per_gpu");
    const auto accumulated = count(root_, "gradient_accumulation_steps");
    if (step) draft_.set("global_batch", *step);
    if (micro) draft_.set("plan.micro_batch", *micro);
    if (!step || !micro || !accumulated) return;
    if (*step % (*micro * *accumulated) != 0) {
      root_.problem("train_batch_size", std::to_string(*step) +
                                            " is no multiple of train_micro_batch_size_per_gpu x "
                                            "gradient_accumulation_steps, " +
                                            std::to_string(*micro * *accumulated));
    } else {
      draft_.set("plan.dp", *step / (*micro * *accumulated));
    }
  }

  bool enabled(std::string_view section, const Words& ignored) {
    const auto node = root_.object(section);
    if (!node) return false;
    ObjectReader reader(*node, problems_);
    const bool on = truth(reader, "enabled");
    finish(reader, std::string(section) + ".", ignored, {});
    return on;
  }

  void read_precision() {
    const Words scaling = {"auto_cast",
                           "loss_scale",
                           "loss_scale_window",
                           "initial_scale_power",
                           "hysteresis",
                           "min_loss_scale",
                           "consecutive_hysteresis",
                           "fp16_master_weights_and_grads",
                           "immediate_grad_update",
                           "check_grad_overflow",
                           "bf16_master_weights_and_grads",
                           "bf16_optimizer_states"};
    const bool fp16 = enabled("fp16", scaling);
    const bool bf16 = enabled("bf16", scaling) | enabled("bfloat16", scaling);
    if (fp16 && bf16) root_.problem("bf16", "enabled beside fp16; expected one of the two");
    draft_.set("precision", bf16 ? "bf16" : fp16 ? "fp16" : "fp32");
    if (const auto node = root_.object("data_types")) {
      ObjectReader reader(*node, problems_);
      if (const auto type = reader.choice("grad_accum_dtype", {"fp32", "fp16", "bf16"}))
        draft_.set("plan.grad_dtype", *type);
      finish(reader, "data_types.", {}, {});
    }
  }

  void read_zero() {
    const auto node = root_.object("zero_optimization");
    if (!node) {
      draft_.set("plan.dp_kind", "ddp");
      return;
    }
    ObjectReader zero(*node, problems_);
    const auto stage = zero.integer("stage", {.min = 0, .max = 3}).value_or(0);
    static constexpr std::string_view kKinds[] = {"ddp", "zero1", "zero2", "zero3"};
    const bool quantised =
        truth(zero, "zero_quantized_weights") | truth(zero, "zero_quantized_gradients");
    const auto secondary = count(zero, "zero_hpz_partition_size").value_or(1);
    draft_.set("plan.dp_kind", stage == 3 && (quantised || secondary > 1)
                                   ? std::string_view("zero++")
                                   : kKinds[stage]);
    if (secondary > 1) draft_.set("plan.shard", secondary);
    if (const auto bucket = count(zero, "reduce_bucket_size"))
      draft_.set("plan.bucket_elements", *bucket);
    if (const auto ahead = count(zero, "stage3_prefetch_bucket_size"); ahead && stage == 3)
      draft_.set("plan.prefetch", *ahead);
    // Overlap is on by itself in stage 3 alone.
    const bool says = zero.has("overlap_comm");
    draft_.set("plan.overlap_grad_reduce", says ? truth(zero, "overlap_comm") : stage == 3);
    Words offload;
    read_offload(zero, "offload_optimizer", "optimizer", offload);
    read_offload(zero, "offload_param", "parameters", offload);
    if (!offload.empty()) draft_.set("plan.offload", offload);
    finish(zero, "zero_optimization.", kIgnoredZero, kLostZero);
  }

  void read_offload(ObjectReader& zero, std::string_view key, const std::string& what,
                    Words& offload) {
    const auto node = zero.object(key);
    if (!node) return;
    ObjectReader reader(*node, problems_);
    const auto device = reader.choice("device", {"cpu", "nvme", "none"});
    if (device == "cpu") offload.push_back(what);
    if (device == "nvme") draft_.lose("zero_optimization." + std::string(key) + " to nvme");
    finish(reader, "zero_optimization." + std::string(key) + ".",
           {"nvme_path", "pin_memory", "buffer_count", "buffer_size", "max_in_cpu", "fast_init",
            "pipeline", "pipeline_read", "pipeline_write", "ratio"},
           {});
  }

  void read_optimizer() {
    const auto node = root_.object("optimizer");
    if (!node) return;
    ObjectReader reader(*node, problems_);
    const std::string kind = lower_case(reader.string("type").value_or("adamw"));
    static constexpr std::array<Pair, 6> kKinds = {{{"adam", "adamw"},
                                                    {"adamw", "adamw"},
                                                    {"sgd", "sgd"},
                                                    {"lion", "lion"},
                                                    {"muon", "muon"},
                                                    {"adafactor", "adafactor"}}};
    const auto found = std::find_if(kKinds.begin(), kKinds.end(),
                                    [&](const Pair& pair) { return pair.first == kind; });
    if (found != kKinds.end()) {
      draft_.set("plan.optimizer", found->second);
    } else {
      draft_.lose("optimizer.type " + kind);
    }
    finish(reader, "optimizer.", {"params", "legacy_fusion"}, {});
  }

  void read_degree(std::string_view section, std::string_view name, const std::string& key,
                   const Words& ignored) {
    const auto node = root_.object(section);
    if (!node) return;
    ObjectReader reader(*node, problems_);
    if (const auto degree = count(reader, name)) draft_.set(key, *degree);
    finish(reader, std::string(section) + ".", ignored, {});
  }

  void read_parallelism() {
    read_degree(
        "tensor_parallel", "autotp_size", "plan.tp",
        {"enabled", "dtype", "tp_overlap_comm", "tp", "injection_policy", "keep_module_on_host"});
    read_degree("pipeline", "stages", "plan.pp",
                {"partition", "seed_layers", "activation_checkpoint_interval", "pipe_partitioned",
                 "grad_partitioned", "use_reentrant"});
    if (const auto degree = count(root_, "sequence_parallel_size"); degree && *degree > 1) {
      draft_.set("plan.cp", *degree);
      draft_.set("plan.cp_kind", "ulysses");
    }
  }

  // {"moe": {...}}, also under "model_parallel" as some training stacks write it.
  void read_experts() {
    if (const auto node = root_.object("model_parallel")) {
      ObjectReader reader(*node, problems_);
      if (const auto moe = reader.object("moe")) read_experts(*moe, "model_parallel.moe.");
      finish(reader, "model_parallel.", {}, {});
    }
    if (const auto moe = root_.object("moe")) read_experts(*moe, "moe.");
  }

  void read_experts(const JsonNode& node, const std::string& section) {
    ObjectReader moe(node, problems_);
    const bool says = moe.has("enabled");
    if (!truth(moe, "enabled") && says) return;
    draft_.set("plan.moe.kind", "deepspeed");
    if (const auto degree = count(moe, "ep_size")) draft_.set("plan.ep", *degree);
    if (const auto experts = count(moe, "num_experts")) draft_.set("model.num_experts", *experts);
    if (const auto chosen = count(moe, "top_k")) draft_.set("model.num_experts_per_tok", *chosen);
    // deepspeed/moe/layer.py: capacity_factor 1.0 and drop_tokens unless told otherwise.
    draft_.set("plan.moe.capacity_factor",
               moe.number("capacity_factor", {.min = 0, .min_excluded = true}).value_or(1.0));
    draft_.set("plan.moe.drop", moe.boolean("drop_tokens").value_or(true));
    if (moe.boolean("use_residual").value_or(false)) draft_.lose(section + "use_residual");
    finish(moe, section,
           {"moe_param_group", "eval_capacity_factor", "min_capacity", "noisy_gate_policy",
            "use_rts", "use_tutel", "enable_expert_tensor_parallelism"},
           {});
  }

  void read_checkpointing() {
    const auto node = root_.object("activation_checkpointing");
    if (!node) return;
    ObjectReader reader(*node, problems_);
    const Words lost = {"partition_activations", "cpu_checkpointing"};
    for (const std::string& key : lost) {
      if (reader.boolean(key).value_or(false)) draft_.lose("activation_checkpointing." + key);
    }
    finish(reader, "activation_checkpointing.",
           {"contiguous_memory_optimization", "number_checkpoints",
            "synchronize_checkpoint_boundary", "profile"},
           {});
  }

  // What nobody asked for is ignored, lost or unknown.
  void finish(ObjectReader& reader, const std::string& section, const Words& ignored,
              const Words& lost) {
    for (const std::string& key : reader.unasked()) {
      if (std::find(ignored.begin(), ignored.end(), key) != ignored.end()) {
        draft_.ignore(section + key);
        reader.any(key);
      } else if (std::find(lost.begin(), lost.end(), key) != lost.end()) {
        draft_.lose(section + key);
        reader.any(key);
      }
    }
    reader.finish();
  }

  Problems problems_;
  ObjectReader root_;
  JobDraft draft_;
};

class DeepSpeedExport {
 public:
  DeepSpeedExport(const Job& job, const std::string& name) : values_(job), name_(name) {}

  std::string text() {
    writer_.begin_object();
    write_batch();
    write_precision();
    write_zero();
    write_optimizer();
    write_parallelism();
    writer_.end_object();
    refuse_the_rest();
    problems_.throw_if_any();
    return writer_.text();
  }

 private:
  void refuse(const std::string& key, const std::string& why) { problems_.add(name_, key, why); }

  void write_batch() {
    writer_.field("train_batch_size", values_.integer("global_batch").value_or(1))
        .field("train_micro_batch_size_per_gpu", values_.integer("plan.micro_batch").value_or(1))
        .field("gradient_accumulation_steps", values_.integer("plan.micro_batches").value_or(1));
  }

  void write_precision() {
    const std::string precision = values_.word("precision");
    if (precision == "bf16" || precision == "fp16") {
      writer_.key(precision).begin_object(true).field("enabled", true).end_object();
    } else if (precision != "fp32") {
      refuse("precision", "DeepSpeed's file has bf16, fp16 and fp32, not " + precision);
    }
    writer_.key("data_types").begin_object(true);
    writer_.field("grad_accum_dtype", std::string_view(values_.word("plan.grad_dtype")));
    writer_.end_object();
  }

  void write_zero() {
    static constexpr std::array<Pair, 5> kStages = {
        {{"ddp", "0"}, {"zero1", "1"}, {"zero2", "2"}, {"zero3", "3"}, {"zero++", "3"}}};
    const std::string kind = values_.word("plan.dp_kind");
    const auto stage = std::find_if(kStages.begin(), kStages.end(),
                                    [&](const Pair& pair) { return pair.first == kind; });
    if (stage == kStages.end()) {
      refuse("plan.dp_kind",
             "DeepSpeed has no " + kind + "; it has ddp, zero1, zero2, zero3 and zero++");
      return;
    }
    writer_.key("zero_optimization").begin_object().key("stage").raw(stage->second);
    if (const auto bucket = values_.integer("plan.bucket_elements"))
      writer_.field("reduce_bucket_size", *bucket);
    if (const auto ahead = values_.integer("plan.prefetch"))
      writer_.field("stage3_prefetch_bucket_size", *ahead);
    if (kind == "zero++") {
      writer_.field("zero_quantized_weights", true).field("zero_quantized_gradients", true);
      if (const auto shard = values_.integer("plan.shard"))
        writer_.field("zero_hpz_partition_size", *shard);
    }
    write_offload();
    writer_.field("overlap_comm", values_.truth("plan.overlap_grad_reduce")).end_object();
  }

  void write_offload() {
    for (const std::string& what : values_.words("plan.offload")) {
      if (what == "activations") {
        refuse("plan.offload", "DeepSpeed asks for activations off the device in the model's code");
        continue;
      }
      writer_.key(what == "optimizer" ? "offload_optimizer" : "offload_param");
      writer_.begin_object(true).field("device", "cpu").end_object();
    }
  }

  void write_optimizer() {
    const std::string kind = values_.word("plan.optimizer");
    writer_.key("optimizer").begin_object(true);
    writer_.field("type", std::string_view(kind == "adamw" ? "AdamW" : kind)).end_object();
  }

  void write_parallelism() {
    const auto tp = values_.integer("plan.tp").value_or(1),
               pp = values_.integer("plan.pp").value_or(1);
    if (tp > 1)
      writer_.key("tensor_parallel").begin_object(true).field("autotp_size", tp).end_object();
    if (pp > 1) writer_.key("pipeline").begin_object(true).field("stages", pp).end_object();
    if (pp > 1 && values_.word("plan.schedule") != "1f1b")
      refuse("plan.schedule", "DeepSpeed's pipeline engine plays 1f1b");
    if (const auto cp = values_.integer("plan.cp").value_or(1); cp > 1) {
      writer_.field("sequence_parallel_size", cp);
      if (values_.word("plan.cp_kind") != "ulysses")
        refuse("plan.cp_kind", "DeepSpeed has Ulysses alone");
    }
    if (values_.truth("plan.sequence_parallel"))
      refuse("plan.sequence_parallel", "DeepSpeed's tensor parallelism has none");
    if (values_.integer("plan.ep").value_or(1) > 1)
      refuse("plan.ep", "DeepSpeed asks for experts in the model's code, not in its file");
  }

  // The file has no word for these; each must be what DeepSpeed does by itself.
  void refuse_the_rest() {
    for (const auto& [key, usual] : std::vector<std::pair<std::string, std::string>>{
             {"plan.recompute", "none"}, {"plan.order", "tp-cp-ep-dp-pp"}}) {
      const std::string value = values_.word(key);
      if (value != usual && !value.empty())
        refuse(key, "DeepSpeed's file cannot ask for " + value + "; the model's code does");
    }
  }

  ResolvedValues values_;
  std::string name_;
  JsonWriter writer_;
  Problems problems_;
};

}  // namespace

JobDraft import_deepspeed(const JsonNode& file) { return DeepSpeedImport(file).draft(); }

std::string export_deepspeed(const Job& job, const std::string& name) {
  return DeepSpeedExport(job, name).text();
}

}  // namespace headway
