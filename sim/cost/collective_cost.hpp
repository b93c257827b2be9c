// What a collective costs: algorithm, protocol and channels as NCCL chooses them, its time from a
// measured curve where there is one, else from NCCL's tuning model; split into a latency and a
// fluid part that loads links, so that concurrent collectives compete.
#pragma once

#include <string>

#include "sim/cluster/topology.hpp"
#include "sim/cost/evidence.hpp"
#include "sim/cost/nccl_tuning.hpp"
#include "sim/cost/profile.hpp"
#include "sim/model/operation.hpp"

namespace headway {

struct CollectivePrice {
  Time latency;                 // before bytes flow; the whole time where `alone` equals it
  Price alone;                  // the whole time where nothing competes
  std::int64_t wire_bytes = 0;  // per rank and direction through its NIC or NVLink (the fluid work)
  std::string algorithm;        // "ring", "tree", "nvls", "p2p", "none" (one rank)
  std::string protocol;         // "LL", "LL128", "Simple"
  int channels = 0;
};

class CollectiveCost {
 public:
  // REQUIRES: both outlive this.
  CollectiveCost(const Profile& profile, const Topology& topology);

  // `network_efficiency`: share of the nominal NIC bandwidth that the software reaches. A group of
  // one rank, or of no elements, takes no time. Ranks of other groups that share a NIC are not
  // counted in: they compete in the network.
  CollectivePrice price(const Collective& collective, const GroupPlacement& placement,
                        double network_efficiency = 1) const;
  // A message between two ranks.
  CollectivePrice send(Bytes bytes, bool same_node, double network_efficiency = 1) const;

 private:
  CollectivePrice by_curve(const CollectiveCurve& curve, CollectiveKind kind, double bytes,
                           int ranks) const;
  CollectivePrice by_model(CollectiveKind kind, double bytes, const GroupPlacement& placement,
                           double network_efficiency) const;
  CollectivePrice shift(Bytes bytes, const GroupPlacement& placement,
                        double network_efficiency) const;
  // `bytes` of a rank in all, of which `remote` leave the node.
  CollectivePrice all_to_all(double bytes, double remote, const GroupPlacement& placement,
                             double network_efficiency) const;
  NcclSystem system(const GroupPlacement& placement, double network_efficiency) const;
  const CollectiveCurve* curve_for(CollectiveKind kind, const GroupPlacement& placement) const;

  const Profile& profile_;
  const Topology& topology_;
};

// Bytes that each rank sends in one direction, of a whole array of `bytes` (facts 4.1): the volume
// that bus bandwidth counts.
double bus_bytes(CollectiveKind kind, double bytes, int ranks);

}  // namespace headway
