#include "sim/plan/data_legality.hpp"

#include <algorithm>

namespace headway {
namespace {

std::string text(std::int64_t number) { return std::to_string(number); }

class DataLegality {
 public:
  DataLegality(PlanReading& reading, const PlanContext& context, JobSection& section,
               std::optional<std::int64_t> dp, std::vector<std::string>& notes)
      : reading_(reading),
        plan_(reading.plan),
        kind_(reading.dp_kind),
        context_(context),
        section_(section),
        notes_(notes) {
    if (dp && reading.cp) ranks_ = *dp * *reading.cp;
  }

  void resolve() {
    check_pipeline();
    check_shard();
    resolve_horovod();
    check_rounding();
    check_offload();
    check_versions();
  }

 private:
  void problem(std::string_view key, std::string message) {
    section_.problem(key, std::move(message));
  }
  void refuse(std::string_view key, std::string rule) {
    not_yet(reading_.not_built, section_, key, std::move(rule));
  }

  void check_pipeline() {
    // DeepSpeed's pipeline engine asserts this (deepspeed/runtime/pipe/engine.py).
    const bool partitions = kind_ == "zero2" || kind_ == "zero3" || kind_ == "zero++";
    if (partitions && reading_.pp.value_or(1) > 1) {
      problem("dp_kind", kind_ + " does not go with pp " + text(*reading_.pp) +
                             ": gradients that are partitioned in every micro-batch cannot be "
                             "accumulated over a pipeline; expected zero1, or pp 1");
    }
  }

  // What is rounded are whole tensors, of whole sequences.
  void check_rounding() {
    if (kind_ != "zero++") return;
    if (reading_.tp.value_or(1) > 1) refuse("dp_kind", "zero++ with tensor parallelism");
    if (reading_.cp.value_or(1) > 1) refuse("dp_kind", "zero++ with context parallelism");
    plan_.overlap_grad_reduce = true;
  }

  // HOROVOD_FUSION_THRESHOLD and HOROVOD_CYCLE_TIME since 0.21 (horovod/common/operations.cc; up to
  // 0.19 they were 64 MiB and 5 ms).
  void resolve_horovod() {
    if (kind_ != "horovod") return;
    constexpr Bytes kFusionBuffer{std::int64_t{128} << 20};
    const Time cycle = Time::from_microseconds(1000);
    plan_.cycle_time = reading_.cycle_time.value_or(cycle);
    if (!section_.given("bucket") && !section_.given("bucket_elements")) {
      plan_.bucket_elements = std::nullopt;
      reading_.bucket = kFusionBuffer;
    }
    if (!plan_.overlap_grad_reduce && section_.given("overlap_grad_reduce"))
      notes_.push_back(
          "plan.overlap_grad_reduce has no effect: dp_kind horovod reduces beside the "
          "backward pass");
    plan_.overlap_grad_reduce = true;
  }

  // Updates of single micro-batches, by which no rank waits for another.
  void check_versions() {
    if (plan_.schedule != "pipedream" || reading_.pp.value_or(1) == 1) return;
    const auto refuse_with = [&](const std::string& what) {
      refuse("schedule", "pipedream with " + what);
    };
    if (kind_ != "ddp" && ranks_.value_or(2) > 1) refuse_with("dp_kind " + kind_);
    if (plan_.offload.optimizer) refuse_with("an offloaded optimizer");
    if (plan_.optimizer != "adamw" && plan_.optimizer != "sgd") refuse_with(plan_.optimizer);
    if (plan_.vocabulary != Vocabulary::kLastStage) refuse_with("a spread vocabulary");
    if (context_.model && context_.model->tie_word_embeddings)
      refuse_with("tied word embeddings, whose two copies would see other updates");
    if (context_.model && context_.model->num_experts > 0) refuse_with("experts");
    const auto& layers = plan_.stage_layers;
    if (std::find(layers.begin(), layers.end(), 0) != layers.end())
      refuse_with("a stage without layers");
  }

  // Which ranks share out the state: neighbours among those that hold the same parameters.
  void check_shard() {
    const bool groups = kind_ == "hsdp" || kind_ == "zero1" || kind_ == "zero++";
    if (!groups || section_.left_open("shard")) return;
    std::optional<std::int64_t> shard = reading_.shard;
    if (kind_ == "hsdp" && !shard) {
      problem("shard",
              "missing; expected how many of the data-parallel ranks share out the parameters, for "
              "dp_kind hsdp");
    }
    if (!ranks_) return;
    // DeepSpeed's tutorial of hpZ: the secondary share stays in the node.
    if (kind_ == "zero++" && !shard && context_.gpus_per_node > 0) {
      shard = std::min(*ranks_, context_.gpus_per_node);
    }
    if (!shard) return;
    if (*ranks_ % *shard != 0) {
      problem("shard", text(*shard) + " does not divide the " + text(*ranks_) +
                           " ranks that hold the same parameters (dp x cp)");
      return;
    }
    if (*shard == 1 && *ranks_ > 1) {
      problem("shard", "1 shares out nothing; expected at least 2, or dp_kind ddp");
      return;
    }
    if (*shard < *ranks_ && !neighbours()) return;
    plan_.shard = *shard < *ranks_ || kind_ == "zero++" ? static_cast<int>(*shard) : 0;
    if (plan_.shard == 0 && section_.given("shard"))
      notes_.push_back("plan.shard has no effect: all " + text(*ranks_) + " ranks share");
    if (plan_.shard > 0 && context_.model && context_.model->num_experts > 0)
      refuse("shard", "groups that share out the state with experts");
  }

  // Whether dp and cp stand side by side in the order of ranks.
  bool neighbours() {
    if (reading_.cp.value_or(1) == 1) return true;
    std::string order = plan_.order;
    if (const std::size_t ep = order.find("ep-"); ep != std::string::npos) order.erase(ep, 3);
    if (order.find("cp-dp") != std::string::npos || order.find("dp-cp") != std::string::npos)
      return true;
    problem("order", "\"" + plan_.order + "\": with shard, dp and cp are expected side by side");
    return false;
  }

  void check_offload() {
    const Offload& offload = plan_.offload;
    if (offload == Offload{}) return;
    if (!context_.has_host_memory) {
      problem("offload",
              "the topology does not state the memory of its nodes' CPUs "
              "(/node/host_memory), which what is offloaded needs");
    }
    const DataParallelKind kind = reading_.plan.dp_kind;
    const bool torch = is_fsdp(kind), sharded = shards_parameters(kind);
    if (torch && offload.optimizer != offload.parameters) {
      problem("offload", kind_ + " offloads optimizer and parameters together (CPUOffloadPolicy)");
    } else if (offload.parameters && !offload.optimizer) {
      problem("offload", "parameters are offloaded where the optimizer is; expected both");
    } else if (offload.parameters && !sharded) {
      problem("offload", "dp_kind " + kind_ +
                             " keeps the parameters whole on the device; "
                             "expected zero3 or fsdp");
    }
    if (offload.parameters && sharded && ranks_ == 1)
      refuse("offload", "offload of parameters of one rank");
    if (offload.optimizer) check_optimizer(sharded || kind_ == "zero2");
    if (offload.activations && context_.model && context_.model->num_experts > 0)
      refuse("offload", "offload of activations of experts");
  }

  void check_optimizer(bool every_micro_batch) {
    const auto refuse_with = [&](const std::string& what) {
      refuse("offload", "offload of the optimizer with " + what);
    };
    if (kind_ == "zero++" || kind_ == "horovod") refuse_with("dp_kind " + kind_);
    if (plan_.optimizer != "adamw" && plan_.optimizer != "sgd") refuse_with(plan_.optimizer);
    if (!plan_.synchronous_optimizer && reading_.pp.value_or(1) > 1)
      refuse_with("a post-validated step");
    if (plan_.vocabulary != Vocabulary::kLastStage &&
        plan_.vocabulary != Vocabulary::kRedistributed && reading_.pp.value_or(1) > 1)
      refuse_with("vocabulary " + std::string(name(plan_.vocabulary)));
    // What each rank's own tokens give is summed over tp once a step, on the device.
    if (every_micro_batch && plan_.sequence_parallel && reading_.tp.value_or(1) > 1)
      refuse_with("dp_kind " + kind_ + " and sequence parallelism");
    if (!plan_.overlap_param_gather) return;
    if (section_.given("overlap_param_gather"))
      notes_.push_back(
          "plan.overlap_param_gather has no effect: parameters come up and are "
          "gathered behind the host's update");
    plan_.overlap_param_gather = false;
  }

  PlanReading& reading_;
  ParallelPlan& plan_;
  const std::string& kind_;
  const PlanContext& context_;
  JobSection& section_;
  std::vector<std::string>& notes_;
  std::optional<std::int64_t> ranks_;  // that hold the same parameters
};

}  // namespace

void check_data_parallelism(PlanReading& reading, const PlanContext& context, JobSection& section,
                            std::optional<std::int64_t> dp, std::vector<std::string>& notes) {
  DataLegality(reading, context, section, dp, notes).resolve();
}

}  // namespace headway
