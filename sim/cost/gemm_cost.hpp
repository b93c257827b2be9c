// Times of matrix multiplications: the tile and wave model of a profile's GemmTable, corrected by
// the measured shapes nearest to the one asked for (same role and regime first).
#pragma once

#include <array>

#include "sim/cost/neighbours.hpp"
#include "sim/cost/profile.hpp"

namespace headway {

// What a device offers to a GEMM of one input type.
struct GemmDevice {
  double peak = 0;              // FLOP/s, dense
  double memory_bandwidth = 0;  // bytes/s, data sheet
  int multiprocessors = 1;
  double input_bytes = 2;  // of an element
  double output_bytes = 2;
};

// Seconds of `batch` burst forward GEMMs in one launch, by the model alone.
double model_seconds(const GemmModel& model, const GemmDevice& device, const GemmShape& shape,
                     std::int64_t batch = 1);

// Dimensions that are no multiple of 8 elements cannot use 16-byte loads: the kernels that cuBLAS
// then falls back to are slower by the table's misaligned_factor.
bool misaligned(const GemmShape& shape);

class GemmCost {
 public:
  // REQUIRES: the table outlives this.
  GemmCost(const GemmTable& table, const GemmDevice& device);

  Price price(const GemmShape& shape, GemmRole role, Regime regime, std::int64_t batch = 1) const;
  // The model with its factors, without neighbours.
  double plain_seconds(const GemmShape& shape, GemmRole role, Regime regime,
                       std::int64_t batch = 1) const;

 private:
  // Which points speak for a role and regime: its own, else forward ones of its regime, else burst
  // forward ones.
  struct Witness {
    GemmRole role = GemmRole::kForward;
    Regime regime = Regime::kBurst;
  };
  Witness witness(GemmRole role, Regime regime) const;
  double factor(GemmRole role, Regime regime) const;

  const GemmTable& table_;
  GemmDevice device_;
  Neighbours neighbours_;
  static constexpr std::size_t kRoles = 3;
  static constexpr std::size_t kRegimes = 3;
  std::array<std::array<Witness, kRegimes>, kRoles> witnesses_;
};

}  // namespace headway
