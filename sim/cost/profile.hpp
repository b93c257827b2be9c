// A device's profile: measured points with their provenance and regime, and the models fitted to
// them. Profiles are JSON files in calibration/profiles, made by `headway fit` from
// calibration/points; each number names its measurement. A missing entry is an error that names it.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sim/cluster/device.hpp"
#include "sim/core/curve.hpp"
#include "sim/core/error.hpp"
#include "sim/cost/evidence.hpp"
#include "sim/model/operation.hpp"

namespace headway {

// burst: a few launches on a cool device; sustained: a loop at thermal equilibrium; in-framework:
// seen inside a training step. Training is priced sustained.
enum class Regime : std::uint8_t { kBurst, kSustained, kInFramework };
std::string_view name(Regime regime);

// A matrix multiplication as executed: out[rows, columns] = a[rows, depth] . b[depth, columns].
struct GemmShape {
  std::int64_t rows = 0, columns = 0, depth = 0;
  friend auto operator<=>(const GemmShape&, const GemmShape&) = default;
};
// forward: m x n of depth k; input gradient: m x k of depth n; weight gradient: n x k of depth m.
GemmShape executed_shape(const Gemm& gemm);

struct GemmPoint {
  GemmShape shape;
  GemmRole role = GemmRole::kForward;
  Regime regime = Regime::kBurst;
  Time time;
};

// The tile and wave model of a burst forward GEMM, between and beyond measured points:
//   time = per_kernel + (compute^4 + memory^4)^(1/4)
//   compute = min over tiles and splits s of the depth of
//             waves x (per_wave + 2 rows columns (depth / s) / (efficiency x peak /
//             multiprocessors))
//   waves   = softness x tiles/multiprocessors + (1 - softness) x ceil(tiles/multiprocessors), >= 1
//   memory  = bytes read and written once / (memory_share x data-sheet bandwidth)
struct GemmTile {
  int rows = 128, columns = 128;
  double efficiency = 0.8;  // of a multiprocessor's peak while a full wave runs
};
struct GemmModel {
  std::vector<GemmTile> tiles;
  Time per_kernel, per_wave;
  double wave_softness = 0;
  double memory_share = 0.8;
};

// Which share of the errors on left-out shapes lies within: what a fit says of itself.
struct FitError {
  int count = 0;
  double median = 0, p90 = 0, worst = 0;  // of |predicted / measured - 1|
};

// Everything known about GEMMs of some input types.
struct GemmTable {
  std::vector<DataType> types;
  GemmModel model;
  std::vector<GemmPoint> points;
  // A factor on burst forward times for each regime and role without points of its own.
  double sustained_factor = 1;
  double input_gradient_factor = 1;
  double weight_gradient_factor = 1;
  // Time over an aligned shape's where a dimension is no multiple of 8 elements.
  double misaligned_factor = 1;
  // Correction by measured neighbours: their influence falls with the distance in log2 of rows,
  // columns and depth as (distance / reach)^-power against one vote for the model.
  double reach = 1, power = 2;
  Grade floor =
      Grade::kMeasured;       // the surest grade a price may have: extrapolated where transferred
  double sustained_band = 0;  // of the sustained factor
  FitError left_out;          // on left-out shapes, neighbours correcting
  FitError model_alone;       // on left-out shapes, without neighbours
  std::string source;
};

// Fused attention by one kernel in one direction:
//   time = per_kernel + FLOPs / (rate x head factor x s / (s + half_sequence)) x (1 + tail / waves)
//   waves = blocks of 128 query rows / multiprocessors
// FLOPs: 2 b h sq skv (dqk + dv) forward, 2.5 times that backward, halved where causal (the
// FlashAttention convention).
struct AttentionPoint {
  std::int64_t batch = 1, heads = 1, kv_heads = 1, sequence = 1, head_dim = 128, head_dim_v = 128;
  bool causal = true;
  Time time;
};
struct AttentionRate {
  AttentionKernel kernel = AttentionKernel::kFlash2;
  // Empty: what training calls by the kernel's name. Else an inference library's, kept so that
  // points can be checked; it prices nothing in a step.
  std::string implementation;
  bool backward = false;
  FlopRate rate;
  Time per_kernel;
  double half_sequence = 0;           // tokens at which a causal score matrix runs at half rate
  double half_sequence_full = 0;      // the same, not causal
  double tail_waves = 0;              // what the last, unevenly filled wave adds, in full waves
  double causal_factor = 1;           // rate of causal over full, beyond halving the FLOPs
  std::map<int, double> head_factor;  // by head dimension, linear between, held beyond
  double sustained_factor = 1;
  std::vector<AttentionPoint> points;
  Grade floor = Grade::kMeasured;
  double band = 0.1;
  FitError left_out;
  std::string source;
};

// A memory-bound kernel's own measured rate, in place of the default.
struct KernelRate {
  KernelKind kind = KernelKind::kCopy;
  bool fused = true;
  Bandwidth rate;  // over bytes_moved()
  double band = 0.15;
  Grade grade = Grade::kFitted;
  std::string source;
};

// A memory-bound kernel of some implementation as it was measured, in the source's own words:
//   time = per_kernel + picoseconds_per_element x elements
// The KernelRates follow from these; kept so that points can be checked against them.
struct MeasuredKernel {
  std::string operation;  // "rms_norm[huggingface]"
  std::string pass;       // "forward", "backward", "full"
  std::string type;       // "bf16", "bf16?" where the source leaves it open
  Time per_kernel;
  double picoseconds_per_element = 0;
  FitError left_out;  // on left-out sizes
  std::string source;
};

struct MemoryModel {
  double efficiency = 0.8;  // of the data-sheet bandwidth
  Time per_kernel;
  double band = 0.15;
  Grade grade = Grade::kFitted;
  std::vector<KernelRate> kernels;
  std::vector<MeasuredKernel> measured;
  std::string source;
};

struct CollectiveCurve {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  int ranks = 8;
  int nodes = 1;
  Curve time_us;  // by bytes of the whole array
  Grade floor = Grade::kMeasured;
  double band = 0.1;
  std::string source;
};

// A message between two GPUs: latency + bytes / bandwidth.
struct SendModel {
  Time same_node_latency, network_latency;
  double same_node_share = 0.8;  // of the topology's NVLink bandwidth
  double network_share = 0.8;    // of one NIC's bandwidth
  double band = 0.2;
  std::string source;
};

struct Profile {
  std::string name;
  Device device;
  std::string sources;
  std::string note;  // what is extrapolated, and from what; empty where all is measured
  std::vector<GemmTable> gemms;
  std::vector<AttentionRate> attention;
  MemoryModel memory;
  std::vector<CollectiveCurve> collectives;
  double collective_band = 0.25;  // of collectives priced by NCCL's tuning model
  SendModel send;
  // On a CPU the core that computes is also the one that moves what its rank communicates: while a
  // collective beside it runs, it does nothing else.
  bool core_communicates = false;

  // nullptr where the profile has none.
  const GemmTable* gemm_table(DataType type) const;
  const AttentionRate* attention_rate(AttentionKernel kernel, bool backward) const;
};

// Throws InvalidInput naming the file and place. `name`: a shipped profile or a path.
Profile read_profile(const std::string& name);
// Reads a profile's text; `file` stands for it in messages.
Profile parse_profile(std::string_view text, const std::string& file);
// The text that parse_profile reads back equal.
std::string profile_text(const Profile& profile);

struct ProfileName {
  std::string name, title, source;
  int gemm_points = 0;
};
std::vector<ProfileName> shipped_profiles();

}  // namespace headway
