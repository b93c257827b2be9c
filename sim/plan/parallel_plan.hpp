// How the work of a training step is spread: degrees, schedule, what is recomputed, what is
// overlapped. One struct, every key of a job's `plan`; reading and checking are in job.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/core/units.hpp"
#include "sim/model/operation.hpp"
#include "sim/model/precision.hpp"

namespace headway {

struct Schedule;  // program/schedule

enum class DataParallelKind : std::uint8_t {
  kDdp,
  kHorovod,
  kZero1,
  kDistributedOptimizer,
  kZero2,
  kZero3,
  kZeroPlusPlus,
  kFsdp,
  kHsdp  // fsdp within groups of `shard` ranks, replicated across them
};
// Whether parameters live in shares and are gathered for their use; and whether in PyTorch's way.
constexpr bool shards_parameters(DataParallelKind kind) { return kind >= DataParallelKind::kZero3; }
constexpr bool is_fsdp(DataParallelKind kind) { return kind >= DataParallelKind::kFsdp; }
// How attention meets the keys of a sequence that is spread over cp ranks.
enum class ContextParallelKind : std::uint8_t {
  kRing,
  kAllGather,
  kUlysses,
  kUlyssesRing,  // Ulysses in groups of `ulysses_degree`, a ring across them (USP, arXiv
                 // 2405.07719)
};
// Where word table, head and loss live: at the two ends of the pipeline; the same with the layers
// spread so that the head's stage has as much to compute as the others; over all pipeline ranks,
// with one or two barriers a micro-batch (arXiv 2411.05288), or as one tensor-parallel group
// between their layers.
enum class Vocabulary : std::uint8_t {
  kLastStage,
  kRedistributed,
  kParallelTwoBarriers,  // "parallel-1": the paper's algorithm 1
  kParallelOneBarrier,   // "parallel-2"
  kInterlaced
};
// How the ranks of a tensor-parallel group share a matrix: by rows or columns (Megatron-LM), or as
// a square, a stack of squares or a cube (SUMMA, 2.5D and 3D products, as in ColossalAI).
enum class TensorKind : std::uint8_t { k1d, k2d, k2_5d, k3d };
// Exchanges of sequence-parallel matrices beside GEMMs. Bulk: beside a whole GEMM that does not
// need them, as the backward pass has it in any case; ring: in hops beside the GEMM's own parts.
enum class TensorOverlap : std::uint8_t { kNothing, kBulk, kRing };
enum class Recompute : std::uint8_t { kNothing, kSelective, kFull };
std::string_view name(DataParallelKind kind);     // "distributed_optimizer"
std::string_view name(ContextParallelKind kind);  // "ulysses+ring"
std::string_view name(TensorKind kind);           // "2.5d"
std::string_view name(TensorOverlap overlap);     // "ring"
std::string_view name(Recompute recompute);       // "selective"
std::string_view name(Vocabulary vocabulary);     // "parallel-1"

// Parts of a layer that are recomputed, or kept, alone (Megatron-LM, --recompute-modules).
struct LayerParts {
  bool core_attention = false, norms = false, mlp = false;
  bool up_projections = false;  // of latent attention, with the rotation of its heads
  // Of an expert layer: the activation between an expert's matrices, the shared experts, all of it.
  bool expert_activation = false, shared_experts = false, experts = false;
  friend bool operator==(const LayerParts&, const LayerParts&) = default;
};
std::vector<std::string> names(const LayerParts& parts);  // "core_attn", "layernorm", "moe_act"

// How tokens find their experts; meaningful where the model has experts.
enum class ExpertKind : std::uint8_t { kMegatron, kGshard, kSwitch, kGlam, kDeepspeed, kDeepseek };
enum class Dispatch : std::uint8_t { kAllToAll, kAllGather, kDeepEp, kHybridEp };
std::string_view name(ExpertKind kind);    // "megatron"
std::string_view name(Dispatch dispatch);  // "alltoall"

struct ExpertPlan {
  ExpertKind kind = ExpertKind::kMegatron;
  // Choices that an expert takes of a rank's tokens, over those it would take if all experts took
  // the same; nothing: all.
  std::optional<double> capacity_factor;
  bool auxiliary_loss = true;
  Dispatch dispatch = Dispatch::kAllToAll;
  // Tokens go to their experts, and gradients of what comes back, in 8 bits (DeepSeek-V3, arXiv
  // 2412.19437, section 3.3.3); what is summed on the way back keeps its 16.
  bool dispatch_in_8_bits = false;
  // The forward pass of one micro-batch and the backward pass of another are issued in turns, so
  // that the tokens of one travel beside the products of the other.
  bool overlap = false;
  bool shared_overlap = false;  // shared experts are computed while tokens travel
  // Nodes that a token's choices reach at most (0: all). A limit of the router, where the groups of
  // its experts are nodes.
  std::int64_t nodes_per_token = 0;
  // Choices that each expert takes, over an even share, by layer (or one row for all layers),
  // before any is dropped; empty: all take the same.
  std::vector<std::vector<double>> loads;
  // Equal runs of a micro-batch's tokens, each of which fills the capacity on its own: of the
  // ranks that share a micro-batch (a reference run alone has all of them).
  std::int64_t token_groups = 1;
};

// What lives in the host's memory: optimizer state with its update (ZeRO-Offload, arXiv
// 2101.06840), the shares of the parameters, what the backward pass needs of the first `layers`
// layers of each virtual stage (0: of all).
struct Offload {
  bool optimizer = false, parameters = false, activations = false;
  std::int64_t layers = 0;
  friend bool operator==(const Offload&, const Offload&) = default;
};

struct ParallelPlan {
  int tp = 1, cp = 1, ep = 1, pp = 1, dp = 1;
  ContextParallelKind cp_kind = ContextParallelKind::kRing;
  int ulysses_degree = 1;  // ranks that exchange heads for tokens; the ring has cp / ulysses_degree
  TokenOrder cp_balance = TokenOrder::kZigzag;  // how a ring deals out the tokens
  int etp = 1, edp = 1;                         // the ranks of a stage are also etp x ep x edp
  ExpertPlan moe;
  int vpp = 1;                                      // virtual stages per rank
  int vpp_group = 0;                                // interleaved: micro-batches in a row; 0: pp
  std::string schedule = "1f1b";                    // a name of program/schedule, or a file
  std::shared_ptr<const Schedule> custom_schedule;  // where it is a file
  std::vector<std::int64_t>
      stage_layers;  // of each virtual stage; resolved, never empty after reading
  bool sequence_parallel = false;
  TensorOverlap tp_overlap = TensorOverlap::kNothing;
  TensorKind tp_kind = TensorKind::k1d;
  int tp_side = 1, tp_depth = 1;  // 2d, 2.5d, 3d: tp = side x side x depth
  bool overlap_p2p = false;
  bool scatter_gather = false;     // p2p in tp slices without sequence parallelism
  std::int64_t micro_batch = 1;    // sequences
  std::int64_t micro_batches = 1;  // per rank and step: global batch / (dp micro_batch)
  DataParallelKind dp_kind = DataParallelKind::kDdp;
  std::optional<std::int64_t> bucket_elements;  // of gradients; nothing: one bucket per model chunk
  // PyTorch's DDP: its first bucket is smaller, so that the first reduction begins early.
  std::optional<std::int64_t> first_bucket_elements;
  Time cycle_time;  // horovod: how often its thread looks for gradients that are there
  // Ranks that share out the state of a model, neighbours among those that hold it: of hsdp and
  // zero1, of zero++ those that keep a second share of the parameters; 0: all.
  int shard = 0;
  bool overlap_grad_reduce = false;
  bool overlap_param_gather = false;
  bool reshard_after_forward = true;  // fsdp: units are gathered again for the backward pass
  // How far parameters are gathered ahead of their use; fsdp: in units (1: PyTorch's limit of two
  // gathers in flight), zero3: in elements (stage3_prefetch_bucket_size).
  std::int64_t prefetch = 0;
  DataType gradient_type = DataType::kFp32;
  Offload offload;
  bool weights_in_8_bits = false;  // the layers' matrices are stored, and gathered, in 8 bits
  Recompute recompute = Recompute::kNothing;
  std::int64_t recompute_layers = 0;  // full: of each virtual stage, its first so many; 0: all
  LayerParts recomputed_parts = {.core_attention = true};  // selective
  LayerParts kept_parts = {};                              // full: saved all the same
  std::string optimizer = "adamw";                         // "adafactor", "sgd", "lion", "muon"
  bool synchronous_optimizer = true;                       // global gradient norm before the step
  Vocabulary vocabulary = Vocabulary::kLastStage;
  std::string order = "tp-cp-ep-dp-pp";

  // Of a reference run (training_step.hpp), on one rank. pipedream: how many mini-batches an update
  // of a layer comes late, by layer, and the micro-batches of a mini-batch. zero++: so many
  // micro-batches in a row are summed from `rounded_neighbours` at a time, rounded before each sum
  // as their ranks round them.
  std::vector<std::int64_t> weight_delays;
  std::int64_t micro_batches_per_update = 0;
  std::int64_t rounded_ranks = 0, rounded_neighbours = 0;
};

// The plan's schedule; nullptr where it is not built.
const Schedule* schedule_of(const ParallelPlan& plan);

}  // namespace headway
