// Small resolved jobs for tests of the lowering, without a cluster: a GPT of four layers and its
// variations.
#pragma once

#include "sim/core/error.hpp"
#include "sim/core/json_reader.hpp"
#include "sim/plan/job.hpp"

namespace headway {

// Global batch 8 sequences of 8 tokens, micro-batches of one; Megatron's kernels, no dropout.
// Degrees 1.
inline Job small_job() {
  constexpr const char* kText = R"({
    "model": {"hidden_size": 16, "num_hidden_layers": 4, "num_attention_heads": 4, "head_dim": 4,
              "intermediate_size": 64, "vocab_size": 60, "hidden_act": "gelu"},
    "cluster": {"topology": "dgx-a100", "gpus": 1},
    "precision": "bf16", "sequence_length": 8, "global_batch": 8,
    "software": {"framework": "headway", "attention": "unfused"},
    "plan": {"micro_batch": 1}})";
  Problems problems;
  const JobReading reading = read_job(JsonNode::parse_text(kText, "small"), {}, problems);
  problems.throw_if_any();
  Job job = *reading.job;
  job.software.vocabulary_multiple = 4;
  job.software.fused_loss = false;
  return job;
}

// The same with rotary positions, RMSNorm, a gated MLP, grouped queries, no biases, an own head.
inline Job small_llama() {
  Job job = small_job();
  Transformer& model = job.model;
  model.num_key_value_heads = 2;
  model.activation = Activation::kSilu;
  model.gated_mlp = true;
  model.tie_word_embeddings = false;
  model.linear_bias = false;
  model.position_embedding = PositionEmbedding::kRope;
  model.norm = Norm::kRmsNorm;
  job.software.attention = AttentionKernel::kFlash2;
  return job;
}

// Spread over tp x pp x dp ranks, the layers evenly over pp x vpp stages.
inline Job spread(Job job, int tp, int pp, int dp, int vpp = 1) {
  job.plan.tp = tp;
  job.plan.pp = pp;
  job.plan.dp = dp;
  job.plan.vpp = vpp;
  if (vpp > 1) job.plan.schedule = "interleaved";
  job.plan.micro_batches = job.global_batch / dp / job.plan.micro_batch;
  const std::int64_t stages = pp * vpp;
  job.plan.stage_layers.assign(static_cast<std::size_t>(stages),
                               job.model.num_hidden_layers / stages);
  return job;
}

}  // namespace headway
