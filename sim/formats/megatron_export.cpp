#include <algorithm>
#include <array>
#include <utility>

#include "sim/formats/megatron.hpp"
#include "sim/formats/pipeline_layout.hpp"
#include "sim/formats/resolved_values.hpp"

namespace headway {

const std::vector<FlagMeaning>& megatron_counts() {
  static const std::vector<FlagMeaning> kCounts = {
      {"--num-layers", "model.num_hidden_layers"},
      {"--hidden-size", "model.hidden_size"},
      {"--ffn-hidden-size", "model.intermediate_size"},
      {"--num-attention-heads", "model.num_attention_heads"},
      {"--kv-channels", "model.head_dim"},
      {"--vocab-size", "model.vocab_size"},
      {"--num-experts", "model.num_experts"},
      {"--moe-router-topk", "model.num_experts_per_tok"},
      {"--moe-ffn-hidden-size", "model.moe_intermediate_size"},
      {"--moe-shared-expert-intermediate-size", "model.shared_expert_intermediate_size"},
      {"--moe-router-num-groups", "model.n_group"},
      {"--moe-router-group-topk", "model.topk_group"},
      {"--mtp-num-layers", "model.num_nextn_predict_layers"},
      {"--seq-length", "sequence_length"},
      {"--global-batch-size", "global_batch"},
      {"--micro-batch-size", "plan.micro_batch"},
      {"--tensor-model-parallel-size", "plan.tp"},
      {"--model-parallel-size", "plan.tp"},  // of version 1
      {"--pipeline-model-parallel-size", "plan.pp"},
      {"--context-parallel-size", "plan.cp"},
      {"--expert-model-parallel-size", "plan.ep"},
      {"--expert-tensor-parallel-size", "plan.etp"},
      {"--microbatch-group-size-per-virtual-pipeline-stage", "plan.vpp_group"},
      {"--ddp-bucket-size", "plan.bucket_elements"}};
  return kCounts;
}

const std::vector<FlagMeaning>& megatron_latent_attention() {
  static const std::vector<FlagMeaning> kRanks = {
      {"--q-lora-rank", "model.q_lora_rank"},
      {"--kv-lora-rank", "model.kv_lora_rank"},
      {"--qk-head-dim", "model.qk_nope_head_dim"},
      {"--qk-pos-emb-head-dim", "model.qk_rope_head_dim"},
      {"--v-head-dim", "model.v_head_dim"}};
  return kRanks;
}

namespace {

using Words = std::vector<std::string>;

class MegatronExport {
 public:
  MegatronExport(const Job& job, const std::string& name) : job_(job), values_(job), name_(name) {}

  std::string text() {
    write_counts();
    write_model();
    write_experts();
    write_precision();
    write_kernels();
    write_pipeline();
    write_data_parallelism();
    write_context_parallelism();
    write_recomputation();
    write_optimizer();
    refuse_the_rest();
    problems_.throw_if_any();
    std::string all = launcher();
    for (const std::string& line : lines_) all += " \\\n    " + line;
    return all + "\n";
  }

 private:
  void add(const std::string& flag) { lines_.push_back(flag); }
  void add(const std::string& flag, const std::string& value) {
    lines_.push_back(flag + " " + value);
  }
  void refuse(const std::string& key, const std::string& why) { problems_.add(name_, key, why); }

  std::string launcher() const {
    const int per_node = job_.gpus() / std::max(1, job_.topology.nodes());
    return "torchrun --nproc_per_node " + std::to_string(per_node) + " --nnodes " +
           std::to_string(job_.topology.nodes()) + " pretrain_gpt.py";
  }

  // Each key by the first flag of the table that says it.
  void write_counts() {
    Words said;
    for (const FlagMeaning& row : megatron_counts()) {
      if (std::find(said.begin(), said.end(), row.key) != said.end()) continue;
      said.push_back(row.key);
      const auto value = values_.integer(row.key);
      if (value && !goes_without_saying(row.key, *value)) add(row.flag, std::to_string(*value));
    }
  }
  // What Megatron-LM does where it is not told.
  bool goes_without_saying(const std::string& key, std::int64_t value) const {
    static const Words kOneByDefault = {"plan.cp", "plan.ep", "model.n_group", "model.topk_group"};
    if (value == 0) return true;
    if (key == "model.head_dim" && job_.model.latent_attention) return true;
    return value == 1 &&
           std::find(kOneByDefault.begin(), kOneByDefault.end(), key) != kOneByDefault.end();
  }

  void write_model() {
    const auto heads = values_.integer("model.num_attention_heads");
    const auto groups = values_.integer("model.num_key_value_heads");
    if (groups && groups != heads) {
      add("--group-query-attention");
      add("--num-query-groups", std::to_string(*groups));
    }
    if (values_.truth("model.gated_mlp")) add("--swiglu");
    const bool rms = values_.word("model.norm") == "rmsnorm";
    add("--normalization", rms ? "RMSNorm" : "LayerNorm");
    if (rms) add("--disable-bias-linear");
    if (!values_.truth("model.tie_word_embeddings")) add("--untie-embeddings-and-output-weights");
    write_positions();
    write_latent_attention();
    if (job_.model.sliding_window) add("--window-size", window_words(*job_.model.sliding_window));
  }

  // Keys that a query sees before itself, and none behind it.
  static std::string window_words(std::int64_t window) { return std::to_string(window - 1) + ",0"; }

  void write_latent_attention() {
    if (!job_.model.latent_attention) return;
    add("--multi-latent-attention");
    for (const FlagMeaning& row : megatron_latent_attention()) {
      if (const auto value = values_.integer(row.key); value && *value > 0)
        add(row.flag, std::to_string(*value));
    }
  }

  void write_experts() {
    if (job_.model.num_experts == 0) return;
    if (const std::string kind = values_.word("plan.moe.kind"); kind != "megatron")
      refuse("plan.moe.kind", "Megatron-LM's experts are of kind megatron, not " + kind);
    add("--moe-grouped-gemm");
    write_expert_layers();
    write_router();
    write_dispatcher();
    if (values_.truth("plan.moe.shared_overlap")) add("--moe-shared-expert-overlap");
    if (values_.truth("plan.moe.overlap")) add("--overlap-moe-expert-parallel-comm");
  }

  // "([0]*3+[1]*58)": the first three are dense.
  void write_expert_layers() {
    const std::int64_t dense = job_.model.experts.first_dense_layers;
    const std::int64_t every = job_.model.experts.frequency;
    if (dense > 0 && every > 1) {
      refuse("model.moe_layer_freq", "no pattern of dense layers first and between");
    } else if (dense > 0) {
      add("--moe-layer-freq", "\"([0]*" + std::to_string(dense) + "+[1]*" +
                                  std::to_string(job_.model.num_hidden_layers - dense) + ")\"");
    } else if (every > 1) {
      add("--moe-layer-freq", std::to_string(every));
    }
  }

  void write_router() {
    const bool balanced = values_.truth("plan.moe.aux_loss");
    add("--moe-router-load-balancing-type", balanced ? "aux_loss" : "none");
    if (job_.model.experts.router_bias) {
      add("--moe-router-score-function", "sigmoid");
      add("--moe-router-enable-expert-bias");
    }
    const std::string factor = values_.text("plan.moe.capacity_factor");
    values_.word("plan.moe.capacity_factor");
    if (values_.truth("plan.moe.drop")) add("--moe-expert-capacity-factor", factor);
  }

  void write_dispatcher() {
    const std::string dispatch = values_.word("plan.moe.dispatch");
    const bool flexible = dispatch == "deepep" || dispatch == "hybridep";
    add("--moe-token-dispatcher-type", flexible ? "flex" : dispatch);
    if (flexible) add("--moe-flex-dispatcher-backend", dispatch);
    if (values_.word("plan.moe.dispatch_dtype") == "fp8") {
      refuse("plan.moe.dispatch_dtype", "Megatron-LM sends tokens as they are, in 16 bits");
    }
  }

  void write_positions() {
    const std::string kind = values_.word("model.position_embedding");
    if (kind == "alibi") {
      refuse("model.position_embedding", "Megatron-LM has no alibi; it has rope, learned and none");
      return;
    }
    add("--position-embedding-type", kind == "learned" ? "learned_absolute" : kind);
    add("--max-position-embeddings",
        std::to_string(std::max(job_.model.max_positions, job_.sequence_length)));
  }

  void write_precision() {
    const std::string precision = values_.word("precision");
    static constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kRecipes = {
        {{"fp8-delayed", "delayed"},
         {"fp8-current", "tensorwise"},
         {"fp8-block", "blockwise"},
         {"mxfp8", "mxfp8"}}};
    if (precision == "fp16") {
      add("--fp16");
    } else if (precision == "tf32" || precision == "fp64") {
      refuse("precision", "Megatron-LM trains in fp32, fp16, bf16, fp8 or nvfp4, not " + precision);
    } else if (precision != "fp32") {
      add("--bf16");
    }
    for (const auto& [ours, theirs] : kRecipes) {
      if (precision != ours) continue;
      add("--fp8-format", "hybrid");
      add("--fp8-recipe", std::string(theirs));
    }
    if (precision == "nvfp4") add("--fp4-format", "e2m1");
    const std::string gradients = values_.word("plan.grad_dtype");
    if (gradients == "fp32" && precision != "fp32") add("--accumulate-allreduce-grads-in-fp32");
    if (gradients == "bf16") add("--grad-reduce-in-bf16");
    const std::string gather = values_.word("plan.param_gather_dtype");
    if (gather == "fp8") add("--fp8-param-gather");
  }

  void write_kernels() {
    const std::string attention = values_.word("software.attention");
    if (attention == "cudnn") add("--attention-backend", "fused");
    if (attention == "flash2") add("--attention-backend", "flash");
    if (attention == "unfused") add("--attention-backend", "unfused");
    if (attention == "flash1" || attention == "flash3") {
      refuse("software.attention", "Megatron-LM takes whichever FlashAttention is installed; " +
                                       attention + " has no argument");
    }
    if (!values_.truth("software.fused_kernels")) {
      add("--no-masked-softmax-fusion");
      add("--no-bias-gelu-fusion");
      add("--no-bias-swiglu-fusion");
    }
    if (values_.truth("software.fused_loss")) add("--cross-entropy-loss-fusion");
    if (values_.word("software.launch") == "cuda_graph") add("--enable-cuda-graph");
    if (values_.truth("plan.sequence_parallel")) add("--sequence-parallel");
    const std::string overlap = values_.word("plan.tp_overlap");
    if (overlap == "ring") add("--tp-comm-overlap");
    if (overlap == "bulk")
      refuse("plan.tp_overlap", "Megatron-LM's --tp-comm-overlap is ring and bulk together");
  }

  void write_pipeline() {
    const std::string schedule = values_.word("plan.schedule");
    const auto pp = values_.integer("plan.pp").value_or(1);
    const auto vpp = values_.integer("plan.vpp").value_or(1);
    if (pp > 1 && schedule != "1f1b" && schedule != "interleaved") {
      refuse("plan.schedule", "Megatron-LM has no " + schedule + "; it has 1f1b and interleaved");
    }
    const std::vector<std::int64_t> layers = values_.integers("plan.stage_layers");
    const bool even = std::equal(layers.begin() + 1, layers.end(), layers.begin());
    if (!even) {
      add("--pipeline-model-parallel-layout", "\"" + layout(layers) + "\"");
    } else if (vpp > 1) {
      add("--num-virtual-stages-per-pipeline-rank", std::to_string(vpp));
    }
    const bool overlaps = values_.truth("plan.overlap_p2p");
    if (vpp > 1 && !overlaps) add("--no-overlap-p2p-communication");
    if (pp > 1 && vpp == 1 && overlaps) {
      refuse("plan.overlap_p2p", "Megatron-LM overlaps p2p only in the interleaved schedule");
    }
    if (values_.truth("plan.scatter_gather") && !values_.truth("plan.sequence_parallel"))
      refuse("plan.scatter_gather", "removed from Megatron-LM; sequence_parallel implies it");
    const std::string order = values_.word("plan.order");
    if (order == "tp-cp-ep-pp-dp") {
      add("--use-tp-pp-dp-mapping");
    } else if (order != "tp-cp-ep-dp-pp") {
      refuse("plan.order", "Megatron-LM places ranks tp-cp-ep-dp-pp or tp-cp-ep-pp-dp");
    }
  }

  // Layers that predict tokens further ahead stand before the loss.
  std::string layout(const std::vector<std::int64_t>& layers) const {
    std::string text = layout_of_layers(layers);
    const auto ahead = static_cast<std::size_t>(job_.model.num_nextn_predict_layers);
    return text.insert(text.size() - 1, ahead, 'm');
  }

  void write_data_parallelism() {
    const std::string kind = values_.word("plan.dp_kind");
    if (kind == "distributed_optimizer") {
      add("--use-distributed-optimizer");
    } else if (kind == "fsdp") {
      add("--use-torch-fsdp2");
      if (!values_.truth("plan.reshard_after_forward"))
        add("--torch-fsdp2-no-reshard-after-forward");
      values_.integer("plan.prefetch");
    } else if (kind != "ddp") {
      values_.integer("plan.shard");
      refuse("plan.dp_kind",
             "Megatron-LM has no " + kind + "; it has ddp, distributed_optimizer and fsdp");
    }
    if (values_.truth("plan.overlap_grad_reduce")) add("--overlap-grad-reduce");
    if (values_.truth("plan.overlap_param_gather")) add("--overlap-param-gather");
  }

  void write_context_parallelism() {
    const std::string kind = values_.word("plan.cp_kind");
    const auto degree = values_.integer("plan.ulysses_degree");
    const auto cp = values_.integer("plan.cp").value_or(1);
    if (cp == 1) return;
    static constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kKinds = {
        {{"ring", "p2p"},
         {"ulysses", "a2a"},
         {"allgather", "all_gather"},
         {"ulysses+ring", "a2a+p2p"}}};
    for (const auto& [ours, theirs] : kKinds) {
      if (kind == ours) add("--cp-comm-type", std::string(theirs));
    }
    if (kind == "ulysses+ring" && degree)
      add("--hierarchical-context-parallel-sizes",
          std::to_string(*degree) + " " + std::to_string(cp / *degree));
  }

  void write_recomputation() {
    const std::string kind = values_.word("plan.recompute");
    const auto layers = values_.integer("plan.recompute_layers").value_or(0);
    if (kind == "none" || kind.empty()) return;
    add("--recompute-granularity", kind);
    std::string modules;
    for (const std::string& module : values_.words("plan.recompute_modules"))
      modules += (modules.empty() ? "" : " ") + module;
    if (kind == "selective" && !modules.empty()) add("--recompute-modules", modules);
    if (kind != "full") return;
    add("--recompute-method", layers > 0 ? "block" : "uniform");
    add("--recompute-num-layers", std::to_string(std::max<std::int64_t>(layers, 1)));
  }

  void write_optimizer() {
    const std::string kind = values_.word("plan.optimizer");
    if (kind == "adamw" || kind == "sgd" || kind == "muon") {
      add("--optimizer", kind == "adamw" ? "adam" : kind);
    } else {
      refuse("plan.optimizer", "Megatron-LM has no " + kind + "; it has adamw, sgd and muon");
    }
    write_offload();
    if (!values_.truth("plan.synchronous_optimizer")) {
      refuse("plan.synchronous_optimizer",
             "Megatron-LM waits for the global gradient norm before the step");
    }
  }

  void write_offload() {
    const auto layers = values_.integer("plan.offload_layers");
    for (const std::string& what : values_.words("plan.offload")) {
      if (what == "optimizer") {
        add("--optimizer-cpu-offload");
      } else if (what == "activations") {
        add("--cpu-offloading");
        add("--cpu-offloading-num-layers",
            std::to_string(layers.value_or(0) > 0 ? *layers : job_.plan.stage_layers.front()));
      } else {
        refuse("plan.offload", "Megatron-LM keeps " + what + " on the device");
      }
    }
  }

  // Values of the plan that no argument says: harmless where they follow from others.
  void refuse_the_rest() {
    static const std::vector<std::pair<std::string, std::string>> kAsMegatronDoes = {
        {"plan.tp_kind", "\"1d\""},
        {"plan.vocabulary", "\"last-stage\""},
        {"plan.recompute_keep", "[]"},
        {"plan.tp_overlap", "\"none\""}};
    for (const std::string& key : values_.left_over("plan.")) {
      // What remains of the others; how tokens choose, which is the data's.
      if (key == "plan.dp" || key == "plan.edp" || key == "plan.micro_batches") continue;
      if (key.starts_with("plan.moe.routing")) continue;
      const std::pair<std::string, std::string> value = {key, values_.text(key)};
      if (std::find(kAsMegatronDoes.begin(), kAsMegatronDoes.end(), value) != kAsMegatronDoes.end())
        continue;
      refuse(key, "no argument of Megatron-LM says " + value.second);
    }
  }

  const Job& job_;
  ResolvedValues values_;
  std::string name_;
  Words lines_;
  Problems problems_;
};

}  // namespace

std::string export_megatron(const Job& job, const std::string& name) {
  return MegatronExport(job, name).text();
}

}  // namespace headway
