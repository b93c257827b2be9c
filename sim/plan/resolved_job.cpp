// The resolved job as people and scripts read it: every value with where it came from.
#include <string>

#include "sim/core/json_writer.hpp"
#include "sim/core/quantity.hpp"
#include "sim/plan/job.hpp"

namespace headway {
namespace {

std::string_view word(Origin origin) {
  switch (origin) {
    case Origin::kGiven:
      return "given";
    case Origin::kFramework:
      return "framework";
    case Origin::kDefault:
      return "default";
  }
  return "";
}

std::string_view word(GradientAccumulation accumulation) {
  switch (accumulation) {
    case GradientAccumulation::kFused:
      return "fused";
    case GradientAccumulation::kSameType:
      return "same-type";
    case GradientAccumulation::kMainGradient:
      return "main-gradient";
  }
  return "";
}

class ResolvedJob {
 public:
  ResolvedJob(const Job& job, int indent) : job_(job), writer_(indent) {}

  std::string text() {
    writer_.begin_object();
    write_model();
    write_cluster();
    section_ = "";
    leaf("precision", name(job_.precision));
    if (job_.packs.empty()) {
      leaf("sequence_length", job_.sequence_length);
    } else {
      section_ = "sequence_lengths.";
      writer_.key("sequence_lengths").begin_object();
      leaf("histogram", job_.packed_from);
      leaf("packed_to", job_.sequence_length);
      writer_.end_object();
      section_ = "";
    }
    leaf("global_batch", job_.global_batch);
    write_software();
    write_plan();
    writer_.key("notes").begin_array();
    for (const std::string& note : job_.notes) writer_.value(note);
    writer_.end_array();
    writer_.end_object();
    return writer_.text();
  }

 private:
  Origin origin(const std::string& key, Origin otherwise) const {
    const auto found = job_.origins.find(section_ + key);
    return found == job_.origins.end() ? otherwise : found->second;
  }
  template <typename Value>
  void leaf(const std::string& key, const Value& value, Origin otherwise = Origin::kDefault) {
    writer_.key(key).begin_object(true).field("value", value);
    writer_.field("origin", word(origin(key, otherwise))).end_object();
  }
  template <typename Value>
  void list(const std::string& key, const std::vector<Value>& values) {
    writer_.key(key).begin_object(true).key("value").begin_array(true);
    for (const Value& value : values) writer_.value(value);
    writer_.end_array().field("origin", word(origin(key, Origin::kDefault))).end_object();
  }
  void begin(const std::string& section) {
    section_ = section + ".";
    writer_.key(section).begin_object();
  }

  void write_model() {
    begin("model");
    const Transformer& model = job_.model;
    // Of a preset or a file everything is given; of an inline model what it states.
    const bool inlined = model.name == "inline";
    const Origin other = inlined ? Origin::kDefault : Origin::kGiven;
    leaf("name", model.name, Origin::kGiven);
    leaf("hidden_size", model.hidden_size, other);
    leaf("num_hidden_layers", model.num_hidden_layers, other);
    leaf("num_attention_heads", model.num_attention_heads, other);
    leaf("num_key_value_heads", model.num_key_value_heads, other);
    leaf("head_dim", model.head_dim, other);
    leaf("intermediate_size", model.intermediate_size, other);
    leaf("vocab_size", model.vocab_size, other);
    leaf("hidden_act", name(model.activation), other);
    leaf("gated_mlp", model.gated_mlp, other);
    leaf("tie_word_embeddings", model.tie_word_embeddings, other);
    leaf("position_embedding", name(model.position_embedding), other);
    leaf("norm", std::string_view(model.norm == Norm::kRmsNorm ? "rmsnorm" : "layernorm"), other);
    if (const auto& latent = model.latent_attention) {
      leaf("q_lora_rank", latent->q_lora_rank, other);
      leaf("kv_lora_rank", latent->kv_lora_rank, other);
      leaf("qk_nope_head_dim", latent->qk_nope_head_dim, other);
      leaf("qk_rope_head_dim", latent->qk_rope_head_dim, other);
      leaf("v_head_dim", latent->v_head_dim, other);
    }
    if (model.sliding_window) leaf("sliding_window", *model.sliding_window, other);
    if (model.num_nextn_predict_layers > 0)
      leaf("num_nextn_predict_layers", model.num_nextn_predict_layers, other);
    if (model.num_experts > 0) {
      const ExpertLayers& experts = model.experts;
      leaf("num_experts", model.num_experts, other);
      leaf("num_experts_per_tok", experts.per_token, other);
      leaf("moe_intermediate_size", experts.intermediate_size, other);
      leaf("shared_expert_intermediate_size", experts.shared_intermediate_size, other);
      leaf("first_k_dense_replace", experts.first_dense_layers, other);
      leaf("moe_layer_freq", experts.frequency, other);
      leaf("n_group", experts.groups, other);
      leaf("topk_group", experts.groups_per_token, other);
    }
    writer_.end_object();
  }

  void write_cluster() {
    begin("cluster");
    // A one-line cluster's name ends with its NICs; without them it can be read again.
    std::string topology = job_.topology.name();
    if (job_.nic) topology = topology.substr(0, topology.size() - job_.nic->size() - 1);
    leaf("topology", topology, Origin::kGiven);
    leaf("nodes", job_.topology.nodes());
    leaf("gpus", job_.topology.gpus());
    leaf("profile", job_.profile);
    if (job_.nic) leaf("nic", *job_.nic);
    if (job_.oversubscription) leaf("oversubscription", *job_.oversubscription);
    if (!job_.links.empty()) {
      writer_.key("links").begin_object();
      for (const LinkOverride& link : job_.links) {
        section_ = "cluster.links." + link.kind + ".";
        writer_.key(link.kind).begin_object();
        if (link.bandwidth) leaf("bandwidth", to_text(*link.bandwidth), Origin::kGiven);
        if (link.latency) leaf("latency", to_text(*link.latency), Origin::kGiven);
        writer_.end_object();
      }
      writer_.end_object();
    }
    writer_.end_object();
  }

  void write_software() {
    begin("software");
    const Software& software = job_.software;
    leaf("framework", software.framework);
    for (const auto& [key, kernel] : attention_words()) {
      if (kernel == software.attention) leaf("attention", key);
    }
    leaf("fused_kernels", software.fused_kernels);
    leaf("norm_kernel", std::string_view(software.fused_norm ? "fused" : "unfused"));
    leaf("fused_loss", software.fused_loss);
    leaf("launch", std::string_view(software.launch == Launch::kEager ? "eager" : "cuda_graph"));
    if (software.graph_scope.any()) list("cuda_graph_scope", names(software.graph_scope));
    const Origin framework = Origin::kFramework;  // what only a preset can say
    leaf("fused_rotary", software.fused_rotary, framework);
    leaf("narrow_loss", software.narrow_loss, framework);
    leaf("gathered_logits", software.gathered_logits, framework);
    leaf("dropout", software.dropout, framework);
    leaf("accumulation", word(software.accumulation), framework);
    leaf("master_parameters", software.master_parameters, framework);
    leaf("overlap_tp_input_gradient", software.overlap_tp_input_gradient, framework);
    leaf("vocabulary_multiple", software.vocabulary_multiple, framework);
    leaf("pad_vocabulary_at_tp1", software.pad_vocabulary_at_tp1, framework);
    leaf("batched_p2p", software.batched_p2p, framework);
    leaf("p2p_synchronises", software.p2p_synchronises, framework);
    leaf("p2p_blocking", to_text(software.p2p_blocking), framework);
    leaf("launch_blocking", software.launch_blocking, framework);
    leaf("host_per_kernel_forward", to_text(software.host_per_kernel_forward), framework);
    leaf("host_per_kernel_backward", to_text(software.host_per_kernel_backward), framework);
    leaf("host_per_micro_batch", to_text(software.host_per_micro_batch), framework);
    leaf("host_per_step", to_text(software.host_per_step), framework);
    leaf("dp_network_efficiency", software.dp_network_efficiency, framework);
    leaf("context", to_text(software.context), framework);
    leaf("workspace", to_text(software.workspace), framework);
    writer_.end_object();
  }

  void write_plan() {
    begin("plan");
    const ParallelPlan& plan = job_.plan;
    leaf("tp", plan.tp);
    leaf("cp", plan.cp);
    if (plan.cp > 1) {
      leaf("cp_kind", name(plan.cp_kind));
      if (plan.ulysses_degree < plan.cp) leaf("cp_balance", name(plan.cp_balance));
      if (plan.cp_kind == ContextParallelKind::kUlyssesRing)
        leaf("ulysses_degree", plan.ulysses_degree);
    }
    leaf("ep", plan.ep);
    leaf("pp", plan.pp);
    leaf("dp", plan.dp);
    leaf("sequence_parallel", plan.sequence_parallel);
    if (plan.tp > 1) leaf("tp_overlap", name(plan.tp_overlap));
    if (plan.tp > 1) leaf("tp_kind", name(plan.tp_kind));
    if (plan.tp_kind == TensorKind::k2_5d) leaf("tp_depth", plan.tp_depth);
    leaf("schedule", plan.schedule);
    leaf("vpp", plan.vpp);
    if (plan.schedule == "interleaved")
      leaf("vpp_group", plan.vpp_group == 0 ? plan.pp : plan.vpp_group);
    list("stage_layers", plan.stage_layers);
    leaf("overlap_p2p", plan.overlap_p2p);
    leaf("scatter_gather", plan.scatter_gather);
    leaf("micro_batch", plan.micro_batch);
    leaf("micro_batches", plan.micro_batches);
    leaf("dp_kind", name(plan.dp_kind));
    if (plan.bucket_elements) leaf("bucket_elements", *plan.bucket_elements);
    leaf("overlap_grad_reduce", plan.overlap_grad_reduce);
    leaf("overlap_param_gather", plan.overlap_param_gather);
    if (plan.dp_kind == DataParallelKind::kHorovod) leaf("cycle_time", to_text(plan.cycle_time));
    if (plan.shard > 0) leaf("shard", plan.shard);
    if (is_fsdp(plan.dp_kind)) leaf("reshard_after_forward", plan.reshard_after_forward);
    if (shards_parameters(plan.dp_kind)) leaf("prefetch", plan.prefetch);
    write_offload(plan.offload);
    leaf("grad_dtype", name(plan.gradient_type));
    leaf("recompute", name(plan.recompute));
    if (plan.recompute == Recompute::kSelective) {
      list("recompute_modules", names(plan.recomputed_parts));
    }
    if (plan.recompute == Recompute::kFull) {
      leaf("recompute_layers", plan.recompute_layers);
      list("recompute_keep", names(plan.kept_parts));
    }
    leaf("optimizer", plan.optimizer);
    leaf("synchronous_optimizer", plan.synchronous_optimizer);
    if (plan.pp > 1) leaf("vocabulary", name(plan.vocabulary));
    leaf("order", plan.order);
    if (job_.model.num_experts > 0) write_experts();
    writer_.end_object();
  }

  void write_offload(const Offload& offload) {
    std::vector<std::string> words;
    if (offload.optimizer) words.emplace_back("optimizer");
    if (offload.parameters) words.emplace_back("parameters");
    if (offload.activations) words.emplace_back("activations");
    if (words.empty()) return;
    list("offload", words);
    if (offload.activations) leaf("offload_layers", offload.layers);
  }

  void write_experts() {
    const ExpertPlan& moe = job_.plan.moe;
    leaf("etp", job_.plan.etp);
    leaf("edp", job_.plan.edp);
    section_ = "plan.moe.";
    writer_.key("moe").begin_object();
    leaf("kind", name(moe.kind));
    if (moe.capacity_factor) leaf("capacity_factor", *moe.capacity_factor);
    leaf("drop", moe.capacity_factor.has_value());
    leaf("aux_loss", moe.auxiliary_loss);
    leaf("dispatch", name(moe.dispatch));
    leaf("dispatch_dtype", moe.dispatch_in_8_bits ? "fp8" : "bf16");
    if (moe.nodes_per_token > 0) leaf("max_nodes_per_token", moe.nodes_per_token);
    leaf("shared_overlap", moe.shared_overlap);
    leaf("overlap", moe.overlap);
    writer_.end_object();
    section_ = "plan.";
  }

  const Job& job_;
  JsonWriter writer_;
  std::string section_;
};

}  // namespace

std::string resolved_job_json(const Job& job, int indent) {
  return ResolvedJob(job, indent).text();
}

}  // namespace headway
