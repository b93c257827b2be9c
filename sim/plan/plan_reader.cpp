#include "sim/plan/plan_reader.hpp"

#include <algorithm>
#include <utility>

#include "sim/core/file.hpp"
#include "sim/program/pipeline/schedule_csv.hpp"
#include "sim/program/schedule.hpp"

namespace headway {
namespace {

using Words = std::vector<std::string>;

// Every schedule that a job may name; those without a leaf in program/pipeline are not built yet.
const Words schedule_words = {"1f1b",     "gpipe",      "interleaved", "looped-bfs", "pipedream",
                              "zb-h1",    "zb-h2",      "zb-v",        "v-half",     "v-min",
                              "dualpipe", "dualpipe-v", "chimera"};
const Words dp_kind_words = {"ddp",  "horovod", "zero1", "distributed_optimizer", "zero2", "zero3",
                             "fsdp", "hsdp",    "zero++"};
const Words module_words = {"core_attn", "core_attention", "layernorm", "mla_up_proj",
                            "mlp",       "moe_act",        "moe",       "shared_experts"};
const Words axis_names = {"tp", "cp", "ep", "dp", "pp"};

class PlanReader {
 public:
  explicit PlanReader(JobSection& section) : section_(section) {}

  PlanReading read() {
    read_degrees();
    read_tensor_parallelism();
    read_context_parallelism();
    read_schedule();
    read_data_parallelism();
    read_state();
    read_recomputation();
    read_vocabulary();
    read_experts();
    read_order();
    for (const std::string& key : section_.open_keys()) {
      section_.problem(key, "is left open; expected a value (headway plan chooses one)");
    }
    return std::move(reading_);
  }

 private:
  void refuse(std::string_view key, std::string rule) {
    not_yet(reading_.not_built, section_, key, std::move(rule));
  }
  std::optional<std::int64_t> degree(std::string_view key) {
    return section_.integer(key, {.min = 1, .max = kLargestDegree}, 1);
  }

  void read_degrees() {
    reading_.tp = degree("tp");
    reading_.pp = degree("pp");
    reading_.cp = degree("cp");
    reading_.ep = degree("ep");
    reading_.dp = section_.optional_integer("dp", {.min = 1, .max = kLargestDegree});
    reading_.etp =
        section_.integer("etp", {.min = 1, .max = kLargestDegree}, reading_.tp.value_or(1));
    reading_.micro_batch = section_.integer("micro_batch", {.min = 1, .max = kLargestCount}, 1);
  }

  void read_tensor_parallelism() {
    ParallelPlan& plan = reading_.plan;
    const auto kind = section_.choice("tp_kind", {"1d", "2d", "2.5d", "3d"}, "1d");
    reading_.tp_depth = section_.optional_integer("tp_depth", {.min = 1, .max = kLargestDegree});
    if (kind == "2d") plan.tp_kind = TensorKind::k2d;
    if (kind == "2.5d") plan.tp_kind = TensorKind::k2_5d;
    if (kind == "3d") plan.tp_kind = TensorKind::k3d;
    if (kind == "3d" && reading_.tp.value_or(1) > 1) refuse("tp_kind", "3d tensor parallelism");
    plan.sequence_parallel = section_.boolean("sequence_parallel", false).value_or(false);
    const auto overlap = section_.choice("tp_overlap", {"none", "bulk", "ring"}, "none");
    if (overlap == "bulk") plan.tp_overlap = TensorOverlap::kBulk;
    if (overlap == "ring") plan.tp_overlap = TensorOverlap::kRing;
  }

  void read_context_parallelism() {
    ParallelPlan& plan = reading_.plan;
    const auto kind =
        section_.choice("cp_kind", {"ring", "ulysses", "allgather", "ulysses+ring"}, "ring");
    if (kind == "ulysses") plan.cp_kind = ContextParallelKind::kUlysses;
    if (kind == "allgather") plan.cp_kind = ContextParallelKind::kAllGather;
    if (kind == "ulysses+ring") plan.cp_kind = ContextParallelKind::kUlyssesRing;
    const auto balance =
        section_.choice("cp_balance", {"zigzag", "contiguous", "striped"}, "zigzag");
    plan.cp_balance = token_order_named(balance.value_or("zigzag")).value_or(TokenOrder::kZigzag);
    reading_.ulysses_degree =
        section_.optional_integer("ulysses_degree", {.min = 1, .max = kLargestDegree});
  }

  void read_schedule() {
    const auto word = section_.string("schedule", "1f1b");
    const bool known = word && std::find(schedule_words.begin(), schedule_words.end(), *word) !=
                                   schedule_words.end();
    if (word && is_path(*word, ".csv")) {
      read_schedule_file(*word);
    } else if (word && !known) {
      std::string message = "\"" + *word + "\" is not allowed; expected " + any_of(schedule_words) +
                            ", or a path to a schedule CSV";
      const std::string near = nearest(*word, schedule_words);
      if (!near.empty()) message += "; did you mean \"" + near + "\"?";
      section_.problem("schedule", std::move(message));
    } else if (word) {
      reading_.schedule = word;
      const Schedule* schedule = find_schedule(*word);
      // On one pipeline rank every schedule is the same.
      if ((schedule == nullptr || !schedule->lowered) && reading_.pp.value_or(2) > 1)
        refuse("schedule", *word);
    }
    reading_.vpp = section_.optional_integer("vpp", {.min = 1, .max = kLargestCount});
    reading_.vpp_group = section_.optional_integer("vpp_group", {.min = 1, .max = kLargestCount});
    reading_.stage_layers =
        section_.optional_integers("stage_layers", {.min = 0, .max = kLargestCount});
    reading_.plan.overlap_p2p = section_.boolean("overlap_p2p", false).value_or(false);
    reading_.plan.scatter_gather = section_.boolean("scatter_gather", false).value_or(false);
  }

  // Where it deadlocks it is still a schedule: that is found by whoever plays it.
  void read_schedule_file(const std::string& path) {
    std::string text;
    try {
      text = read_file(path);
    } catch (const InvalidInput& error) {
      section_.problem("schedule", error.what());
      return;
    }
    CsvSchedule read = parse_schedule_csv(text, path);
    for (const ScheduleFault& fault : read.faults) {
      if (fault.deadlock) {
        reading_.schedule_deadlock = to_text(fault);
      } else {
        section_.problem("schedule", path + ": " + to_text(fault));
      }
    }
    if (read.schedule == nullptr) return;
    reading_.schedule = path;
    reading_.plan.custom_schedule = std::move(read.schedule);
  }

  void read_data_parallelism() {
    ParallelPlan& plan = reading_.plan;
    const auto kind = section_.choice("dp_kind", dp_kind_words, "ddp");
    reading_.dp_kind = kind.value_or("");
    for (const DataParallelKind each :
         {DataParallelKind::kDdp, DataParallelKind::kHorovod, DataParallelKind::kZero1,
          DataParallelKind::kDistributedOptimizer, DataParallelKind::kZero2,
          DataParallelKind::kZero3, DataParallelKind::kZeroPlusPlus, DataParallelKind::kFsdp,
          DataParallelKind::kHsdp}) {
      if (kind && *kind == name(each)) plan.dp_kind = each;
    }
    reading_.shard = section_.optional_integer("shard", {.min = 1, .max = kLargestDegree});
    plan.bucket_elements =
        section_.optional_integer("bucket_elements", {.min = 1, .max = std::int64_t{1} << 40});
    reading_.bucket = section_.optional_bytes("bucket");
    if (section_.given("bucket") && section_.given("bucket_elements")) {
      section_.problem("bucket", "given beside bucket_elements; expected one of the two");
    }
    // The framework's size in bytes gives way to the job's in elements.
    if (section_.given("bucket_elements") && !section_.given("bucket")) reading_.bucket.reset();
    if (reading_.bucket && reading_.bucket->count == 0)
      section_.problem("bucket", "a bucket of 0 bytes");
    reading_.cycle_time = section_.optional_time("cycle_time");
    plan.overlap_grad_reduce = section_.boolean("overlap_grad_reduce", false).value_or(false);
    plan.overlap_param_gather = section_.boolean("overlap_param_gather", false).value_or(false);
    plan.reshard_after_forward = section_.boolean("reshard_after_forward", true).value_or(true);
    // PyTorch keeps at most two gathers in flight (_FreeEventQueue): the unit in use and the next
    // one. DeepSpeed's stage3_prefetch_bucket_size is 5e8 in its documentation.
    constexpr std::int64_t kUnitsAhead = 1, kElementsAhead = 500000000;
    const std::int64_t ahead = kind == "zero3" || kind == "zero++" ? kElementsAhead : kUnitsAhead;
    plan.prefetch = section_.integer("prefetch", {.min = 0, .max = std::int64_t{1} << 40}, ahead)
                        .value_or(ahead);
  }

  void read_state() {
    ParallelPlan& plan = reading_.plan;
    if (section_.stated("grad_dtype")) {
      reading_.grad_dtype = section_.choice("grad_dtype", {"fp32", "bf16", "fp16", "fp64"}, "fp32");
    }
    const auto gather =
        section_.choice("param_gather_dtype", {"bf16", "fp16", "fp32", "fp8", "fp4"}, "");
    if (section_.stated("param_gather_dtype")) reading_.param_gather_dtype = gather;
    if (gather == "fp4") refuse("param_gather_dtype", *gather + " parameter gather");
    const auto optimizer =
        section_.choice("optimizer", {"adamw", "adafactor", "sgd", "lion", "muon"}, "adamw");
    plan.optimizer = optimizer.value_or("adamw");
    const auto offload =
        section_.optional_words("offload", {"optimizer", "parameters", "activations"});
    for (const std::string& word : offload.value_or(Words{})) {
      plan.offload.optimizer = plan.offload.optimizer || word == "optimizer";
      plan.offload.parameters = plan.offload.parameters || word == "parameters";
      plan.offload.activations = plan.offload.activations || word == "activations";
    }
    plan.offload.layers =
        section_.optional_integer("offload_layers", {.min = 0, .max = kLargestCount}).value_or(0);
    plan.synchronous_optimizer = section_.boolean("synchronous_optimizer", true).value_or(true);
  }

  void read_recomputation() {
    ParallelPlan& plan = reading_.plan;
    const auto word = section_.choice("recompute", {"none", "selective", "full"}, "none");
    plan.recompute = word == "full"        ? Recompute::kFull
                     : word == "selective" ? Recompute::kSelective
                                           : Recompute::kNothing;
    plan.recompute_layers =
        section_.optional_integer("recompute_layers", {.min = 0, .max = kLargestCount}).value_or(0);
    const auto modules = section_.optional_words("recompute_modules", module_words);
    const auto keep = section_.optional_words("recompute_keep", module_words);
    // Selective recomputation without a list is that of the attention core.
    if (modules && plan.recompute == Recompute::kSelective) {
      plan.recomputed_parts = layer_parts(*modules);
    }
    if (keep && plan.recompute == Recompute::kFull) {
      plan.kept_parts = layer_parts(*keep);
    }
  }

  static LayerParts layer_parts(const Words& words) {
    LayerParts parts;
    for (const std::string& word : words) {
      if (word == "core_attn" || word == "core_attention") parts.core_attention = true;
      if (word == "layernorm") parts.norms = true;
      if (word == "mlp") parts.mlp = true;
      if (word == "mla_up_proj") parts.up_projections = true;
      if (word == "moe_act") parts.expert_activation = true;
      if (word == "shared_experts") parts.shared_experts = true;
      if (word == "moe") parts.experts = true;
    }
    return parts;
  }

  void read_vocabulary() {
    const auto word = section_.choice(
        "vocabulary", {"last-stage", "redistributed", "parallel-1", "parallel-2", "interlaced"},
        "last-stage");
    for (const Vocabulary each : {Vocabulary::kRedistributed, Vocabulary::kParallelTwoBarriers,
                                  Vocabulary::kParallelOneBarrier, Vocabulary::kInterlaced}) {
      if (word && *word == name(each)) reading_.plan.vocabulary = each;
    }
  }

  // A model with experts and no `moe` is Megatron's, dropless and uniform.
  void read_experts() {
    const auto node = section_.optional_object("moe");
    if (!node) return;
    ObjectReader moe(*node, section_.problems());
    ExpertPlan& plan = reading_.plan.moe;
    const auto refuse_key = [&](const std::string& rule) { reading_.expert_rules.push_back(rule); };
    const auto kind =
        moe.choice("kind", {"megatron", "gshard", "switch", "glam", "deepspeed", "deepseek"});
    if (kind) set_expert_kind(*kind);
    plan.capacity_factor =
        moe.number("capacity_factor", {.min = 0, .max = 1e6, .min_excluded = true});
    const auto drop = moe.boolean("drop");
    // Kinds of fixed shapes have a capacity always: GShard's and GLaM's room for an even share,
    // Switch Transformer's a quarter more (arXiv 2101.03961, table 1), DeepSpeed's default.
    const bool fixed = plan.kind != ExpertKind::kMegatron && plan.kind != ExpertKind::kDeepseek;
    if (drop == false && (plan.capacity_factor || fixed)) {
      refuse_key("a capacity whose overflow is not dropped");
    } else if (!plan.capacity_factor && fixed) {
      plan.capacity_factor = plan.kind == ExpertKind::kSwitch ? 1.25 : 1.0;
    } else if (drop == true && !plan.capacity_factor) {
      plan.capacity_factor = 1.0;
      reading_.notes.push_back("plan.moe.drop without a capacity_factor: capacity_factor 1");
    }
    plan.auxiliary_loss = moe.boolean("aux_loss").value_or(true);
    const auto dispatch = moe.choice("dispatch", {"alltoall", "allgather", "deepep", "hybridep"});
    if (dispatch == "deepep") plan.dispatch = Dispatch::kDeepEp;
    if (dispatch == "hybridep") plan.dispatch = Dispatch::kHybridEp;
    if (dispatch == "allgather") plan.dispatch = Dispatch::kAllGather;
    plan.dispatch_in_8_bits = moe.choice("dispatch_dtype", {"bf16", "fp8"}) == "fp8";
    plan.nodes_per_token =
        moe.integer("max_nodes_per_token", {.min = 1, .max = kLargestDegree}).value_or(0);
    plan.shared_overlap = moe.boolean("shared_overlap").value_or(false);
    plan.overlap = moe.boolean("overlap").value_or(false);
    read_routing(moe.any("routing"));
    moe.finish();
  }

  void set_expert_kind(const std::string& word) {
    for (const ExpertKind kind :
         {ExpertKind::kMegatron, ExpertKind::kGshard, ExpertKind::kSwitch, ExpertKind::kGlam,
          ExpertKind::kDeepspeed, ExpertKind::kDeepseek}) {
      if (word == name(kind)) reading_.plan.moe.kind = kind;
    }
  }

  void read_routing(const std::optional<JsonNode>& routing) {
    if (!routing) return;
    Problems& problems = section_.problems();
    if (routing->is_object()) {
      ObjectReader reader(*routing, problems);
      reading_.zipf = reader.number("zipf", {.min = 0, .max = 100});
      reading_.histogram = reader.string("histogram");
      const bool both = reader.has("zipf") && reader.has("histogram");
      if (both || reader.node().keys().empty()) {
        reader.problem("", "expected either zipf or histogram");
      }
      reader.finish();
    } else if (!routing->is_string() || routing->string() != "uniform") {
      problems.add(routing->file(), routing->pointer(),
                   routing->text() +
                       " is not allowed; expected \"uniform\", {\"zipf\": ...} or "
                       "{\"histogram\": ...}");
    }
  }

  // Every axis at most once; what is left out has size 1 and goes outermost.
  void read_order() {
    const auto text = section_.string("order", reading_.plan.order);
    if (!text) return;
    Words axes;
    std::size_t at = 0;
    while (at <= text->size()) {
      const std::size_t dash = std::min(text->find('-', at), text->size());
      const std::string axis = text->substr(at, dash - at);
      at = dash + 1;
      const bool twice = std::find(axes.begin(), axes.end(), axis) != axes.end();
      if (twice || std::find(axis_names.begin(), axis_names.end(), axis) == axis_names.end()) {
        section_.problem(
            "order",
            "\"" + *text +
                "\": " + (twice ? "\"" + axis + "\" comes twice" : "\"" + axis + "\" is no axis") +
                "; expected the axes tp, cp, ep, dp and pp, innermost first, joined by \"-\"");
        return;
      }
      axes.push_back(axis);
    }
    for (const std::string& axis : axis_names) {
      if (std::find(axes.begin(), axes.end(), axis) == axes.end()) axes.push_back(axis);
    }
    reading_.plan.order.clear();
    for (const std::string& axis : axes) {
      reading_.plan.order += (reading_.plan.order.empty() ? "" : "-") + axis;
    }
  }

  JobSection& section_;
  PlanReading reading_;
};

}  // namespace

void not_yet(std::vector<NotYetBuilt>& list, const JobSection& section, std::string_view key,
             std::string rule) {
  list.push_back({section.pointer(key), std::move(rule)});
}

PlanReading read_plan(JobSection& section) {
  section.allow_open();
  PlanReading reading = PlanReader(section).read();
  section.finish();
  return reading;
}

}  // namespace headway
