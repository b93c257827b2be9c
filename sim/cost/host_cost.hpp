// What the way to the host's memory and work on it cost: copies between a GPU and its host, and the
// optimizer's kernels on the host's cores. Both follow from what the topology says of a server: the
// link of a GPU to its host and the bandwidth of its memory, of which every GPU has an equal share,
// since all ranks of a server do this at once (ZeRO-Offload, arXiv 2101.06840). Nothing of it has
// been measured here: all is graded extrapolated.
#pragma once

#include <optional>

#include "sim/cluster/topology.hpp"
#include "sim/cost/evidence.hpp"
#include "sim/model/operation.hpp"

namespace headway {

class HostCost {
 public:
  explicit HostCost(const Topology& topology);

  // Whether the operation is one of these: kToHost, kToDevice, or a kernel on the host.
  static bool prices(const Operation& operation);
  // REQUIRES: prices(operation). Throws InvalidInput where the topology does not state the memory
  // of its hosts.
  Price price(const Operation& operation) const;

 private:
  std::optional<HostMemory> host_;
  std::string topology_;
};

}  // namespace headway
