// The "graph" of a topology file: vertices and links given one by one (topology_reader.hpp has the
// form). Reading includes what routes rely on: whole nodes in rank order, a NIC for every GPU where
// there are several nodes, and a way between any two GPUs.
#pragma once

#include "sim/cluster/cluster_description.hpp"
#include "sim/core/json_reader.hpp"

namespace headway {

// Fills cluster.graph, and what of cluster.server follows from it (GPUs and NICs of a node).
void read_graph(const JsonNode& node, ClusterDescription& cluster, Problems& problems);

// The figures of cluster.server that the graph's links hold: bandwidth of a GPU's links and of a
// NIC.
void summarise_graph(ClusterDescription& cluster);

// Adds a problem for each pair of GPUs without a way, and each link without bandwidth, in the
// graphs generated at one node, two nodes and the largest size up to 4,096 GPUs.
void check_generated(const ClusterDescription& cluster, const std::string& file,
                     Problems& problems);

}  // namespace headway
