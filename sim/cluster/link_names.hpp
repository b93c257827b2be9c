// Links by name, as people ask about them: a kind ("nic"), everything that hangs on a vertex
// ("unit0/leaf3", "node2/nic1"), or what joins two vertices ("node2/nic1:unit0/leaf1"). Always both
// directions. `headway topology CLUSTER --dot -` shows the names.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "sim/cluster/topology.hpp"
#include "sim/core/error.hpp"

namespace headway {

// In ascending order; empty where nothing has that name.
std::vector<LinkId> links_named(const Topology& topology, const std::string& name);

// "a kind of link (nic, nvlink), a vertex, or two vertices"; with the nearest name, where one is
// near: for messages about a name that stands for nothing.
std::string link_names_expected(const Topology& topology, const std::string& name);

// What is left of each link, 0 (dead) to 1, where shares are given by name; shares of one link
// multiply. A problem of `option` for each name that stands for nothing.
std::vector<double> link_shares(const Topology& topology,
                                const std::map<std::string, double>& shares,
                                const std::string& option, Problems& problems);

}  // namespace headway
