// The numbers a training step is lowered with: local shapes of one rank, element types, degrees.
// Each is derived from the resolved job once, so that no lowering rule divides by a degree on its
// own.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/model/precision.hpp"
#include "sim/plan/job.hpp"
#include "sim/program/schedule.hpp"

namespace headway {

struct StepShape {
  explicit StepShape(const Job& job);

  int tp = 1, cp = 1, dp = 1, pp = 1;
  // Ranks over which the data is shared out, whole sequences or parts: those that hold the same
  // parameters, reduce gradients and share optimizer state (Megatron-LM's data-parallel group with
  // context parallelism).
  int data_ranks = 1;
  // Of them: neighbours that share out the state between them, and how often it is there.
  int shard_ranks = 1, replicas = 1;
  // Of a sequence that is spread over cp = ring x ulysses ranks (sequence/token_layout).
  int ring = 1, ulysses = 1;
  TokenOrder order = TokenOrder::kContiguous;
  int ep = 1, etp = 1, edp = 1;  // of experts; 1 where there are none
  ScheduleShape schedule;
  bool sequence_parallel = false;  // Megatron's; only where there is a tensor-parallel group
  bool splits_backward = false;    // into input and weight gradients, by the schedule
  LayerParts recomputed;           // alone; none where whole layers are, or nothing is
  bool vocabulary_spread = false;  // over the ranks of the pipeline

  // Sequences of a micro-batch, whole and this rank's part of each; its tokens, and the rows of the
  // residual stream that one rank of a tensor-parallel group holds of them.
  std::int64_t sequences = 1, sequence = 1, local_sequence = 1, tokens = 1, local_tokens = 1;
  // Those of a rank's activations between the matrices that share them out: all, or, where the
  // ranks share matrices as squares, those of one row of a square.
  std::int64_t core_sequences = 1, block_tokens = 1;

  std::int64_t layers = 0;
  std::int64_t hidden = 0;
  // Of one rank: heads and key-value heads, columns of the packed qkv and of the context, of the
  // MLP.
  std::int64_t heads = 0, key_value_heads = 0, head_dim = 0, value_head_dim = 0;
  int key_value_copies = 1;  // ranks of a tensor-parallel group that hold the same key-value head
  std::int64_t qkv_columns = 0, context_columns = 0, intermediate = 0;
  // What its attention core works on: heads, and queries of a sequence.
  std::int64_t core_heads = 0, core_key_value_heads = 0, core_sequence = 0;
  std::int64_t window = 0;  // keys that a query sees at most; 0: all before it
  // Of one rank: experts and columns of each, columns of the shared experts. Choices that a rank's
  // tokens send, expected; choices that an expert takes of them (0: all).
  std::int64_t experts = 0, expert_intermediate = 0, shared_intermediate = 0;
  std::int64_t sent_rows = 0, capacity = 0;
  // Choices that each expert takes after what the capacity drops, over even routing (empty: even),
  // and the most that come to the experts of one rank in any layer.
  std::vector<std::vector<double>> expert_loads;
  double hottest_load = 1;
  std::int64_t padded_vocabulary = 0, local_vocabulary = 0;

  DataType storage = DataType::kBf16;       // parameters and activations
  DataType compute = DataType::kBf16;       // inputs of the layers' GEMMs
  DataType weight = DataType::kBf16;        // the layers' matrices: as stored, or 8 bits
  DataType head_compute = DataType::kBf16;  // of the head: fp8 recipes leave it in 16 bits
  DataType statistics = DataType::kFp32;    // norms, softmax, loss
  DataType gradient = DataType::kFp32;      // main gradients
  DataType moment = DataType::kFp32;        // of the optimizer
  bool masters = true;                      // fp32 copies of the parameters
  bool logits_are_narrow = true;            // 16-bit: the loss works on an fp32 copy

  // How the layers' operands become 8 or 4 bits; null: they do not.
  const Quantisation* quantisation = nullptr;

  // Parameters live in shares over the data-parallel ranks, and whole only while they are used.
  bool sharded_parameters = false;
  // Gradients are reduced in every micro-batch, so each begins a new one instead of adding to it.
  bool fresh_gradients = false;

  // Ranks over which a gradient is reduced, of experts or of all else; whether any is.
  int reducing_ranks(bool expert) const { return expert ? edp : data_ranks; }
  // Those that share out its state.
  int sharing_ranks(bool expert) const { return expert ? edp : shard_ranks; }
  bool reduces_gradients() const { return data_ranks > 1 || edp > 1; }

  bool dropout = false;
  double loss_scale = 1;  // of each token's loss: the mean over the global batch

 private:
  void set_experts(const Job& job);
};

}  // namespace headway
