#include "sim/program/step_shape.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "sim/plan/expert_loads.hpp"
#include "sim/plan/tensor_grid.hpp"
#include "sim/program/expert/expert_rules.hpp"
#include "sim/program/weight_versions.hpp"

namespace headway {

StepShape::StepShape(const Job& job) {
  const ParallelPlan& plan = job.plan;
  const Transformer& model = job.model;
  tp = plan.tp;
  cp = plan.cp;
  dp = plan.dp;
  pp = plan.pp;
  data_ranks = cp * dp;
  shard_ranks =
      plan.shard > 0 && plan.dp_kind != DataParallelKind::kZeroPlusPlus ? plan.shard : data_ranks;
  replicas = data_ranks / shard_ranks;
  ulysses = plan.ulysses_degree;
  ring = cp / ulysses;
  if (ring > 1) order = plan.cp_balance;
  sequence_parallel = plan.sequence_parallel && tp > 1;

  schedule = {pp, plan.vpp, static_cast<int>(plan.micro_batches), plan.vpp_group};
  const Schedule* leaf = schedule_of(plan);
  splits_backward = pp > 1 && leaf != nullptr && leaf->splits_backward;

  if (plan.recompute == Recompute::kSelective) recomputed = plan.recomputed_parts;
  // All of an expert layer runs again once, whatever of it is named beside.
  if (recomputed.experts) recomputed.expert_activation = recomputed.shared_experts = false;

  vocabulary_spread =
      plan.vocabulary != Vocabulary::kLastStage && plan.vocabulary != Vocabulary::kRedistributed;

  sequences = plan.micro_batch;
  sequence = job.sequence_length;
  local_sequence = sequence / cp;
  tokens = sequences * local_sequence;
  local_tokens = sequence_parallel ? tokens / tp : tokens;
  const int columns = column_ranks(plan);
  core_sequences = sequences / (tp / columns);
  block_tokens = tokens / (tp / columns);

  layers = model.num_hidden_layers;
  hidden = model.hidden_size;
  heads = model.num_attention_heads / columns;
  key_value_heads = std::max<std::int64_t>(model.num_key_value_heads / columns, 1);
  key_value_copies = headway::key_value_copies(model, columns);
  head_dim = model.head_dim;
  value_head_dim = head_dim;
  // Latent attention has keys and values of every head.
  if (model.latent_attention) {
    key_value_heads = heads;
    value_head_dim = model.latent_attention->v_head_dim;
  }
  qkv_columns = (heads + key_value_heads) * head_dim + key_value_heads * value_head_dim;
  context_columns = heads * value_head_dim;
  core_heads = heads / ulysses;
  core_key_value_heads = key_value_heads / ulysses;
  core_sequence = local_sequence * ulysses;
  if (model.sliding_window && *model.sliding_window < sequence) window = *model.sliding_window;
  intermediate = model.intermediate_size / columns;
  if (model.num_experts > 0) set_experts(job);
  padded_vocabulary = job.padded_vocabulary();
  local_vocabulary = padded_vocabulary / tp;

  storage = storage_type(job.precision);
  compute = compute_type(job.precision);
  const bool narrow = storage == DataType::kBf16 || storage == DataType::kFp16;
  head_compute = narrow ? storage : compute;
  statistics = storage == DataType::kFp64 ? DataType::kFp64 : DataType::kFp32;
  gradient = narrow ? plan.gradient_type : storage;
  masters = narrow && job.software.master_parameters;
  moment = narrow && !masters ? storage : statistics;
  logits_are_narrow = narrow;
  quantisation = headway::quantisation(job.precision);
  weight = masters && plan.weights_in_8_bits ? DataType::kFp8 : storage;

  sharded_parameters =
      plan.rounded_ranks > 0 || (reduces_gradients() && shards_parameters(plan.dp_kind));
  // Over a pipeline the frameworks reduce once per step (torch.distributed.pipelining, stage.py).
  fresh_gradients = pp == 1 && (sharded_parameters ||
                                (reduces_gradients() && plan.dp_kind == DataParallelKind::kZero2));

  if (keeps_weight_versions(plan) && !delays_updates(plan)) fresh_gradients = true;

  dropout = job.software.dropout > 0;
  loss_scale = 1.0 / static_cast<double>(job.global_batch * job.sequence_length);
  if (keeps_weight_versions(plan)) {  // of a mini-batch
    const std::int64_t micro_batches = std::max<std::int64_t>(1, plan.micro_batches_per_update);
    loss_scale *= static_cast<double>(plan.micro_batches / micro_batches);
  }
}

// Capacity as GShard defines it (arXiv 2006.16668, section 2.2), of the tokens that fill it
// together: those of one rank.
void StepShape::set_experts(const Job& job) {
  const ExpertLayers& model = job.model.experts;
  const ExpertPlan& moe = job.plan.moe;
  ep = job.plan.ep;
  etp = job.plan.etp;
  edp = job.plan.edp;
  experts = job.model.num_experts / ep;
  expert_intermediate = model.intermediate_size / etp;
  shared_intermediate = model.shared_intermediate_size / tp;
  sent_rows = local_tokens * model.per_token;
  expert_loads = kept_loads(moe.loads, moe.capacity_factor);
  // What is declared is even routing, which a capacity below 1 cuts too.
  const double even_share = std::min(1.0, moe.capacity_factor.value_or(1.0));
  for (std::vector<double>& layer : expert_loads) {
    for (double& load : layer) load /= even_share;
    for (std::int64_t first = 0; first < job.model.num_experts; first += experts) {
      const auto begin = layer.begin() + first;
      hottest_load = std::max(hottest_load, std::accumulate(begin, begin + experts, 0.0) /
                                                static_cast<double>(experts));
    }
  }
  if (!moe.capacity_factor) return;
  const std::int64_t group = sent_rows / moe.token_groups;
  const double even = static_cast<double>(group) / static_cast<double>(job.model.num_experts);
  capacity = static_cast<std::int64_t>(std::ceil(*moe.capacity_factor * even));
  const std::int64_t room = capacity * moe.token_groups * job.model.num_experts;
  const bool padded = expert_rules(job).padded;
  sent_rows = padded ? room : std::min(sent_rows, room);
  if (!padded) return;
  expert_loads.clear();  // all take the same, full or not
  hottest_load = 1;
}

}  // namespace headway
