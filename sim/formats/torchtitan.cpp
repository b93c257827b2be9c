#include "sim/formats/torchtitan.hpp"

#define TOML_EXCEPTIONS 1
#include <toml++/toml.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <sstream>
#include <utility>

#include "sim/formats/resolved_values.hpp"
#include "sim/model/transformer.hpp"

namespace headway {
namespace {

using Words = std::vector<std::string>;
using Pair = std::pair<std::string_view, std::string_view>;

// Sections that change no cost of a step.
const Words kIgnoredSections = {
    "job",        "profiling", "metrics",           "optimizer",       "lr_scheduler",
    "checkpoint", "comm",      "memory_estimation", "fault_tolerance", "validation"};
const std::set<std::string> kIgnored = {
    "model.hf_assets_path",
    "model.tokenizer_path",
    "model.norm_type",
    "model.tokenizer_type",
    "model.print_after_conversion",
    "training.dataset",
    "training.dataset_path",
    "training.max_norm",
    "training.steps",
    "training.warmup_steps",
    "training.gc_freq",
    "training.gc_debug",
    "training.seed",
    "training.deterministic",
    "training.dtype",
    "training.mixed_precision_reduce",
    "compile.components",
    "parallelism.pipeline_parallel_microbatches",
    "experimental.pipeline_parallel_microbatches",
    "experimental.custom_import",
    "experimental.custom_args_module",
    "experimental.custom_model_path",
    "quantize.linear.float8.precompute_float8_dynamic_scale_for_fsdp",
    "quantize.linear.float8.filter_fqns",
    "quantize.linear.float8.emulate",
    "quantize.grouped_mm.float8.fqns",
    "quantize.grouped_mm.mx.fqns",
    "quantize.grouped_mm.mx.recipe_name",
    "quantize.linear.mx.filter_fqns",
    "quantize.linear.mx.mxfp8_dim1_cast_kernel_choice",
    "float8.filter_fqns",
    "float8.emulate",
    "float8.precompute_float8_dynamic_scale_for_fsdp",
    "float8.scaling_type_input",
    "float8.scaling_type_weight",
    "float8.scaling_type_grad_output",
    "activation_checkpoint.early_stop"};
const std::set<std::string> kLost = {
    "parallelism.enable_compiled_autograd",
    "experimental.enable_compiled_autograd",
    "parallelism.disable_loss_parallel",
    "training.enable_loss_parallel",
    "parallelism.pipeline_parallel_split_points",
    "experimental.pipeline_parallel_split_points",
    "parallelism.module_fqns_per_model_part",
    "activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns"};

// torchtitan's name of a schedule and ours (torch.distributed.pipelining.schedules).
constexpr std::array<Pair, 7> kSchedules = {{{"1F1B", "1f1b"},
                                             {"GPipe", "gpipe"},
                                             {"Interleaved1F1B", "interleaved"},
                                             {"LoopedBFS", "looped-bfs"},
                                             {"ZBVZeroBubble", "zb-v"},
                                             {"DualPipeV", "dualpipe-v"},
                                             {"PipelineScheduleSingle", "1f1b"}}};

// What embedding and head count as, in layers, and the virtual stages of a rank, where torchtitan
// is not told (its job configuration's defaults).
constexpr std::int64_t kLayersOfAnEnd = 1, kStagesByItself = 2;

// "llama3" "8B" is the preset "llama3-8b".
std::string preset_of(const std::string& family, const std::string& flavor) {
  std::string name = lower_case(family + "-" + flavor);
  std::replace(name.begin(), name.end(), '_', '-');
  return name == "deepseek-v3-671b" ? "deepseek-v3" : name;
}

class TorchtitanImport {
 public:
  TorchtitanImport(std::string_view text, const std::string& file) : file_(file) {
    try {
      std::ostringstream json;
      json << toml::json_formatter(toml::parse(text, file));
      flatten(JsonNode::parse_text(json.str(), file), "");
    } catch (const toml::parse_error& error) {
      const toml::source_position at = error.source().begin;
      throw InvalidInput(file, "",
                         "no TOML: " + std::string(error.description()) + " at line " +
                             std::to_string(at.line) + ", column " + std::to_string(at.column));
    }
  }

  JobDraft draft() {
    draft_.set("software.framework", "torchtitan");
    read_model();
    read_degrees();
    read_batch();
    read_data_parallelism();
    read_pipeline();
    read_precision();
    read_recomputation();
    judge_the_rest();
    problems_.throw_if_any();
    return std::move(draft_);
  }

 private:
  void flatten(const JsonNode& node, const std::string& key) {
    for (const std::string& name : node.keys()) {
      const std::string path = key.empty() ? name : key + "." + name;
      const JsonNode value = *node.find(name);
      if (value.is_object()) {
        flatten(value, path);
      } else {
        values_.emplace(path, value);
      }
    }
  }

  // A value by its name in one of the sections it has lived in.
  std::optional<JsonNode> find(const std::string& name, const Words& sections) {
    std::optional<JsonNode> found;
    for (const std::string& section : sections) {
      const auto at = values_.find(section + "." + name);
      if (at == values_.end()) continue;
      asked_.insert(at->first);
      found = at->second;
    }
    return found;
  }
  void wrong(const JsonNode& node, const std::string& expected) {
    problems_.add(file_, node.pointer(), node.text() + " is not allowed; expected " + expected);
  }
  std::optional<std::int64_t> integer(const std::string& name, const Words& sections) {
    const auto node = find(name, sections);
    if (!node) return std::nullopt;
    if (node->is_integer() && node->integer() >= -1) return node->integer();
    wrong(*node, "an integer");
    return std::nullopt;
  }
  bool truth(const std::string& name, const Words& sections) {
    const auto node = find(name, sections);
    if (!node) return false;
    if (!node->is_boolean()) wrong(*node, "true or false");
    return node->is_boolean() && node->boolean();
  }
  std::string word(const std::string& name, const Words& sections) {
    const auto node = find(name, sections);
    if (!node) return "";
    if (!node->is_string()) wrong(*node, "a string");
    return node->is_string() ? node->string() : "";
  }

  void read_model() {
    const std::string family = word("name", {"model"}), flavor = word("flavor", {"model"});
    if (family.empty() || flavor.empty()) return;
    const std::string preset = preset_of(family, flavor);
    model_ = preset;
    if (transformer_preset(preset)) {
      draft_.set("model", preset);
    } else {
      draft_.lose("model " + family + " " + flavor + ": no preset " + preset);
    }
  }

  void read_degrees() {
    const auto degree = [&](const std::string& name, const std::string& key) {
      const auto value = integer(name, {"parallelism", "training", "experimental"});
      if (value && *value == 0)
        wrong(*find(name, {"parallelism", "training", "experimental"}), "a degree from 1");
      if (value && *value > 1) draft_.set("plan." + key, *value);
      return value.value_or(1);
    };
    // torchtitan's tensor parallelism shards the sequence between its blocks.
    if (degree("tensor_parallel_degree", "tp") > 1) draft_.set("plan.sequence_parallel", true);
    pp_ = degree("pipeline_parallel_degree", "pp");
    degree("expert_parallel_degree", "ep");
    if (const auto etp = integer("expert_tensor_parallel_degree", {"parallelism"});
        etp && draft_.has("plan.ep"))
      draft_.set("plan.etp", *etp);
    const std::string rotation =
        word("context_parallel_rotate_method", {"parallelism", "experimental"});
    if (degree("context_parallel_degree", "cp") > 1)
      draft_.set("plan.cp_kind", rotation == "alltoall" ? "ring" : "allgather");
    if (truth("enable_async_tensor_parallel", {"parallelism", "experimental"}) &&
        draft_.has("plan.tp"))
      draft_.set("plan.tp_overlap", "ring");
  }

  void read_batch() {
    const auto local = integer("local_batch_size", {"training"});
    const auto old_local = integer("batch_size", {"training"});
    const auto micro =
        integer("pipeline_parallel_microbatch_size", {"parallelism", "experimental"});
    // With a pipeline the batch of a rank is cut into micro-batches.
    const auto of_rank = local ? local : old_local;
    if (pp_ > 1) {
      draft_.set("plan.micro_batch", std::max<std::int64_t>(1, micro.value_or(1)));
    } else if (of_rank && *of_rank > 0) {
      draft_.set("plan.micro_batch", *of_rank);
    }
    if (const auto length = integer("seq_len", {"training"}); length && *length > 0)
      draft_.set("sequence_length", *length);
    const auto global = integer("global_batch_size", {"training"});
    if (global && *global > 0) draft_.set("global_batch", *global);
  }

  void read_data_parallelism() {
    const Words homes = {"parallelism", "training", "experimental"};
    const auto replicas = integer("data_parallel_replicate_degree", homes).value_or(1);
    const auto shards = integer("data_parallel_shard_degree", homes).value_or(-1);
    if (replicas > 1 && shards != 1) {
      draft_.set("plan.dp_kind", "hsdp");
      if (shards > 0) draft_.set("plan.shard", shards);
    } else {
      draft_.set("plan.dp_kind", replicas > 1 ? "ddp" : "fsdp");
    }
    // "default" keeps the gathered parameters where a pipeline would gather them for each
    // micro-batch.
    const std::string reshard = word("fsdp_reshard_after_forward", {"parallelism"});
    if (replicas == 1 || shards != 1)
      draft_.set("plan.reshard_after_forward",
                 reshard == "always" || (reshard != "never" && pp_ == 1));
    if (truth("enable_cpu_offload", {"training"}))
      draft_.set("plan.offload", Words{"optimizer", "parameters"});
  }

  void read_pipeline() {
    const Words homes = {"parallelism", "experimental"};
    const std::string name = word("pipeline_parallel_schedule", homes);
    const std::string csv = word("pipeline_parallel_schedule_csv", homes);
    const auto per_stage = integer("pipeline_parallel_layers_per_stage", homes);
    const std::int64_t less =
        integer("pipeline_parallel_first_stage_less_layers", homes).value_or(kLayersOfAnEnd) +
        integer("pipeline_parallel_last_stage_less_layers", homes).value_or(kLayersOfAnEnd);
    if (pp_ == 1) return;
    if (!csv.empty()) {
      draft_.set("plan.schedule", csv);
      return;
    }
    const auto found = std::find_if(kSchedules.begin(), kSchedules.end(),
                                    [&](const Pair& pair) { return pair.first == name; });
    if (found != kSchedules.end()) {
      draft_.set("plan.schedule", found->second);
    } else if (!name.empty()) {
      draft_.lose("pipeline_parallel_schedule " + name);
    }
    read_virtual_stages(name, per_stage, less);
  }

  // torchtitan's pipeline_parallel.py: as many virtual stages as these layers fill, the ends'
  // counted; two a rank where it is not told and the schedule has several.
  void read_virtual_stages(const std::string& schedule, std::optional<std::int64_t> per_stage,
                           std::int64_t less) {
    if (schedule != "Interleaved1F1B" && schedule != "LoopedBFS") return;
    if (!per_stage) {
      draft_.set("plan.vpp", kStagesByItself);
      return;
    }
    const auto model = transformer_preset(model_);
    const std::int64_t layers = model ? model->num_hidden_layers + less : 0;
    const std::int64_t stages = (layers + *per_stage - 1) / std::max<std::int64_t>(1, *per_stage);
    if (stages > 0 && stages % pp_ == 0) {
      draft_.set("plan.vpp", stages / pp_);
    } else {
      draft_.lose("pipeline_parallel_layers_per_stage " + std::to_string(*per_stage) +
                  ": give plan.vpp");
    }
  }

  void read_precision() {
    const std::string parameters = word("mixed_precision_param", {"training"});
    std::string precision = parameters == "float32" ? "fp32" : "bf16";
    bool fp8 = truth("enable_float8_linear", {"float8"}), mx = false;
    if (const auto converters = find("converters", {"model"});
        converters && converters->is_array()) {
      for (const JsonNode& converter : converters->elements()) {
        if (!converter.is_string()) continue;
        fp8 |= converter.string().find("float8") != std::string::npos;
        mx |= converter.string().find("mx") != std::string::npos;
      }
    }
    const std::string recipe = word("recipe_name", {"float8", "quantize.linear.float8"});
    word("recipe_name", {"mx", "quantize.linear.mx"});
    const bool gathers =
        truth("enable_fsdp_float8_all_gather", {"float8", "quantize.linear.float8"});
    if (fp8) precision = "fp8-current";
    if (fp8 && recipe.starts_with("rowwise"))
      draft_.lose("float8 recipe " + recipe + ": scaled per tensor");
    if (mx) precision = "mxfp8";
    draft_.set("precision", precision);
    if (fp8 && gathers) draft_.set("plan.param_gather_dtype", "fp8");
    const bool compiled = truth("enable", {"compile"}) | truth("compile", {"training"});
    draft_.set("software.compile", compiled);
  }

  void read_recomputation() {
    std::string mode = word("mode", {"activation_checkpoint"});
    if (mode.empty()) mode = "selective";  // torchtitan's default
    const std::string option = word("selective_ac_option", {"activation_checkpoint"});
    if (mode == "selective" && option != "op") {
      const std::string every = option.empty() ? "2" : option;
      draft_.lose("selective_ac_option \"" + every + "\": every " + every +
                  ". layer is recomputed; taken for none");
      mode = "none";
    }
    draft_.set("plan.recompute", mode);
  }

  void judge_the_rest() {
    for (const auto& [key, value] : values_) {
      if (asked_.contains(key)) continue;
      const std::string section = key.substr(0, key.find('.'));
      const bool ignored = kIgnored.contains(key) ||
                           std::find(kIgnoredSections.begin(), kIgnoredSections.end(), section) !=
                               kIgnoredSections.end();
      if (ignored) {
        draft_.ignore(key);
      } else if (kLost.contains(key)) {
        draft_.lose(key);
      } else {
        problems_.add(file_, value.pointer(), "no key of torchtitan");
      }
    }
  }

  std::string file_;
  std::map<std::string, JsonNode> values_;
  std::set<std::string> asked_;
  std::int64_t pp_ = 1;
  std::string model_;  // the preset's name
  Problems problems_;
  JobDraft draft_;
};

class TorchtitanExport {
 public:
  TorchtitanExport(const Job& job, const std::string& name) : values_(job), name_(name) {}

  std::string text() {
    const std::string body =
        model() + training() + parallelism() + recomputation() + quantisation();
    refuse_the_rest();
    problems_.throw_if_any();
    return body;
  }

 private:
  void refuse(const std::string& key, const std::string& why) { problems_.add(name_, key, why); }
  std::int64_t count(const std::string& key) { return values_.integer(key).value_or(1); }
  static std::string line(const std::string& name, const std::string& value) {
    return name + " = " + value + "\n";
  }
  static std::string line(const std::string& name, std::int64_t value) {
    return line(name, std::to_string(value));
  }
  static std::string quoted(std::string_view text) { return "\"" + std::string(text) + "\""; }

  // torchtitan names its models; sizes of one's own are Python.
  std::string model() {
    const std::string name = values_.word("model.name");
    const std::size_t dash = name.rfind('-');
    static const Words kFamilies = {"llama3", "qwen3", "deepseek"};
    const std::string family = name.substr(0, dash);
    if (dash == std::string::npos ||
        std::find(kFamilies.begin(), kFamilies.end(), family) == kFamilies.end()) {
      refuse("model",
             "torchtitan has no " + name + "; it has its own llama3, qwen3 and deepseek_v3");
      return "";
    }
    std::string flavor = name.substr(dash + 1);
    std::transform(flavor.begin(), flavor.end(), flavor.begin(),
                   [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    const bool v3 = name == "deepseek-v3";
    return "[model]\n" + line("name", quoted(v3 ? "deepseek_v3" : family)) +
           line("flavor", quoted(v3 ? "671B" : flavor)) + converters() + "\n";
  }

  std::string training() {
    const std::int64_t micro = count("plan.micro_batch"), micros = count("plan.micro_batches");
    const bool pipelined = count("plan.pp") > 1;
    std::string text = "[training]\n";
    text += line("local_batch_size", pipelined ? micro * micros : micro);
    text += line("global_batch_size", count("global_batch"));
    text += line("seq_len", count("sequence_length"));
    text += offload();
    const std::string precision = values_.word("precision");
    text += line("mixed_precision_param", quoted(precision == "fp32" ? "float32" : "bfloat16"));
    if (precision == "fp16")
      refuse("precision", "torchtitan trains in bf16, fp32 and fp8, not fp16");
    if (values_.word("plan.grad_dtype") != "fp32")
      refuse("plan.grad_dtype", "torchtitan reduces gradients in fp32");
    return text + "\n";
  }

  std::string offload() {
    Words what = values_.words("plan.offload");
    if (what.empty()) return "";
    std::sort(what.begin(), what.end());
    if (what != Words{"optimizer", "parameters"})
      refuse("plan.offload", "torchtitan offloads optimizer and parameters together, or nothing");
    return line("enable_cpu_offload", "true");
  }

  std::string parallelism() {
    std::string text = "[parallelism]\n";
    const std::string kind = values_.word("plan.dp_kind");
    const std::int64_t dp = count("plan.dp"), shard = values_.integer("plan.shard").value_or(dp);
    if (kind != "fsdp" && kind != "hsdp" && kind != "ddp")
      refuse("plan.dp_kind", "torchtitan has no " + kind + "; it has fsdp, hsdp and ddp");
    const std::int64_t shards = kind == "ddp" ? 1 : kind == "hsdp" ? shard : dp;
    text += line("data_parallel_replicate_degree", dp / std::max<std::int64_t>(1, shards));
    text += line("data_parallel_shard_degree", shards);
    if (kind != "ddp")
      text += line("fsdp_reshard_after_forward",
                   quoted(values_.truth("plan.reshard_after_forward") ? "always" : "never"));
    text += line("tensor_parallel_degree", count("plan.tp"));
    if (count("plan.tp") > 1 && !values_.truth("plan.sequence_parallel"))
      refuse("plan.sequence_parallel",
             "torchtitan's tensor parallelism always shards the sequence");
    if (values_.word("plan.tp_overlap") == "ring")
      text += line("enable_async_tensor_parallel", "true");
    text += line("context_parallel_degree", count("plan.cp"));
    text += line("pipeline_parallel_degree", count("plan.pp"));
    if (count("plan.pp") > 1) text += pipeline();
    if (count("plan.ep") > 1) text += line("expert_parallel_degree", count("plan.ep"));
    return text + "\n";
  }

  std::string pipeline() {
    const std::string schedule = values_.word("plan.schedule");
    const auto found = std::find_if(kSchedules.begin(), kSchedules.end(),
                                    [&](const Pair& pair) { return pair.second == schedule; });
    if (found == kSchedules.end()) {
      refuse("plan.schedule", "torchtitan has no " + schedule);
      return "";
    }
    return line("pipeline_parallel_schedule", quoted(found->first)) +
           line("pipeline_parallel_microbatch_size", count("plan.micro_batch")) +
           virtual_stages(schedule);
  }

  std::string virtual_stages(const std::string& schedule) {
    const std::int64_t vpp = count("plan.vpp");
    if ((schedule != "interleaved" && schedule != "looped-bfs") || vpp == kStagesByItself)
      return "";
    const std::int64_t stages = count("plan.pp") * vpp;
    const std::int64_t layers = count("model.num_hidden_layers") + 2 * kLayersOfAnEnd;
    const std::int64_t per_stage = (layers + stages - 1) / stages;
    if ((layers + per_stage - 1) / per_stage != stages) {
      refuse("plan.vpp", "no pipeline_parallel_layers_per_stage makes " + std::to_string(stages) +
                             " virtual stages of them");
    }
    return line("pipeline_parallel_layers_per_stage", per_stage);
  }

  std::string recomputation() {
    const std::string kind = values_.word("plan.recompute");
    std::string text = "[activation_checkpoint]\n" + line("mode", quoted(kind));
    if (kind == "selective") text += line("selective_ac_option", quoted("op"));
    if (values_.integer("plan.recompute_layers").value_or(0) > 0)
      refuse("plan.recompute_layers", "torchtitan recomputes every layer or every n-th");
    return text + "\n";
  }

  // A converter of the model, with its own section where parameters are gathered in fp8.
  std::string converters() {
    const std::string precision = values_.word("precision");
    if (precision == "mxfp8") return line("converters", "[\"mx\"]");
    if (!precision.starts_with("fp8")) return "";
    if (precision != "fp8-current")
      refuse("precision", "torchtitan scales fp8 per tensor as it comes; not " + precision);
    return line("converters", "[\"float8\"]");
  }

  std::string quantisation() {
    if (values_.word("plan.param_gather_dtype") != "fp8") return "";
    return "[quantize.linear.float8]\n" + line("enable_fsdp_float8_all_gather", "true");
  }

  void refuse_the_rest() {
    if (values_.word("plan.optimizer") != "adamw")
      refuse("plan.optimizer", "the export knows torchtitan's AdamW alone");
    if (values_.word("plan.order") != "tp-cp-ep-dp-pp")
      refuse("plan.order", "torchtitan places ranks tp-cp-ep-dp-pp");
  }

  ResolvedValues values_;
  std::string name_;
  Problems problems_;
};

}  // namespace

JobDraft import_torchtitan(std::string_view text, const std::string& file) {
  return TorchtitanImport(text, file).draft();
}

std::string export_torchtitan(const Job& job, const std::string& name) {
  return TorchtitanExport(job, name).text();
}

}  // namespace headway
