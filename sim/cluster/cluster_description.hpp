// A cluster as its topology file describes it: a server, repeated, and the network between servers;
// or a graph given vertex by vertex. Nothing is built here. A generator turns it into a graph of as
// many servers as a job uses.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/core/units.hpp"

namespace headway {

// Parallel links between two vertices, in one direction.
struct LinkDescription {
  Bandwidth bandwidth;  // of all together
  Time latency;
  int count = 1;
};

struct ServerDescription {
  int gpus = 0;
  // How GPUs reach each other: a name of gpu_fabrics() (generators.hpp).
  std::string gpu_fabric;
  LinkDescription gpu_link;          // of one GPU: all its links together
  double gpu_link_factor = 1;        // its bandwidth over the file's, where a job changed it
  int domain_servers = 1;            // servers that share one NVLink domain
  int pcie_switches = 0;             // 0: GPUs and NICs hang on the CPU
  LinkDescription pcie;              // of one GPU, NIC or switch
  std::string cpu_vendor = "intel";  // "intel", "amd", "arm"
  int sockets = 1;
  LinkDescription socket;  // between two CPUs
  // Of all CPUs of the server together: what their memory moves, and its size; 0: not known.
  Bandwidth host_bandwidth;
  Bytes host_memory;
  LinkDescription c2c;  // of one GPU to its CPU, coherent, where there is one; else through PCIe
  int nics = 0;         // 0: none. REQUIRES: divides gpus (several that serve one GPU are one here)
  LinkDescription nic;  // of one
  std::optional<double> watts;
};

struct NetworkDescription {
  // A name of networks() (generators.hpp); empty: none.
  std::string generator;
  int leaf_servers = 1;         // servers under one leaf switch, or under one leaf of each rail
  double oversubscription = 1;  // of a leaf: what its servers can send over what its uplinks carry
  LinkDescription uplink;  // leaf to spine; only latency, unless the bandwidth is given (not 0)
  int pod_servers = 0;     // servers under one spine layer; 0: one layer for all, no core
  double core_oversubscription =
      1;                 // of a pod: what its servers can send over what goes to the core
  LinkDescription core;  // spine to core, as uplink
  bool rails_over_nvlink =
      false;       // PXN: change rail inside the sender's NVLink domain (routing.cpp)
  int spines = 0;  // switches of a spine layer, which divide each leaf's uplinks; 0: one vertex
  int ports = 0;   // of a switch of a fat tree
  int group_routers = 0, router_nics = 0, global_ports = 0;  // of a dragonfly
  LinkDescription local, global;                             // of a dragonfly, as uplink
  std::vector<int> dimensions;                               // of a torus: switches along each
  LinkDescription ring;                                      // between neighbours of a torus
  // Among equally good ways: by the receiver's number in turn, or by a hash of both ends.
  bool hashed_ways = false;
  std::uint64_t seed = 0;  // of the hash
};

struct VertexDescription {
  std::string name;
  int kind = 0;  // a NodeKind
  int server = -1;
  int domain = -1;
};

struct GraphDescription {
  std::vector<VertexDescription> vertices;  // GPUs first, in rank order
  struct Link {
    int from = 0, to = 0;  // into vertices
    std::string kind;
    LinkDescription link;
  };
  std::vector<Link> links;      // each direction apart
  std::vector<int> nic_of_gpu;  // index of its nearest NIC among vertices; -1: none
  int gpus_per_domain = 1;
};

struct ClusterDescription {
  std::string name, title, source;
  std::vector<std::string> profiles;  // the default first
  int max_servers = 1;
  std::string max_reason;  // why there are no more, for messages
  ServerDescription server;
  NetworkDescription network;
  std::optional<double> dollars_per_gpu_hour;
  std::optional<GraphDescription> graph;  // instead of generators
  std::vector<int> dead_links;            // of the graph made from it (dead_links.hpp)
};

}  // namespace headway
