// A device's profile: measured points with their provenance and regime, and the models fitted to
// them. Profiles are JSON files in calibration/profiles, made by `headway fit` from
// calibration/points; each number names its measurement. A missing entry is an error that names it.
#pragma once

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

// burst: a few launches on a cool device; sustained: a loop at thermal equilibrium; in-framework: seen
// inside a training step. Training is priced sustained.
enum class Regime : std::uint8_t { kBurst, kSustained, kInFramework };
std::string_view name(Regime regime);

struct GemmPoint {
  std::int64_t m = 0, n = 0, k = 0;
  GemmRole role = GemmRole::kForward;
  bool accumulate = false;
  Time time;
};

// The tile and wave model between measured points: time = launch + waves x (tile time), with the
// efficiency of each tile shape fitted, plus the bandwidth bound.
struct GemmTile {
  int rows = 128, columns = 128;
  double efficiency = 0.8;  // of the multiprocessors' peak while a full wave runs
};
struct GemmModel {
  std::vector<GemmTile> tiles;
  Time per_kernel, per_wave;
  double band = 0.1;        // its error at 90 % on shapes left out
  std::string source;
};

struct AttentionRate {      // causal-halved, by kernel and direction, before the shape corrections
  AttentionKernel kernel = AttentionKernel::kFlash2;
  bool backward = false;
  FlopRate rate;
  double band = 0.1;
  std::string source;
};

struct CollectiveCurve {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  int ranks = 8;
  int ranks_per_node = 8;
  Curve time_us;            // by bytes of the whole array
  std::string source;
};

struct Profile {
  std::string name;
  Device device;
  std::vector<GemmPoint> gemm_points;   // 16-bit inputs, burst
  GemmModel gemm;
  double sustained_factor = 1;          // burst -> sustained, of GEMMs
  double weight_gradient_factor = 1;    // NT with fp32 accumulation over TN
  std::vector<AttentionRate> attention;
  double memory_efficiency = 0.8;       // of the data-sheet bandwidth, memory-bound kernels
  Time kernel_overhead;                 // of a memory-bound kernel
  std::vector<CollectiveCurve> collectives;
  std::string sources;
};

// Throws InvalidInput naming the file and place. `name`: a shipped profile or a path.
Profile read_profile(const std::string& name);
struct ProfileName {
  std::string name, title, source;
  int gemm_points = 0;
};
std::vector<ProfileName> shipped_profiles();

}  // namespace headway
