#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cctype>
#include <functional>
#include <map>
#include <set>

#include "sim/core/shipped_files.hpp"
#include "sim/formats/flag_arguments.hpp"
#include "sim/formats/megatron.hpp"
#include "sim/formats/pipeline_layout.hpp"
#include "sim/formats/shell_arguments.hpp"

namespace headway {
namespace {

using Words = std::vector<std::string>;

// Flags that change a step's cost in ways a job has no word for. They are told, not dropped.
const std::set<std::string> kLostFlags = {"--is-hybrid-model",
                                          "--hybrid-layer-pattern",
                                          "--hybrid-override-pattern",
                                          "--hybrid-attention-ratio",
                                          "--hybrid-mlp-ratio",
                                          "--spec",
                                          "--heterogeneous-layers-config-path",
                                          "--apply-query-key-layer-scaling",
                                          "--attention-softmax-in-fp32",
                                          "--fp32-residual-connection",
                                          "--qk-layernorm",
                                          "--add-qkv-bias",
                                          "--window-attn-skip-freq",
                                          "--no-async-tensor-model-parallel-allreduce",
                                          "--tp-comm-overlap-cfg",
                                          "--disable-tp-comm-overlap-ag",
                                          "--disable-tp-comm-overlap-rs",
                                          "--disable-tp-comm-bulk-dgrad",
                                          "--disable-tp-comm-bulk-wgrad",
                                          "--delay-wgrad-compute",
                                          "--first-last-layers-bf16",
                                          "--num-layers-at-start-in-bf16",
                                          "--num-layers-at-end-in-bf16",
                                          "--fp8-margin",
                                          "--fp8-interval",
                                          "--transformer-impl",
                                          "--use-precision-aware-optimizer",
                                          "--main-grads-dtype",
                                          "--main-params-dtype",
                                          "--exp-avg-dtype",
                                          "--exp-avg-sq-dtype",
                                          "--defer-embedding-wgrad-compute",
                                          "--moe-layer-recompute",
                                          "--moe-extended-tp",
                                          "--moe-input-jitter-eps",
                                          "--moe-z-loss-coeff",
                                          "--moe-router-enable-expert-bias",
                                          "--moe-router-score-function",
                                          "--moe-permute-fusion",
                                          "--moe-router-fusion",
                                          "--num-distributed-optimizer-instances",
                                          "--no-gradient-accumulation-fusion",
                                          "--no-persist-layer-norm",
                                          "--encoder-num-layers",
                                          "--decoder-num-layers",
                                          "--encoder-seq-length",
                                          "--decoder-seq-length",
                                          "--qk-clip",
                                          "--ddp-num-buckets",
                                          "--ddp-average-in-collective",
                                          "--align-grad-reduce",
                                          "--align-param-gather",
                                          "--overlap-param-gather-with-optimizer-step",
                                          "--distribute-saved-activations",
                                          "--use-ring-exchange-p2p",
                                          "--use-cpu-initialization",
                                          "--zero-contigious-gradients",
                                          "--partition-activations",
                                          "--synchronize-each-layer",
                                          "--num-experts-per-layer"};

// Of these only presence is asked: whatever the job's cost, the flag itself says nothing more.
const Words kImplied = {"--deepspeed", "--use-mcore-models", "--moe-grouped-gemm",
                        "--use-rotary-position-embeddings"};

class MegatronImport {
 public:
  MegatronImport(const Words& words, const std::string& file)
      : launcher_(launcher_words(words), file, problems_),
        arguments_(training_words(words), file, problems_) {}

  JobDraft draft() {
    draft_.set("software.framework", "megatron-core");
    read_counts();
    read_model();
    read_experts();
    read_world();
    read_precision();
    read_kernels();
    read_pipeline();
    read_data_parallelism();
    read_context_parallelism();
    read_recomputation();
    read_optimizer();
    for (const std::string& flag : kImplied) arguments_.take(flag);
    judge_the_rest();
    problems_.throw_if_any();
    return std::move(draft_);
  }

 private:
  // "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 96": the words up to the program.
  static std::ptrdiff_t program_at(const Words& words) {
    const auto last = std::find_if(words.rbegin(), words.rend(),
                                   [](const std::string& word) { return word.ends_with(".py"); });
    return last == words.rend() ? 0 : words.rend() - last;
  }
  static Words launcher_words(const Words& words) {
    return {words.begin(), words.begin() + std::max<std::ptrdiff_t>(0, program_at(words) - 1)};
  }
  static Words training_words(const Words& words) {
    return {words.begin() + program_at(words), words.end()};
  }

  void read_counts() {
    for (const FlagMeaning& row : megatron_counts()) {
      if (const auto value = arguments_.integer(row.flag, 1)) draft_.set(row.key, *value);
    }
  }

  // A flag whose presence says one thing and whose absence another.
  void read_switch(const std::string& flag, const std::string& key, bool value_if_given) {
    draft_.set(key, arguments_.take(flag) == value_if_given);
  }

  void read_model() {
    const auto layers = arguments_.integer("--num-layers");
    if (!layers) return;
    const auto hidden = arguments_.integer("--hidden-size");
    const bool gated = arguments_.take("--swiglu");
    draft_.set("model.gated_mlp", gated);
    draft_.set("model.hidden_act", gated ? "silu" : "gelu");
    if (arguments_.take("--squared-relu")) draft_.lose("--squared-relu: priced as GELU");
    if (hidden && !draft_.has("model.intermediate_size"))
      draft_.set("model.intermediate_size", gated ? gated_width(*hidden) : 4 * *hidden);
    read_key_value_heads();
    const auto norm = arguments_.choice("--normalization", {{"LayerNorm", "layernorm"},
                                                            {"RMSNorm", "rmsnorm"},
                                                            {"layernorm", "layernorm"},
                                                            {"rmsnorm", "rmsnorm"}});
    draft_.set("model.norm", norm.value_or("layernorm"));
    read_positions();
    read_window();
    read_switch("--untie-embeddings-and-output-weights", "model.tie_word_embeddings", false);
    const bool biases = !arguments_.take("--disable-bias-linear");
    if (biases != (norm.value_or("layernorm") == "layernorm")) {
      draft_.lose(biases ? "biases of the linear layers"
                         : "--disable-bias-linear: a model with LayerNorm is read with biases");
    }
  }

  // transformer/mlp.py: two thirds of 4 h, down to a multiple of 64.
  static std::int64_t gated_width(std::int64_t hidden) { return 4 * hidden * 2 / 3 / 64 * 64; }

  void read_key_value_heads() {
    const auto groups = arguments_.integer("--num-query-groups");
    if (arguments_.take("--group-query-attention"))
      draft_.set("model.num_key_value_heads", groups.value_or(1));
  }

  void read_positions() {
    auto kind = arguments_.choice("--position-embedding-type", {{"learned_absolute", "learned"},
                                                                {"learned", "learned"},
                                                                {"absolute", "learned"},
                                                                {"rope", "rope"},
                                                                {"rotary", "rope"},
                                                                {"yarn", "rope"},
                                                                {"alibi", "alibi"},
                                                                {"relative", "none"},
                                                                {"none", "none"}});
    if (!kind) kind = arguments_.has("--use-rotary-position-embeddings") ? "rope" : "learned";
    draft_.set("model.position_embedding", *kind);
  }

  // "4095,0" or "(4095, 0)": keys before a query and behind it.
  void read_window() {
    const auto window = arguments_.values("--window-size");
    if (!window || window->empty()) return;
    const std::string& text = window->front();
    const std::size_t begin = text.find_first_of("0123456789");
    if (begin == std::string::npos) return draft_.lose("--window-size " + text);
    draft_.set("model.sliding_window", std::int64_t{std::atol(text.c_str() + begin) + 1});
  }

  void read_experts() {
    if (arguments_.take("--multi-latent-attention")) read_latent_attention();
    if (!draft_.has("model.num_experts")) return;
    if (const auto kind = arguments_.word("--moe-layer-freq")) read_layer_frequency(*kind);
    draft_.set("plan.moe.kind", "megatron");
    read_dispatcher();
    if (const auto factor = arguments_.word("--moe-expert-capacity-factor")) {
      draft_.set_text("plan.moe.capacity_factor", *factor);
      draft_.set("plan.moe.drop", true);
    }
    draft_.set("plan.moe.shared_overlap", arguments_.take("--moe-shared-expert-overlap"));
    draft_.set("plan.moe.overlap", arguments_.take("--overlap-moe-expert-parallel-comm"));
    const auto balancing = arguments_.word("--moe-router-load-balancing-type");
    draft_.set("plan.moe.aux_loss",
               balancing.value_or("aux_loss").find("aux_loss") != std::string::npos);
  }

  void read_latent_attention() {
    for (const FlagMeaning& row : megatron_latent_attention()) {
      if (const auto value = arguments_.integer(row.flag)) draft_.set(row.key, *value);
    }
  }

  // "2": every second layer; "([0]*3+[1]*58)": the first three are dense.
  void read_layer_frequency(const std::string& text) {
    if (std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c); })) {
      draft_.set_text("model.moe_layer_freq", text);
      return;
    }
    constexpr std::string_view kDenseFirst = "[0]*";
    const std::size_t at = text.find(kDenseFirst);
    const std::size_t digits = at == std::string::npos ? at : at + kDenseFirst.size();
    if (at == std::string::npos || text.find("[0]", digits) != std::string::npos) {
      draft_.lose("--moe-layer-freq " + text);
      return;
    }
    draft_.set_text("model.first_k_dense_replace",
                    text.substr(digits, text.find_first_not_of("0123456789", digits) - digits));
  }

  void read_dispatcher() {
    auto dispatch = arguments_.choice("--moe-token-dispatcher-type", {{"allgather", "allgather"},
                                                                      {"alltoall", "alltoall"},
                                                                      {"alltoall_seq", "alltoall"},
                                                                      {"flex", "deepep"}});
    const auto backend = arguments_.choice("--moe-flex-dispatcher-backend",
                                           {{"deepep", "deepep"}, {"hybridep", "hybridep"}});
    if (backend && dispatch == "deepep") dispatch = backend;
    if (arguments_.take("--moe-enable-deepep")) dispatch = "deepep";
    draft_.set("plan.moe.dispatch", dispatch.value_or("allgather"));
  }

  // torchrun's two counts, where the script states both.
  void read_world() {
    std::optional<std::int64_t> gpus = arguments_.integer("--world-size");
    const auto count = [&](const char* underscored, const char* dashed) {
      return launcher_.has(dashed) ? launcher_.word(dashed) : launcher_.word(underscored);
    };
    const auto per_node = count("--nproc_per_node", "--nproc-per-node");
    const auto nodes = launcher_.word("--nnodes");
    if (!gpus && per_node && nodes) {
      const auto is_number = [](const std::string& text) {
        return !text.empty() && text.size() < 9 &&
               std::all_of(text.begin(), text.end(),
                           [](unsigned char c) { return std::isdigit(c); });
      };
      if (is_number(*per_node) && is_number(*nodes))
        gpus = std::stoll(*per_node) * std::stoll(*nodes);
    }
    if (gpus) draft_.set("cluster.gpus", *gpus);
  }

  void read_precision() {
    const bool bf16 = arguments_.take("--bf16"), fp16 = arguments_.take("--fp16");
    std::string precision = bf16 ? "bf16" : fp16 ? "fp16" : "fp32";
    const bool fp8 = arguments_.take("--fp8-format") || arguments_.take("--fp8-hybrid") ||
                     arguments_.take("--fp8-e4m3");
    const auto recipe = arguments_.choice("--fp8-recipe", {{"delayed", "fp8-delayed"},
                                                           {"tensorwise", "fp8-current"},
                                                           {"blockwise", "fp8-block"},
                                                           {"mxfp8", "mxfp8"}});
    if (fp8) precision = recipe.value_or("fp8-delayed");
    if (arguments_.take("--fp4-format")) precision = "nvfp4";
    draft_.set("precision", precision);
    if (arguments_.take("--fp8-param-gather") || arguments_.take("--fp8-param"))
      draft_.set("plan.param_gather_dtype", "fp8");
    // bf16 accumulates in fp32 unless told otherwise (arguments.py, validate_args).
    const bool in_fp32 = arguments_.take("--accumulate-allreduce-grads-in-fp32");
    if (arguments_.take("--grad-reduce-in-bf16")) {
      draft_.set("plan.grad_dtype", "bf16");
    } else {
      draft_.set("plan.grad_dtype", fp16 && !in_fp32 ? "fp16" : "fp32");
    }
  }

  void read_kernels() {
    const auto backend = arguments_.choice("--attention-backend", {{"flash", "flash2"},
                                                                   {"fused", "cudnn"},
                                                                   {"unfused", "unfused"},
                                                                   {"local", "unfused"},
                                                                   {"auto", ""}});
    if (arguments_.take("--use-flash-attn") || arguments_.take("--use-flash-attn-v2"))
      draft_.set("software.attention", "flash2");
    if (backend && !backend->empty()) draft_.set("software.attention", *backend);
    bool fused = true;
    for (const char* flag : {"--no-masked-softmax-fusion", "--no-bias-gelu-fusion",
                             "--no-bias-swiglu-fusion", "--no-bias-dropout-fusion"}) {
      if (arguments_.take(flag)) fused = false;
    }
    if (!fused) draft_.set("software.fused_kernels", false);
    read_switch("--cross-entropy-loss-fusion", "software.fused_loss", true);
    const auto graphs = arguments_.word("--cuda-graph-impl");
    const bool graph =
        arguments_.take("--enable-cuda-graph") | arguments_.take("--external-cuda-graph");
    if (graph || graphs.value_or("none") != "none") {
      draft_.set("software.launch", "cuda_graph");
      if (const auto scope = arguments_.values("--cuda-graph-scope"))
        draft_.set("software.cuda_graph_scope", *scope);
      else
        draft_.set("software.cuda_graph_scope", Words{"layer"});
    }
    read_switch("--sequence-parallel", "plan.sequence_parallel", true);
    if (arguments_.take("--tp-comm-overlap")) draft_.set("plan.tp_overlap", "ring");
  }

  void read_pipeline() {
    const auto pp = arguments_.integer("--pipeline-model-parallel-size");
    const auto layers = arguments_.integer("--num-layers");
    auto vpp = arguments_.integer("--num-virtual-stages-per-pipeline-rank");
    const auto per_stage = arguments_.integer("--num-layers-per-virtual-pipeline-stage");
    if (per_stage && layers) {
      if (*layers % (pp.value_or(1) * *per_stage) != 0) {
        arguments_.problem(
            "--num-layers-per-virtual-pipeline-stage",
            std::to_string(*layers) + " layers do not divide into virtual stages of " +
                std::to_string(*per_stage) + " on " + std::to_string(pp.value_or(1)) + " ranks");
      } else {
        vpp = *layers / pp.value_or(1) / *per_stage;
      }
    }
    read_stage_layers(pp.value_or(1), layers, vpp);
    if (pp.value_or(1) > 1)
      draft_.set("plan.schedule", vpp.value_or(1) > 1 ? "interleaved" : "1f1b");
    if (vpp) draft_.set("plan.vpp", *vpp);
    const bool blocking = arguments_.take("--no-overlap-p2p-communication");
    if (vpp.value_or(1) > 1) draft_.set("plan.overlap_p2p", !blocking);
    arguments_.take("--overlap-p2p-communication");
    if (arguments_.take("--no-scatter-gather-tensors-in-pipeline"))
      draft_.set("plan.scatter_gather", false);
    if (arguments_.take("--use-tp-pp-dp-mapping")) draft_.set("plan.order", "tp-cp-ep-pp-dp");
  }

  // Uneven stages: a layout, the first and last stage's own counts, or embedding and loss counted
  // as layers.
  void read_stage_layers(std::int64_t pp, std::optional<std::int64_t> layers,
                         std::optional<std::int64_t>& vpp) {
    if (const auto layout = arguments_.word("--pipeline-model-parallel-layout")) {
      try {
        const std::vector<std::int64_t> stages = layers_of_layout(*layout);
        draft_.set("plan.stage_layers", stages);
        vpp = std::max<std::int64_t>(1, static_cast<std::int64_t>(stages.size()) / pp);
      } catch (const InvalidInput& error) {
        arguments_.problem("--pipeline-model-parallel-layout", error.problems().front().message);
      }
      return;
    }
    auto first = arguments_.integer("--decoder-first-pipeline-num-layers");
    auto last = arguments_.integer("--decoder-last-pipeline-num-layers");
    const bool embedding = arguments_.take("--account-for-embedding-in-pipeline-split");
    const bool loss = arguments_.take("--account-for-loss-in-pipeline-split");
    if (!layers || pp < 2 || (!first && !last && !embedding && !loss)) return;
    const std::int64_t stages = pp * vpp.value_or(1);
    if (embedding || loss) {
      const std::int64_t each = (*layers + (embedding ? 1 : 0) + (loss ? 1 : 0)) / stages;
      if (embedding) first = each - 1;
      if (loss) last = each - 1;
    }
    const std::int64_t between = stages - (first ? 1 : 0) - (last ? 1 : 0);
    const std::int64_t rest = *layers - first.value_or(0) - last.value_or(0);
    const bool divides = between > 0 ? rest % between == 0 : rest == 0;
    if (between < 0 || rest < 0 || !divides) {
      arguments_.problem("--pipeline-model-parallel-size",
                         std::to_string(rest) + " layers do not divide over the " +
                             std::to_string(between) + " stages between first and last");
      return;
    }
    std::vector<std::int64_t> counts(static_cast<std::size_t>(stages),
                                     between > 0 ? rest / between : 0);
    if (first) counts.front() = *first;
    if (last) counts.back() = *last;
    draft_.set("plan.stage_layers", counts);
  }

  void read_data_parallelism() {
    std::string kind =
        arguments_.take("--use-distributed-optimizer") ? "distributed_optimizer" : "ddp";
    if (arguments_.take("--use-torch-fsdp2")) kind = "fsdp";
    if (arguments_.take("--torch-fsdp2-no-reshard-after-forward"))
      draft_.set("plan.reshard_after_forward", false);
    const auto sharding =
        arguments_.choice("--data-parallel-sharding-strategy", {{"no_shard", "ddp"},
                                                                {"optim", "zero1"},
                                                                {"optim_grads", "zero2"},
                                                                {"optim_grads_params", "fsdp"}});
    const bool megatron_fsdp =
        arguments_.take("--use-megatron-fsdp") | arguments_.take("--use-custom-fsdp");
    if (megatron_fsdp) kind = sharding.value_or("ddp");
    const auto stage = arguments_.choice(
        "--zero-stage", {{"0", "ddp"}, {"1", "zero1"}, {"2", "zero2"}, {"3", "zero3"}});
    if (stage && arguments_.has("--deepspeed")) kind = *stage;
    draft_.set("plan.dp_kind", kind);
    if (stage) return;  // DeepSpeed's own file says what overlaps
    read_switch("--overlap-grad-reduce", "plan.overlap_grad_reduce", true);
    read_switch("--overlap-param-gather", "plan.overlap_param_gather", true);
  }

  void read_context_parallelism() {
    const auto kind = arguments_.choice("--cp-comm-type", {{"p2p", "ring"},
                                                           {"a2a", "ulysses"},
                                                           {"all_gather", "allgather"},
                                                           {"allgather", "allgather"},
                                                           {"a2a+p2p", "ulysses+ring"}});
    const auto levels = arguments_.values("--hierarchical-context-parallel-sizes");
    if (arguments_.integer("--context-parallel-size").value_or(1) == 1) return;
    draft_.set("plan.cp_kind", kind.value_or("ring"));
    if (levels && !levels->empty() && kind == "ulysses+ring")
      draft_.set_text("plan.ulysses_degree", levels->front());
  }

  void read_recomputation() {
    auto kind = arguments_.choice("--recompute-granularity",
                                  {{"full", "full"}, {"selective", "selective"}});
    if (arguments_.take("--recompute-activations")) kind = "selective";
    if (arguments_.take("--checkpoint-activations") ||
        arguments_.take("--deepspeed-activation-checkpointing"))
      kind = "full";
    draft_.set("plan.recompute", kind.value_or("none"));
    const auto method =
        arguments_.choice("--recompute-method", {{"uniform", "uniform"}, {"block", "block"}});
    const auto count = arguments_.integer("--recompute-num-layers");
    if (kind == "full" && method == "block" && count) draft_.set("plan.recompute_layers", *count);
    if (kind == "full" && method == "uniform" && count.value_or(1) > 1) {
      draft_.lose("--recompute-num-layers " + std::to_string(*count) +
                  ": each layer is recomputed from its own input");
    }
    if (const auto modules = arguments_.values("--recompute-modules");
        modules && kind == "selective")
      draft_.set("plan.recompute_modules", *modules);
  }

  void read_optimizer() {
    const auto kind = arguments_.choice("--optimizer", {{"adam", "adamw"},
                                                        {"sgd", "sgd"},
                                                        {"muon", "muon"},
                                                        {"dist_muon", "muon"},
                                                        {"lion", "lion"}});
    if (kind) draft_.set("plan.optimizer", *kind);
    Words offload;
    if (arguments_.take("--optimizer-cpu-offload") | arguments_.take("--cpu-optimizer"))
      offload.emplace_back("optimizer");
    if (const auto layers = arguments_.integer("--cpu-offloading-num-layers")) {
      offload.emplace_back("activations");
      draft_.set("plan.offload_layers", *layers);
    }
    arguments_.take("--cpu-offloading");
    if (!offload.empty()) draft_.set("plan.offload", offload);
  }

  void judge_the_rest() {
    for (const std::string& flag : arguments_.left_over()) {
      if (kLostFlags.contains(flag)) {
        draft_.lose(flag);
      } else if (const std::set<std::string>& known = known_flags(); known.contains(flag)) {
        draft_.ignore(flag);
      } else {
        const std::string near = nearest(flag, {known.begin(), known.end()});
        arguments_.problem(flag, "no argument of Megatron-LM" +
                                     (near.empty() ? "" : "; did you mean " + near + "?"));
      }
    }
  }

  // Every flag of every version.
  static const std::set<std::string>& known_flags() {
    static const std::set<std::string> kKnown = [] {
      std::set<std::string> known;
      const std::string path = "sim/formats/flags/megatron.json";
      const JsonNode table = JsonNode::parse_text(find_shipped_file(path)->content, path);
      for (const std::string& group : table.keys()) {
        const JsonNode flags = *table.find(group);
        if (!flags.is_array()) continue;
        for (const JsonNode& flag : flags.elements()) known.insert("--" + flag.string());
      }
      return known;
    }();
    return kKnown;
  }

  Problems problems_;
  FlagArguments launcher_, arguments_;
  JobDraft draft_;
};

std::string flag_of(std::string key) {
  if (key.starts_with("--")) return key;
  std::replace(key.begin(), key.end(), '_', '-');
  return "--" + key;
}

// Leaves of a YAML document as flags with values; true is a flag without one, false and null none.
void add_leaves(const YAML::Node& node, const std::string& key, Words& words) {
  if (node.IsMap()) {
    for (const auto& member : node) {
      const std::string name = member.first.as<std::string>();
      if (name == "ENV_VARS") continue;  // of the test recipes: the shell's, not the training's
      add_leaves(member.second, name, words);
    }
    return;
  }
  if (key.empty() || node.IsNull()) return;
  if (node.IsSequence()) {
    words.push_back(flag_of(key));
    for (const YAML::Node& element : node) {
      if (element.IsScalar()) words.push_back(element.Scalar());
    }
    return;
  }
  const std::string& value = node.Scalar();
  if (value == "false" || value == "False") return;
  words.push_back(flag_of(key));
  if (value != "true" && value != "True") words.push_back(value);
}

Words yaml_arguments(std::string_view text, const std::string& file) {
  try {
    Words words;
    const YAML::Node document = YAML::Load(std::string(text));
    if (!document.IsMap()) throw InvalidInput(file, "", "no mapping; expected names and values");
    const YAML::Node arguments = document["MODEL_ARGS"];
    add_leaves(arguments ? arguments : document, "", words);
    return words;
  } catch (const YAML::Exception& error) {
    throw InvalidInput(file, "", "no YAML: " + std::string(error.what()));
  }
}

}  // namespace

JobDraft import_megatron(std::string_view text, const std::string& file) {
  const bool yaml = file.ends_with(".yaml") || file.ends_with(".yml");
  const Words words = yaml ? yaml_arguments(text, file) : shell_arguments(text, file);
  if (words.empty()) {
    throw InvalidInput(file, "",
                       "no arguments; expected a launch script or a list such as "
                       "--tensor-model-parallel-size 8");
  }
  return MegatronImport(words, file).draft();
}

}  // namespace headway
