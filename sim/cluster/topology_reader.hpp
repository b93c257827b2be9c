// Reads topology files. A file describes either a server and the network between servers,
//
//   {"name": "dgx-a100", "title": "...", "source": "...", "profiles": ["a100-sxm-80gb"],
//    "max_nodes": 8192, "max_reason": "...",
//    "node": {"source": "...", "gpus": 8,
//             "gpu_fabric": {"source": "...", "generator": "nvswitch", "bandwidth": "300 GB/s",
//                            "latency": "0.3 us", "links": 12, "domain_nodes": 1},
//             "pcie": {"source": "...", "switches": 4, "bandwidth": "31 GB/s", "latency": "0.15
//             us"}, "cpu": {"source": "...", "vendor": "amd", "sockets": 2, "bandwidth": "16 GB/s",
//                     "latency": "0.3 us"},
//             "nics": {"source": "...", "count": 8, "bandwidth": "200 Gbit/s", "latency": "1.05
//             us"}, "power": "6500 W", "price": "1.9 $/h"},
//    "network": {"source": "...", "generator": "rail-leaf-spine", "leaf_nodes": 20,
//                "oversubscription": 1, "latency": "0.3 us", "rails_over_nvlink": false}}
//
// (network_reader.hpp has all networks),
//
// or a graph of its own, GPUs in rank order, each link both ways unless "one_way" is true:
//
//   {"name": ..., "title": ..., "source": ..., "profiles": [...], "node": {"source": ..., "cpu":
//   {...}},
//    "graph": {"source": "...",
//              "vertices": [{"name": "a", "kind": "gpu", "node": 0, "domain": 0}, ...],
//              "links": [{"from": "a", "to": "s", "kind": "nvlink", "bandwidth": "300 GB/s",
//                         "latency": "0.3 us", "count": 12}, ...]}}
//
// "power" is a node's, "price" a GPU's. Bandwidths are of one direction: a GPU's links together,
// one NIC, one PCIe slot. Every block names its source. Reading is strict: unknown keys, missing
// units, values out of range and contradictions are all reported, each with its place.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/cluster/cluster_description.hpp"
#include "sim/cluster/topology.hpp"
#include "sim/core/json_reader.hpp"

namespace headway {

// Problems are added; the description is usable only where there are none.
ClusterDescription read_cluster_description(const JsonNode& node, Problems& problems);

// As read_topology(), for a description that is already parsed (a job may hold one inline).
std::optional<Topology> read_topology(const JsonNode& description, int gpus,
                                      const std::vector<LinkOverride>& overrides,
                                      const JsonNode& place, Problems& problems);

// The parsed file of a preset or path. Problems as read_topology(); nothing where there are any.
std::optional<JsonNode> find_topology_file(const std::string& name, const JsonNode& place,
                                           Problems& problems);

// A cluster in one line: `headway simulate --cluster h100 --nodes 64 --nic '8x400 Gbit/s'
// --oversubscription 2`. Servers, switches and latencies are those of the topology that the GPU is
// best known from; what is given replaces its figures.
struct ClusterOptions {
  std::string gpu;  // a device ("h100-sxm") or the beginning of its name ("h100")
  int gpus = 0;     // 0: nodes is given
  int nodes = 0;
  std::optional<std::string> nic = {};  // "8x400 Gbit/s", "400 Gbit/s" (one)
  std::optional<double> oversubscription = {};
  std::vector<LinkOverride> overrides = {};
};
// Problems name the options (--cluster, --nodes, --nic, --oversubscription).
std::optional<Topology> cluster_in_one_line(const ClusterOptions& options, Problems& problems);
// Whether `gpu` is a word that cluster_in_one_line() takes (and no preset).
bool names_one_line_cluster(const std::string& gpu);

// Every problem of a topology file: of its reading, and of the graphs made from it at one node, two
// nodes and its largest size up to 4,096 GPUs (no way between two GPUs, a bandwidth of 0).
std::vector<Problem> check_topology(const std::string& name);

}  // namespace headway
