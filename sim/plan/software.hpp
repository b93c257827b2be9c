// What the training framework does beyond the plan: which kernels it fuses, how it accumulates
// gradients, what its host costs, when it synchronises. A framework preset is one JSON file in
// sim/plan/frameworks, each value as {"value": ..., "source": ...}; it may build on another one
// ("extends"). A job's `software` overrides some of it.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/core/json_reader.hpp"
#include "sim/core/units.hpp"
#include "sim/model/operation.hpp"
#include "sim/model/precision.hpp"
#include "sim/plan/parallel_plan.hpp"

namespace headway {

// How a micro-batch's weight gradient reaches the main gradient.
enum class GradientAccumulation : std::uint8_t {
  kFused,        // the weight-gradient GEMM adds into the main gradient (read-modify-write in its
                 // epilogue)
  kSameType,     // a separate add into a gradient of the parameters' type (read 2+2, write 2 bytes)
  kMainGradient  // a separate add of a 16-bit gradient into a fp32 one (read 2+4, write 4 bytes)
};

enum class Launch : std::uint8_t { kEager, kCudaGraph };

// Parts of the model whose kernels the host launches as one captured graph (Megatron-LM,
// --cuda-graph-scope): whole layers, the attention half, the dense MLP half, the expert half (only
// where its shapes are fixed), the expert half up to the router's choices, or up to the exchange.
struct GraphScope {
  bool layer = false, attention = false, mlp = false;
  bool experts = false, router = false, preprocess = false;
  bool any() const { return layer || attention || mlp || experts || router || preprocess; }
  friend bool operator==(const GraphScope&, const GraphScope&) = default;
};
std::vector<std::string> names(const GraphScope& scope);  // "attn", "moe_router"

struct Software {
  std::string framework = "headway";
  std::string source;
  AttentionKernel attention = AttentionKernel::kFlash2;
  bool fused_kernels = true;  // bias-GeLU, masked softmax, bias-dropout-add
  bool fused_norm = true;
  bool fused_rotary = true;
  bool fused_loss = false;       // whole cross entropy in one kernel per pass
  bool narrow_loss = false;      // unfused, on the head's 16-bit logits rather than a fp32 copy
  bool gathered_logits = false;  // the loss works on logits gathered over tp
  double dropout = 0;            // hidden and attention
  GradientAccumulation accumulation = GradientAccumulation::kFused;
  DataType main_gradient_type = DataType::kFp32;
  bool widens_bf16_gradients = false;  // bf16 gradients are accumulated in fp32 where fp16 are not
  bool master_parameters = true;       // fp32 copies kept by the optimizer
  // The all-reduce of a column-parallel layer's input gradient runs beside its weight gradient.
  bool overlap_tp_input_gradient = true;
  bool batched_p2p = true;        // send and receive of a step are posted and awaited together
  bool p2p_synchronises = false;  // the host waits for the device after each p2p
  // The host waits for the device where the data of a micro-batch arrives.
  bool data_synchronises = false;
  std::int64_t vocabulary_multiple = 128;  // padded to this times tp; 1: not padded
  bool pad_vocabulary_at_tp1 = true;
  Launch launch = Launch::kEager;
  GraphScope graph_scope;  // of cuda_graph; nothing: the whole iteration is one graph

  bool launch_blocking = false;  // CUDA_LAUNCH_BLOCKING=1: the host waits for every kernel

  // Host times (eager). Per launched kernel, forward and backward apart; per micro-batch and stage;
  // per step. `host_tp_jitter[i]` multiplies them at tp = 2^i: a collective waits for the slowest
  // host.
  Time host_per_kernel_forward, host_per_kernel_backward, host_per_micro_batch, host_per_step;
  std::vector<double> host_tp_jitter;
  Time p2p_blocking;  // both ends of a p2p are blocked for this long, beyond the transfer

  // Share of the node's nominal NIC bandwidth that its data-parallel collectives reach.
  double dp_network_efficiency = 1;
  // The same where parameters are gathered for every use (zero3, fsdp); 0: no other.
  double sharded_network_efficiency = 0;
  // Where each value of the preset comes from, "host_per_step: ...", for reports.
  std::vector<std::string> notes;

  // Memory: the CUDA context and the communicators' buffers.
  Bytes context;
  Bytes workspace;

  // Rules of its own: p2p overlaps with compute only in the interleaved schedule; a gradient bucket
  // of the framework's size grows to so many elements per data-parallel rank (0: it does not).
  bool overlap_p2p_needs_interleaving = false;
  std::int64_t bucket_elements_per_dp = 0;
  // PyTorch's DDP: its first bucket; every pipeline rank cuts buckets. 0: Megatron's own DDP.
  Bytes first_bucket;

  // Defaults that the framework gives to a plan and to an inline model, where the job is silent:
  // JSON objects with the keys of a job's `plan` and `model`.
  std::optional<JsonNode> plan_defaults, model_defaults;
};

// The words of `software.attention` and of a preset.
const std::vector<std::pair<std::string, AttentionKernel>>& attention_words();

// Nothing where unknown; a broken preset file throws InvalidInput.
std::optional<Software> framework_preset(const std::string& name);
struct FrameworkName {
  std::string name, summary, source;
};
std::vector<FrameworkName> framework_presets();

}  // namespace headway
