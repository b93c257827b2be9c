// The "network" of a topology file: which generator joins the NICs, and its figures.
//
//   {"source": "...", "generator": "single-switch"}
//   {"source": "...", "generator": "leaf-spine" or "rail-leaf-spine", "leaf_nodes": 32,
//    "oversubscription": 1, "latency": "0.25 us", "spines": 16,
//    "pod_nodes": 384, "core_oversubscription": 7, "core_latency": "0.8 us",
//    "rails_over_nvlink": true}                            (the last for rail-leaf-spine)
//   {"source": "...", "generator": "fat-tree", "ports": 16, "latency": "0.25 us"}
//   {"source": "...", "generator": "dragonfly", "group_routers": 16, "router_nics": 8,
//    "global_ports": 8, "latency": "0.3 us", "local_bandwidth": ..., "global_bandwidth": ...}
//   {"source": "...", "generator": "torus", "dimensions": [4, 4, 4], "latency": "0.3 us",
//    "bandwidth": ...}
//
// Where several ways are equally good, "ways": "destination" (the default) takes them in turn by
// the receiver's number, "hash" by a hash of both ends with "seed", as ECMP does. Without "spines"
// the spines of a layer are one vertex: traffic spreads evenly over them.
#pragma once

#include <utility>
#include <vector>

#include "sim/cluster/cluster_description.hpp"
#include "sim/core/json_reader.hpp"

namespace headway {

// Fills cluster.network. REQUIRES: cluster.server and cluster.max_servers are read.
void read_network(const JsonNode& node, ClusterDescription& cluster, Problems& problems);

// The links that an override may change, by kind: those of switches; NICs are the server's.
std::vector<std::pair<const char*, LinkDescription*>> network_links(NetworkDescription& network);

}  // namespace headway
