// What operations cost on a device, each computation priced once however many steps ask: plans of
// one model are made of the same few hundred operations. A correction, read off a measured step,
// may stand over all prices by category. Safe to use from several threads; what it says does not
// depend on who asked before.
#pragma once

#include <array>
#include <shared_mutex>
#include <unordered_map>

#include "sim/cost/compute_cost.hpp"
#include "sim/program/program.hpp"

namespace headway {

inline constexpr std::size_t kCauses = static_cast<std::size_t>(Cause::kOther) + 1;

// Measured over predicted time, by cause. Times of the host stand in the software, not in prices.
struct Correction {
  std::array<double, kCauses> factors;

  Correction() { factors.fill(1); }
  double factor(Cause cause) const { return factors[static_cast<std::size_t>(cause)]; }
  double& factor(Cause cause) { return factors[static_cast<std::size_t>(cause)]; }
};

class PriceBook {
 public:
  // REQUIRES: the profile outlives this.
  explicit PriceBook(const Profile& profile, const Correction& correction = {})
      : profile_(profile), correction_(correction), cost_(profile) {}

  struct Entry {
    Price price;
    int launches = 1;
  };
  // REQUIRES: not a Collective nor HostWork. Throws InvalidInput where the profile lacks what the
  // operation needs.
  Entry price(const Operation& operation) const;
  const Profile& profile() const { return profile_; }

  // The price under the correction: anchored, where it changes.
  Price corrected(Price price, Cause cause) const;
  Time corrected(Time time, Cause cause) const;

 private:
  struct Hash {
    std::size_t operator()(const Operation& operation) const;
  };

  const Profile& profile_;
  Correction correction_;
  ComputeCost cost_;
  mutable std::shared_mutex mutex_;
  mutable std::unordered_map<Operation, Entry, Hash> entries_;
};

}  // namespace headway
