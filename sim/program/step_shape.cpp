#include "sim/program/step_shape.hpp"

namespace headway {

StepShape::StepShape(const Job& job) {
  const ParallelPlan& plan = job.plan;
  const Transformer& model = job.model;
  tp = plan.tp;
  dp = plan.dp;
  pp = plan.pp;
  sequence_parallel = plan.sequence_parallel && tp > 1;

  schedule = {pp, plan.vpp, static_cast<int>(plan.micro_batches), plan.vpp_group};
  const Schedule* leaf = schedule_of(plan);
  splits_backward = pp > 1 && leaf != nullptr && leaf->splits_backward;

  vocabulary_spread =
      plan.vocabulary != Vocabulary::kLastStage && plan.vocabulary != Vocabulary::kRedistributed;

  sequences = plan.micro_batch;
  sequence = job.sequence_length;
  tokens = sequences * sequence;
  local_tokens = sequence_parallel ? tokens / tp : tokens;

  layers = model.num_hidden_layers;
  hidden = model.hidden_size;
  heads = model.num_attention_heads / tp;
  key_value_heads = model.num_key_value_heads / tp;
  head_dim = model.head_dim;
  qkv_columns = (heads + 2 * key_value_heads) * head_dim;
  context_columns = heads * head_dim;
  intermediate = model.intermediate_size / tp;
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

  sharded_parameters = dp > 1 && (plan.dp_kind == DataParallelKind::kZero3 ||
                                  plan.dp_kind == DataParallelKind::kFsdp);
  // Over a pipeline the frameworks reduce once per step (torch.distributed.pipelining, stage.py).
  fresh_gradients =
      pp == 1 && (sharded_parameters || (dp > 1 && plan.dp_kind == DataParallelKind::kZero2));

  dropout = job.software.dropout > 0;
  loss_scale = 1.0 / static_cast<double>(job.global_batch * job.sequence_length);
}

}  // namespace headway
