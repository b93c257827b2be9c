// A topology as people read it: what `headway topology` prints.
#pragma once

#include <string>

#include "sim/cluster/topology.hpp"

namespace headway {

// Sizes, fabrics, vertices by kind, links by kind with their bandwidths, profiles and source.
std::string summary(const Topology& topology);

// The route between two GPUs, a line for each link, then its latency and narrowest link. REQUIRES:
// both are GPUs of the topology.
std::string route_text(const Topology& topology, int from_rank, int to_rank);

}  // namespace headway
