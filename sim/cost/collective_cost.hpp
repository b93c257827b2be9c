// What a collective costs: algorithm, protocol and channels as NCCL chooses them, its time from a
// measured curve where there is one, else from NCCL's tuning model; split into a latency and a fluid
// part that loads links, so that concurrent collectives compete.
#pragma once

#include <string>

#include "sim/cluster/topology.hpp"
#include "sim/cost/evidence.hpp"
#include "sim/cost/profile.hpp"
#include "sim/model/operation.hpp"

namespace headway {

struct CollectivePrice {
  Time latency;              // before bytes flow; the whole time where `alone` equals it
  Price alone;               // the whole time where nothing competes
  std::int64_t wire_bytes = 0;  // per rank and direction through its NIC or NVLink (the fluid work)
  std::string algorithm;     // "ring", "tree", "nvls", "p2p", "none" (one rank)
  std::string protocol;      // "LL", "LL128", "Simple"
  int channels = 0;
};

class CollectiveCost {
 public:
  CollectiveCost(const Profile& profile, const Topology& topology);

  // `network_efficiency`: share of the nominal NIC bandwidth that the software reaches.
  CollectivePrice price(const Collective& collective, const GroupPlacement& placement,
                        double network_efficiency = 1) const;
  // A message between two ranks.
  CollectivePrice send(Bytes bytes, bool same_node) const;

 private:
  const Profile& profile_;
  const Topology& topology_;
};

}  // namespace headway
