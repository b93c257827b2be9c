// A cluster some of whose links are dead: transfers go round them (routing.hpp).
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "sim/cluster/topology.hpp"

namespace headway {

// The same cluster without these links. REQUIRES: ids of topology.links(), both directions of each.
Topology without(const Topology& topology, std::vector<LinkId> dead);

// Two ranks between which there is no way, in either direction. Nothing where no link is dead.
std::optional<std::pair<int, int>> cut_off(const Topology& topology);

}  // namespace headway
