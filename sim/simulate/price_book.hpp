// What computations cost on a device, each priced once however many steps ask: plans of one model
// are made of the same few hundred operations. Safe to use from several threads; what it says does
// not depend on who asked before.
#pragma once

#include <shared_mutex>
#include <unordered_map>

#include "sim/cost/compute_cost.hpp"

namespace headway {

class PriceBook {
 public:
  // REQUIRES: the profile outlives this.
  explicit PriceBook(const Profile& profile) : profile_(profile), cost_(profile) {}

  struct Entry {
    Price price;
    int launches = 1;
  };
  // REQUIRES: not a Collective nor HostWork. Throws InvalidInput where the profile lacks what the
  // operation needs.
  Entry price(const Operation& operation) const;
  const Profile& profile() const { return profile_; }

 private:
  struct Hash {
    std::size_t operator()(const Operation& operation) const;
  };

  const Profile& profile_;
  ComputeCost cost_;
  mutable std::shared_mutex mutex_;
  mutable std::unordered_map<Operation, Entry, Hash> entries_;
};

}  // namespace headway
