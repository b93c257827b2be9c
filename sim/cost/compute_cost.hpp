// What an operation costs on a device: measured neighbours first, the fitted model between and
// beyond them, always graded. Memory-bound kernels are priced by the bytes they move.
#pragma once

#include <memory>

#include "sim/cost/evidence.hpp"
#include "sim/cost/profile.hpp"
#include "sim/model/operation.hpp"

namespace headway {

class ComputeCost {
 public:
  // REQUIRES: the profile outlives this. Training is priced sustained.
  explicit ComputeCost(const Profile& profile, Regime regime = Regime::kSustained);
  ~ComputeCost();
  ComputeCost(const ComputeCost&) = delete;
  ComputeCost& operator=(const ComputeCost&) = delete;

  // REQUIRES: not a Collective nor HostWork. Throws InvalidInput where the profile lacks what the
  // operation needs, naming it. Safe to call from several threads.
  Price price(const Operation& operation) const;
  Price price(const Gemm& gemm) const;
  Price price(const GroupedGemm& gemm) const;
  Price price(const Attention& attention) const;
  Price price(const Kernel& kernel) const;
  Price price(const Routing& routing) const;

  // Kernels the framework launches for the operation (eager variants launch several).
  int launches(const Operation& operation) const;

 private:
  struct Tables;
  Price unfused(const Attention& attention) const;

  const Profile& profile_;
  Regime regime_;
  std::unique_ptr<Tables> tables_;
};

// Bytes that a memory-bound kernel reads and writes, by its operands; the eager variant's extra
// passes included. The definition of every kernel's cost (the table stands in kernel_passes.cpp).
// For kGradientAccumulate, `type` is the micro-batch gradient's and `output` the main gradient's.
Bytes bytes_moved(const Kernel& kernel);
// Kernels launched for it: one where fused, else one per pass.
int launches(const Kernel& kernel);
// The same of what routes tokens: the definition of its cost stands in routing_passes.cpp.
Bytes bytes_moved(const Routing& routing);
int launches(const Routing& routing);

}  // namespace headway
