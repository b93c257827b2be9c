// Reads a job: its sections one after the other, then the plan against all of them.
#include <algorithm>
#include <cassert>
#include <numeric>
#include <utility>

#include "sim/cluster/device.hpp"
#include "sim/cluster/topology_reader.hpp"
#include "sim/core/file.hpp"
#include "sim/core/shipped_files.hpp"
#include "sim/plan/job.hpp"
#include "sim/plan/job_override.hpp"
#include "sim/plan/job_section.hpp"
#include "sim/plan/open_job.hpp"
#include "sim/plan/packing.hpp"
#include "sim/plan/plan_legality.hpp"
#include "sim/plan/plan_reader.hpp"
#include "sim/plan/tensor_grid.hpp"

namespace headway {
namespace {

// What a job without `software.framework` is run by.
constexpr std::string_view kDefaultFramework = "headway";

std::string unknown(const std::string& word, const std::vector<std::string>& known,
                    const std::string& or_else) {
  std::string message = "\"" + word + "\" is not known";
  const std::string near = nearest(word, known);
  if (!near.empty()) message += "; did you mean \"" + near + "\"?";
  return message + "; expected " + any_of(known) + or_else;
}

// What has been read of a job beside its plan.
class JobFrame {
 protected:
  std::map<std::string, Origin> origins_;
  std::vector<NotYetBuilt> not_built_;
  std::vector<std::string> notes_;
  std::optional<Software> software_;
  std::optional<Transformer> model_;
  std::optional<Topology> topology_;
  std::string profile_;
  std::vector<LinkOverride> links_;
  std::optional<std::string> nic_;
  std::optional<double> oversubscription_;
  Precision precision_ = Precision::kBf16;
  std::optional<std::int64_t> sequence_length_, global_batch_;
  std::vector<std::vector<std::int64_t>> packs_;
  std::string packed_from_;
};

class JobReader : public JobFrame {
 public:
  JobReader(const JsonNode& node, Problems& problems)
      : node_(node), problems_(problems), root_("", node, node, std::nullopt, problems, origins_) {}
  // Goes on from what was read of the same job.
  JobReader(const JobFrame& frame, const JsonNode& node, Problems& problems)
      : JobFrame(frame),
        node_(node),
        problems_(problems),
        root_("", node, node, std::nullopt, problems, origins_) {}

  JobReading read() {
    const std::size_t before = problems_.size();
    if (!node_.is_object()) return {};  // said by the section's reader already
    read_frame();
    JobReading reading = judge(root_.optional_object("plan"));
    take_import_lists();
    root_.finish();
    if (problems_.size() > before) reading.job.reset();
    return reading;
  }

  void read_frame() {
    read_software();
    read_model();
    read_batch();
    read_cluster();
  }

  // Reads a plan and holds it against what was read before.
  JobReading judge(const std::optional<JsonNode>& plan) {
    const std::size_t before = problems_.size();
    JobReading reading;
    JobSection section("plan", node_, plan, software_ ? software_->plan_defaults : std::nullopt,
                       problems_, origins_);
    plan_ = read_plan(section);
    const PlanContext context = {
        model_,
        topology_ ? std::optional<std::int64_t>(topology_->gpus()) : std::nullopt,
        sequence_length_,
        global_batch_,
        topology_ ? topology_->gpus_per_node() : 0,
        !topology_ || topology_->host_memory().has_value()};
    resolve_plan(plan_, context, section, root_, notes_);
    apply_framework_rules(section);
    resolve_gradients(section);
    resolve_quantisation(section);
    check_graphs();
    reading.not_built = std::move(not_built_);
    std::move(plan_.not_built.begin(), plan_.not_built.end(),
              std::back_inserter(reading.not_built));
    const bool whole = software_ && model_ && topology_ && sequence_length_ && global_batch_;
    if (whole && problems_.size() == before && reading.not_built.empty()) reading.job = job();
    return reading;
  }

  // Of a frame that was read without problems.
  const Transformer& model() const { return *model_; }
  const Topology& topology() const { return *topology_; }
  const Software& software() const { return *software_; }
  const std::string& profile() const { return profile_; }
  std::int64_t sequence_length() const { return *sequence_length_; }
  std::int64_t global_batch() const { return *global_batch_; }
  const std::vector<NotYetBuilt>& not_built() const { return not_built_; }
  const std::vector<std::string>& notes() const { return notes_; }
  std::optional<JsonNode> plan_section() { return root_.optional_object("plan"); }
  void finish() { root_.finish(); }

 private:
  void read_software() {
    const auto node = root_.optional_object("software");
    JobSection section("software", node_, node, std::nullopt, problems_, origins_);
    const auto name = section.string("framework", std::string(kDefaultFramework));
    if (name) software_ = framework_preset(*name);
    if (name && !software_) {
      std::vector<std::string> known;
      for (const FrameworkName& preset : framework_presets()) known.push_back(preset.name);
      section.problem("framework", unknown(*name, known, ""));
    }
    if (!section.given("framework")) {
      notes_.push_back(
          "software.framework is not given: headway (bf16 parameters and gradients, fp32 master "
          "copy and Adam moments, fused kernels, everything that can overlap overlaps)");
    }
    Software unknown_framework;
    read_software_keys(section, software_ ? *software_ : unknown_framework);
    section.finish();
  }

  // What an import lists for people beside the job (formats/job_draft).
  void take_import_lists() {
    for (const char* list : {"missing", "ignored", "not_imported"}) root_.optional_any(list);
  }

  // The job's choice, or what the framework has.
  template <typename Field>
  void choose(JobSection& section, std::string_view key,
              const std::vector<std::pair<std::string, Field>>& words, Field& field) {
    std::vector<std::string> names;
    names.reserve(words.size());
    for (const auto& [word, value] : words) names.push_back(word);
    const auto chosen = section.choice(key, names, "");
    if (!section.given(key)) origins_["software." + std::string(key)] = Origin::kFramework;
    for (const auto& [word, value] : words) {
      if (chosen == word) field = value;
    }
  }
  void choose(JobSection& section, std::string_view key, bool& field) {
    field = section.boolean(key, field).value_or(field);
    if (!section.given(key)) origins_["software." + std::string(key)] = Origin::kFramework;
  }

  void read_software_keys(JobSection& section, Software& software) {
    choose(section, "attention", attention_words(), software.attention);
    choose(section, "fused_kernels", software.fused_kernels);
    choose<bool>(section, "norm_kernel", {{"fused", true}, {"unfused", false}},
                 software.fused_norm);
    choose(section, "fused_loss", software.fused_loss);
    choose<Launch>(section, "launch",
                   {{"eager", Launch::kEager}, {"cuda_graph", Launch::kCudaGraph}},
                   software.launch);
    if (section.boolean("compile", false).value_or(false)) {
      not_yet(not_built_, section, "compile", "compiled models (torch.compile)");
    }
    read_graph_scope(section, software);
  }

  void read_graph_scope(JobSection& section, Software& software) {
    const auto scope = section.optional_words(
        "cuda_graph_scope",
        {"layer", "attn", "mlp", "moe", "moe_router", "moe_preprocess", "mamba"});
    if (!scope) return;
    if (software.launch == Launch::kEager) {
      notes_.push_back("software.cuda_graph_scope has no effect: launch is eager");
      return;
    }
    GraphScope& graphs = software.graph_scope;
    for (const std::string& word : *scope) {
      if (word == "layer") graphs.layer = true;
      if (word == "attn") graphs.attention = true;
      if (word == "mlp") graphs.mlp = true;
      if (word == "moe") graphs.experts = true;
      if (word == "moe_router") graphs.router = true;
      if (word == "moe_preprocess") graphs.preprocess = true;
      if (word == "mamba")
        notes_.push_back("software.cuda_graph_scope mamba has no effect: no layer is one of Mamba");
    }
    // Nothing that the model has is captured: then all is launched as ever.
    if (!graphs.any() && !scope->empty()) software.launch = Launch::kEager;
    // Megatron-LM refuses both (transformer_config.py).
    if (graphs.preprocess && !graphs.router) {
      section.problem("cuda_graph_scope",
                      "moe_preprocess is captured with what stands before it; expected moe_router "
                      "beside it");
    }
    if (graphs.experts && graphs.router) {
      section.problem("cuda_graph_scope",
                      "moe and moe_router: the one holds the other; expected one of the two");
    }
  }

  void read_model() {
    const auto node = root_.optional_any("model");
    if (!node) {
      root_.problem("model",
                    "missing; expected a preset's name, a path to a config.json, or a model");
    } else if (node->is_string()) {
      read_named_model(node->string());
    } else if (node->is_object()) {
      read_inline_model(*node);
    } else {
      root_.problem("model", node->text() +
                                 " is not allowed; expected a preset's name, a path to a "
                                 "config.json, or a model");
    }
    if (model_) refuse_what_is_not_built();
  }

  void read_named_model(const std::string& name) {
    if (is_path(name)) {
      try {
        const std::size_t before = problems_.size();
        TransformerReading reading = read_transformer(JsonNode::parse_file(name), true, problems_);
        if (problems_.size() == before) model_ = std::move(reading.model);
        if (!reading.ignored.empty()) {
          std::string keys;
          for (const std::string& key : reading.ignored) keys += (keys.empty() ? "" : ", ") + key;
          notes_.push_back("keys of " + name + " that do not matter here: " + keys);
        }
      } catch (const InvalidInput& error) {
        for (const Problem& problem : error.problems())
          problems_.add(problem.file, problem.pointer, problem.message);
      }
      return;
    }
    model_ = transformer_preset(name);
    if (model_) return;
    std::vector<std::string> known;
    for (const PresetName& preset : transformer_presets()) known.push_back(preset.name);
    root_.problem("model", unknown(name, known, ", or a path to a config.json"));
  }

  void read_inline_model(const JsonNode& node) {
    const std::size_t before = problems_.size();
    for (const std::string& key : node.keys()) origins_["model." + key] = Origin::kGiven;
    const std::optional<JsonNode> defaults = software_ ? software_->model_defaults : std::nullopt;
    if (!defaults) {
      TransformerReading reading = read_transformer(node, false, problems_);
      if (problems_.size() == before) model_ = std::move(reading.model);
      return;
    }
    for (const std::string& key : defaults->keys())
      origins_.try_emplace("model." + key, Origin::kFramework);
    Problems found;
    TransformerReading reading = read_transformer(with_defaults(node, *defaults), false, found);
    for (const Problem& problem : found.list()) {
      problems_.add(problem.file, node.pointer() + problem.pointer, problem.message);
    }
    if (problems_.size() == before) model_ = std::move(reading.model);
  }

  void refuse_what_is_not_built() {
    const auto refuse = [&](std::string rule) {
      not_yet(not_built_, root_, "model", std::move(rule));
    };
    if (model_->position_embedding == PositionEmbedding::kAlibi) refuse("ALiBi position embedding");
    if (model_->num_nextn_predict_layers == 0) return;
    if (model_->position_embedding == PositionEmbedding::kLearned)
      refuse("multi-token prediction with learned positions");
    if (software_ && software_->dropout > 0) refuse("multi-token prediction with dropout");
  }

  void read_batch() {
    std::vector<std::string> names = precision_names();
    const auto word = root_.choice("precision", names, std::string(name(Precision::kBf16)));
    if (word) precision_ = *precision_named(*word);
    if (word && model_ && model_->num_experts > 0 && precision_ == Precision::kNvFp4)
      not_yet(not_built_, root_, "precision", *word + " with experts");
    const std::size_t before = problems_.size();
    sequence_length_ = root_.optional_integer("sequence_length", {.min = 1, .max = kLargestCount});
    const auto lengths = root_.optional_object("sequence_lengths");
    if (lengths) {
      read_packs(*lengths);
      if (root_.given("sequence_length"))
        root_.problem("sequence_lengths", "given beside sequence_length; expected one of the two");
    } else if (!sequence_length_ && problems_.size() == before) {
      take_model_length();
    }
    if (!root_.given("global_batch"))
      root_.problem("global_batch", "missing; expected the sequences of a step");
    global_batch_ = root_.optional_integer("global_batch", {.min = 1, .max = kLargestCount});
    if (model_ && sequence_length_) check_lengths();
  }

  void read_packs(const JsonNode& lengths) {
    ObjectReader reader(lengths, problems_);
    const std::string file = reader.require_string("histogram");
    const auto length = reader.integer("packed_to", {.min = 1, .max = kLargestCount});
    reader.finish();
    if (file.empty()) return;
    try {
      packs_ = packed_sequences(file, length, problems_);
    } catch (const InvalidInput& error) {
      root_.problem("sequence_lengths", error.what());
    }
    if (packs_.empty()) return;
    packed_from_ = file;
    sequence_length_ =
        std::accumulate(packs_.front().begin(), packs_.front().end(), std::int64_t{0});
  }

  // Without a length of its own a job trains on what the model can hold.
  void take_model_length() {
    if (!model_ || model_->max_positions == 0) {
      root_.problem("sequence_length", "missing; expected the tokens of a sequence");
      return;
    }
    sequence_length_ = model_->max_positions;
    notes_.push_back("sequence_length is not given: the model's " +
                     std::to_string(*sequence_length_) + " positions");
  }

  void check_lengths() {
    const bool learned = model_->position_embedding == PositionEmbedding::kLearned;
    if (learned && model_->max_positions > 0 && model_->max_positions < *sequence_length_) {
      notes_.push_back("the model's " + std::to_string(model_->max_positions) +
                       " learned positions are extended to the sequence of " +
                       std::to_string(*sequence_length_));
      model_->max_positions = 0;
    }
  }

  void read_cluster() {
    const auto node = root_.optional_object("cluster");
    if (!node) {
      if (!root_.given("cluster")) {
        root_.problem("cluster",
                      "missing; expected {\"topology\": ..., \"nodes\": or \"gpus\": ...}");
      }
      return;
    }
    JobSection section("cluster", node_, node, std::nullopt, problems_, origins_);
    const auto name = section.optional_any("topology");
    if (!name || !name->is_string()) {
      section.problem("topology",
                      name ? name->text() + " is not allowed; expected a preset's name or a path"
                           : "missing; expected a preset's name or a path");
    }
    const auto nodes = section.optional_integer("nodes", {.min = 1, .max = kLargestDegree});
    const auto gpus = section.optional_integer("gpus", {.min = 1, .max = kLargestDegree});
    if (!section.given("nodes") && !section.given("gpus")) {
      section.problem("gpus", "missing; expected gpus, or nodes");
    }
    read_links(section.optional_object("links"));
    const auto profile = section.optional_any("profile");
    read_one_line(section);
    section.finish();
    const bool counts_fine =
        (gpus || nodes) && (gpus || !section.given("gpus")) && (nodes || !section.given("nodes"));
    if (name && name->is_string() && counts_fine) read_named_topology(*name, nodes, gpus, section);
    if (topology_) choose_profile(profile, section);
  }

  // What a cluster in one line says of its network.
  void read_one_line(JobSection& section) {
    if (const auto nic = section.optional_any("nic")) {
      if (nic->is_string()) {
        nic_ = nic->string();
      } else {
        section.problem("nic",
                        nic->text() + " is not allowed; expected for example \"8x400 Gbit/s\"");
      }
    }
    if (const auto factor = section.optional_any("oversubscription")) {
      if (factor->is_number() && factor->number() > 0) {
        oversubscription_ = factor->number();
      } else {
        section.problem("oversubscription",
                        factor->text() + " is not allowed; expected a number above 0");
      }
    }
  }

  // A GPU's name in place of a topology's: its usual servers, with the NICs and switches given.
  void read_one_line_cluster(const std::string& gpu, std::optional<std::int64_t> nodes,
                             std::optional<std::int64_t> gpus, JobSection& section) {
    Problems found;
    ClusterOptions options{.gpu = gpu,
                           .gpus = static_cast<int>(gpus.value_or(0)),
                           .nodes = static_cast<int>(nodes.value_or(0)),
                           .nic = nic_,
                           .oversubscription = oversubscription_,
                           .overrides = links_};
    topology_ = cluster_in_one_line(options, found);
    for (const Problem& problem : found.list()) {
      // The reader of one-line clusters names options; here they are keys of the section.
      if (!problem.file.starts_with("--")) {
        problems_.add(problem.file, problem.pointer, problem.message);
      } else if (!problem.pointer.empty()) {
        problems_.add(node_.file(), problem.pointer, problem.message);
      } else {
        const std::string option = problem.file.substr(2);
        section.problem(option == "cluster" ? "topology" : option, problem.message);
      }
    }
    if (!topology_ || !gpus || !nodes) return;
    const std::int64_t together = *nodes * topology_->gpus_per_node();
    if (*gpus == together) return;
    contradicting_counts(*gpus, *nodes, topology_->gpus_per_node(), section);
    topology_.reset();
  }

  static void contradicting_counts(std::int64_t gpus, std::int64_t nodes, int gpus_per_node,
                                   JobSection& section) {
    section.problem("gpus", std::to_string(gpus) + " contradicts " + std::to_string(nodes) +
                                " nodes of " + std::to_string(gpus_per_node) + " GPUs");
  }

  void read_named_topology(const JsonNode& name, std::optional<std::int64_t> nodes,
                           std::optional<std::int64_t> gpus, JobSection& section) {
    if (names_one_line_cluster(name.string())) {
      read_one_line_cluster(name.string(), nodes, gpus, section);
      return;
    }
    for (const char* key : {"nic", "oversubscription"}) {
      if (!section.given(key)) continue;
      section.problem(key, "needs a GPU's name as topology (\"h100\"); \"" + name.string() +
                               "\" has a network of its own, which \"links\" may change");
    }
    std::optional<std::int64_t> count = gpus;
    if (nodes) {  // a first look tells how many GPUs a node has
      const auto one = read_topology(name.string(), 1, {}, name, problems_);
      if (!one) return;
      const std::int64_t together = *nodes * one->gpus_per_node();
      if (gpus && *gpus != together) {
        contradicting_counts(*gpus, *nodes, one->gpus_per_node(), section);
        return;
      }
      if (together > kLargestDegree) {
        section.problem("nodes", std::to_string(together) + " GPUs are too many; expected up to " +
                                     std::to_string(kLargestDegree));
        return;
      }
      count = together;
    }
    topology_ = read_topology(name.string(), static_cast<int>(*count), links_, name, problems_);
  }

  void read_links(const std::optional<JsonNode>& node) {
    if (!node) return;
    for (const std::string& kind : node->keys()) {
      const JsonNode link = *node->find(kind);
      ObjectReader reader(link, problems_);
      LinkOverride change;
      change.kind = kind;
      change.bandwidth = reader.bandwidth("bandwidth");
      change.latency = reader.time("latency");
      change.pointer = link.pointer();
      if (link.is_object() && !reader.has("bandwidth") && !reader.has("latency")) {
        reader.problem("", "changes nothing; expected bandwidth or latency");
      }
      reader.finish();
      links_.push_back(std::move(change));
    }
  }

  void choose_profile(const std::optional<JsonNode>& given, JobSection& section) {
    profile_ = topology_->default_profile();
    if (!given) return;
    if (!given->is_string()) {
      section.problem("profile",
                      given->text() + " is not allowed; expected a profile's name or a path");
      return;
    }
    profile_ = given->string();
    if (is_path(profile_)) return;
    std::vector<std::string> known = topology_->profiles();
    for (const std::string_view shipped : shipped_names("calibration/profiles/")) {
      if (std::find(known.begin(), known.end(), shipped) == known.end())
        known.emplace_back(shipped);
    }
    if (std::find(known.begin(), known.end(), profile_) == known.end()) {
      section.problem("profile", unknown(profile_, known, ", or a path"));
    }
  }

  // Documents would have to be dealt out one by one (Megatron-LM cuts each in 2 cp chunks).
  void check_packs(JobSection& section) {
    if (plan_.plan.cp > 1) {
      not_yet(not_built_, section, "cp", "packed sequences with context parallelism");
    }
    if (software_->attention == AttentionKernel::kUnfused) {
      root_.problem("sequence_lengths",
                    "unfused attention works on whole sequences; expected a fused "
                    "software.attention, which leaves out what other documents hide");
    }
  }

  void apply_framework_rules(JobSection& section) {
    if (!software_) return;
    ParallelPlan& plan = plan_.plan;
    if (plan.tp > 1 && plan.tp_kind != TensorKind::k1d && quantisation(precision_) != nullptr) {
      not_yet(not_built_, section, "tp_kind",
              std::string(name(plan.tp_kind)) + " of products in 8 bits");
    }
    if (model_ && plan.tp_kind == TensorKind::k1d && key_value_copies(*model_, plan.tp) > 1 &&
        quantisation(precision_) != nullptr) {
      not_yet(not_built_, section, "tp", "fewer key-value heads than tp ranks, in 8 bits");
    }
    if (!packs_.empty()) check_packs(section);
    if (plan.cp > plan.ulysses_degree && software_->attention == AttentionKernel::kUnfused) {
      section.problem("cp_kind",
                      std::string(name(plan.cp_kind)) +
                          " attention works block by block, which unfused attention does "
                          "not; expected a fused software.attention, or cp_kind ulysses");
    }
    if (plan.overlap_p2p && software_->overlap_p2p_needs_interleaving &&
        plan.schedule != "interleaved") {
      plan.overlap_p2p = false;
      if (section.given("overlap_p2p")) {
        notes_.push_back("plan.overlap_p2p has no effect: " + software_->framework +
                         " overlaps p2p in the interleaved schedule only");
      }
    }
    if (shards_parameters(plan.dp_kind) && software_->sharded_network_efficiency > 0) {
      software_->dp_network_efficiency = software_->sharded_network_efficiency;
    }
    const bool own_bucket = !section.given("bucket") && !section.given("bucket_elements");
    if (plan.bucket_elements && own_bucket && plan.dp_kind != DataParallelKind::kHorovod) {
      plan.bucket_elements =
          std::max(*plan.bucket_elements, software_->bucket_elements_per_dp * plan.dp * plan.cp);
    }
  }

  // A graph is captured once: what it holds must have the same shape in every step.
  void check_graphs() {
    if (!software_ || !model_ || model_->num_experts == 0) return;
    if (software_->launch != Launch::kCudaGraph) return;
    const GraphScope& graphs = software_->graph_scope;
    const ExpertKind kind = plan_.plan.moe.kind;
    const bool filled_up = kind != ExpertKind::kMegatron && kind != ExpertKind::kDeepseek;
    if (filled_up || !(graphs.layer || graphs.experts)) return;
    root_.problem("software", std::string("cuda_graph_scope ") + (graphs.layer ? "layer" : "moe") +
                                  ": experts of kind " + std::string(name(kind)) +
                                  " take as many tokens as come; expected attn, moe_router and "
                                  "moe_preprocess, or a kind that is filled up to its capacity");
  }

  // The gradients' type follows the framework's way of accumulating, and the other way round where
  // the job names the type.
  void resolve_gradients(const JobSection& section) {
    if (!software_) return;
    ParallelPlan& plan = plan_.plan;
    const DataType stored = storage_type(precision_);
    if (plan_.grad_dtype) {
      plan.gradient_type = *data_type_named(*plan_.grad_dtype);
      if (software_->accumulation != GradientAccumulation::kFused) {
        software_->accumulation = plan.gradient_type == stored
                                      ? GradientAccumulation::kSameType
                                      : GradientAccumulation::kMainGradient;
      }
    } else {
      if (software_->widens_bf16_gradients && stored == DataType::kBf16 &&
          software_->accumulation == GradientAccumulation::kSameType) {
        software_->accumulation = GradientAccumulation::kMainGradient;
      }
      const bool follows =
          software_->accumulation == GradientAccumulation::kSameType || stored == DataType::kFp64;
      plan.gradient_type = follows ? stored : software_->main_gradient_type;
      if (!section.stated("grad_dtype")) origins_["plan.grad_dtype"] = Origin::kFramework;
    }
    software_->main_gradient_type = plan.gradient_type;
    // Parameters of full precision are their own master copy.
    if (size_of(stored, 1).count >= 4) software_->master_parameters = false;
    if (plan_.bucket && plan_.bucket->count > 0) {
      plan.bucket_elements =
          std::max<std::int64_t>(1, plan_.bucket->count / size_of(plan.gradient_type, 1).count);
    }
    const Bytes first = software_->first_bucket;
    if (plan.dp_kind == DataParallelKind::kDdp && first.count > 0 && plan.bucket_elements) {
      plan.first_bucket_elements =
          std::min(*plan.bucket_elements,
                   std::max<std::int64_t>(1, first.count / size_of(plan.gradient_type, 1).count));
    }
  }

  void resolve_quantisation(JobSection& section) {
    const bool gathers_in_8_bits = plan_.param_gather_dtype == "fp8";
    refuse_other_gathers(section);
    const Quantisation* recipe = quantisation(precision_);
    if (gathers_in_8_bits && compute_type(precision_) != DataType::kFp8 &&
        section.given("param_gather_dtype")) {
      section.problem("param_gather_dtype", "fp8 parameters need a precision of 8 bits; it is " +
                                                std::string(name(precision_)));
    }
    if (recipe == nullptr) return;
    if (plan_.plan.dp_kind == DataParallelKind::kZeroPlusPlus) {
      not_yet(plan_.not_built, section, "dp_kind", "zero++ with " + std::string(name(precision_)));
    }
    check_device(*recipe);
    if (model_ && sequence_length_) check_sizes(*recipe);
    if (!gathers_in_8_bits || plan_.plan.dp_kind == DataParallelKind::kDdp) return;
    const bool runs = recipe->block > 0 && recipe->weight_block != recipe->block;
    if (runs) {
      notes_.push_back("plan.param_gather_dtype has no effect: with " +
                       std::string(name(precision_)) +
                       " the two copies of a weight are different numbers, both made from a 16-bit "
                       "gather");
      return;
    }
    plan_.plan.weights_in_8_bits = true;
  }

  // Gathered wider, or narrower, than they are stored.
  void refuse_other_gathers(const JobSection& section) {
    const std::string gather = plan_.param_gather_dtype.value_or("fp8");
    const auto type = data_type_named(gather);
    if (plan_.plan.dp_kind == DataParallelKind::kDdp || type == DataType::kFp8) return;
    if (type == DataType::kFp4 || type == storage_type(precision_)) return;
    not_yet(plan_.not_built, section, "param_gather_dtype",
            gather + " parameter gather of " + std::string(name(storage_type(precision_))) +
                " parameters");
  }

  void check_device(const Quantisation& recipe) {
    const Device* device = find_device(profile_);
    if (device == nullptr || device->compute_capability == 0) return;
    if (device->compute_capability >= recipe.capability) return;
    root_.problem("precision",
                  std::string(name(precision_)) + " needs a GPU of compute capability " +
                      std::to_string(recipe.capability / 10) + "." +
                      std::to_string(recipe.capability % 10) + " or more; " + profile_ + " has " +
                      std::to_string(device->compute_capability / 10) + "." +
                      std::to_string(device->compute_capability % 10));
  }

  // What one rank multiplies must fill the quantisers' blocks and the kernels' loads.
  void check_sizes(const Quantisation& recipe) {
    const ParallelPlan& plan = plan_.plan;
    if (model_->num_attention_heads % plan.tp != 0) return;  // said already
    const std::int64_t tokens =
        plan.micro_batch * *sequence_length_ / plan.cp / (plan.sequence_parallel ? plan.tp : 1);
    const auto must_divide = [&](std::int64_t size, const std::string& what) {
      if (size % recipe.multiple == 0) return;
      root_.problem("precision", std::string(name(precision_)) + " needs multiples of " +
                                     std::to_string(recipe.multiple) + "; a rank has " +
                                     std::to_string(size) + " " + what);
    };
    must_divide(tokens, "tokens of a micro-batch");
    must_divide(model_->hidden_size, "columns of the hidden states");
    if (model_->latent_attention) {
      const LatentAttention& latent = *model_->latent_attention;
      const std::int64_t heads = model_->num_attention_heads / plan.tp;
      must_divide(heads * latent.qk_head_dim(), "columns of the queries");
      must_divide(heads * (latent.qk_nope_head_dim + latent.v_head_dim), "columns of the keys");
      must_divide(heads * latent.v_head_dim, "columns of the values");
      must_divide(latent.q_lora_rank, "compressed columns of the queries");
      must_divide(latent.kv_lora_rank, "compressed columns of the keys");
    } else {
      must_divide(model_->query_size() / plan.tp, "columns of the queries");
      must_divide(model_->key_value_size() / plan.tp, "columns of the keys");
    }
    if (model_->expert_layer_count() < model_->num_hidden_layers) {
      must_divide(model_->intermediate_size / plan.tp, "columns of the MLP");
    }
    if (model_->num_experts == 0) return;
    must_divide(model_->experts.intermediate_size / plan.etp, "columns of an expert");
    must_divide(model_->experts.shared_intermediate_size / plan.tp,
                "columns of the shared experts");
  }

  Job job() {
    assert(model_ && topology_ && software_ && sequence_length_ && global_batch_);
    Job job{.model = std::move(*model_),
            .topology = std::move(*topology_),
            .profile = std::move(profile_)};
    job.precision = precision_;
    job.sequence_length = *sequence_length_;
    job.global_batch = *global_batch_;
    job.packs = std::move(packs_);
    job.packed_from = std::move(packed_from_);
    job.software = std::move(*software_);
    job.plan = std::move(plan_.plan);
    job.origins = std::move(origins_);
    job.notes = std::move(notes_);
    job.links = std::move(links_);
    job.nic = std::move(nic_);
    job.oversubscription = oversubscription_;
    return job;
  }

  const JsonNode& node_;
  Problems& problems_;
  JobSection root_;
  PlanReading plan_;
};

}  // namespace

// The reader of the frame stays as it was read; each plan is judged by one that goes on from it.
struct OpenJob::Frame {
  JsonNode node;
  Problems problems;
  JobReader reader;
  std::optional<JsonNode> plan;

  explicit Frame(JsonNode job) : node(std::move(job)), reader(node, problems) {}
};

OpenJob::OpenJob(std::shared_ptr<const Frame> frame) : frame_(std::move(frame)) {}

std::optional<OpenJob> OpenJob::read(const JsonNode& node,
                                     const std::vector<JobOverride>& overrides,
                                     Problems& problems) {
  Problems misplaced;
  const auto frame = std::make_shared<Frame>(with_overrides(node, overrides, misplaced));
  for (const Problem& problem : misplaced.list()) {
    problems.add(problem.file, problem.pointer, problem.message);
  }
  if (frame->node.is_object()) {
    frame->reader.read_frame();
    frame->plan = frame->reader.plan_section();
    frame->reader.finish();
  }
  for (const Problem& found : frame->problems.list()) {
    const Problem problem = at_origin(found, node, overrides);
    problems.add(problem.file, problem.pointer, problem.message);
  }
  if (!misplaced.empty() || !frame->problems.empty()) return std::nullopt;
  return OpenJob(frame);
}

JobReading OpenJob::with_plan(const JsonNode& plan, Problems& problems) const {
  return JobReader(frame_->reader, frame_->node, problems).judge(plan);
}

const std::optional<JsonNode>& OpenJob::plan() const { return frame_->plan; }
const Transformer& OpenJob::model() const { return frame_->reader.model(); }
const Topology& OpenJob::topology() const { return frame_->reader.topology(); }
const Software& OpenJob::software() const { return frame_->reader.software(); }
const std::string& OpenJob::profile() const { return frame_->reader.profile(); }
std::int64_t OpenJob::sequence_length() const { return frame_->reader.sequence_length(); }
std::int64_t OpenJob::global_batch() const { return frame_->reader.global_batch(); }
const std::vector<NotYetBuilt>& OpenJob::not_built() const { return frame_->reader.not_built(); }
const std::vector<std::string>& OpenJob::notes() const { return frame_->reader.notes(); }

JobReading read_job(const JsonNode& node, const std::vector<JobOverride>& overrides,
                    Problems& problems) {
  if (overrides.empty()) return JobReader(node, problems).read();
  Problems found;
  const JsonNode together = with_overrides(node, overrides, found);
  const std::size_t misplaced = found.size();
  JobReading reading = JobReader(together, found).read();
  for (std::size_t i = 0; i < found.size(); ++i) {
    const Problem problem =
        i < misplaced ? found.list()[i] : at_origin(found.list()[i], node, overrides);
    problems.add(problem.file, problem.pointer, problem.message);
  }
  if (misplaced > 0) reading.job.reset();
  return reading;
}

}  // namespace headway
