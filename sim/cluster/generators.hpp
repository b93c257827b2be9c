// Generators: from the description of a server and a network to vertices and links. A GPU fabric
// joins the GPUs of an NVLink domain; a network joins the NICs of all servers. Each is one function
// in a file of generators/, named in the table of generators.cpp.
//
// Vertices stand in this order: every GPU by rank, every NIC by server, then the rest, so that the
// ids of GPUs and NICs are arithmetic and need no graph.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/cluster/cluster_description.hpp"
#include "sim/cluster/topology.hpp"

namespace headway {

// The kinds of links that generators make, in the order summaries list them. An override names one.
inline constexpr const char* kNvlink = "nvlink";
inline constexpr const char* kMemory = "memory";  // cores of a CPU, through its memory
inline constexpr const char* kPcie = "pcie";
inline constexpr const char* kSocket = "socket";
inline constexpr const char* kNicLink = "nic";
inline constexpr const char* kLeafSpine = "leaf-spine";
inline constexpr const char* kSpineCore = "spine-core";
inline constexpr const char* kLocal = "local";    // of a dragonfly: inside a group
inline constexpr const char* kGlobal = "global";  // between groups
inline constexpr const char* kTorus = "torus";
const std::vector<std::string>& link_kinds();

struct ClusterGraph {
  std::vector<Vertex> vertices;
  std::vector<TopologyLink> links;
};

// The graph under construction, and the part of the cluster that it holds.
class GraphBuilder {
 public:
  GraphBuilder(const ClusterDescription& cluster, int gpus);

  const ClusterDescription& cluster() const { return cluster_; }
  int gpus() const { return gpus_; }
  int servers() const { return servers_; }
  int gpus_in(int server) const;  // the last (only) one may be used in part
  int domains() const;

  VertexId gpu(int server, int index) const { return server * cluster_.server.gpus + index; }
  VertexId nic(int server, int index) const {
    return gpus_ + server * cluster_.server.nics + index;
  }
  VertexId add(NodeKind kind, std::string name, int server = -1);
  // NIC `index` of the network, counted server by server.
  VertexId nic(int index) const { return gpus_ + index; }
  int nics() const { return servers_ * cluster_.server.nics; }
  // One link each way.
  void connect(VertexId a, VertexId b, const char* kind, const LinkDescription& link);

  ClusterGraph take() { return std::move(graph_); }

 private:
  const ClusterDescription& cluster_;
  int gpus_;
  int servers_;
  ClusterGraph graph_;
};

struct GpuFabric {
  const char* name;
  NodeKind hub;  // what stands between GPUs; kGpu: nothing, they are joined directly
  const char* link_kind;
  int required_gpus;  // 0: any number
  const char* summary;
  void (*connect)(GraphBuilder&);
};
const std::vector<GpuFabric>& gpu_fabrics();
const GpuFabric* find_gpu_fabric(const std::string& name);

// The leaf-spine networks have leaves of so many servers, and layers above them.
struct Network {
  const char* name;
  bool leaves;
  const char* summary;
  void (*connect)(GraphBuilder&);
  // NICs that it can join at most; 0: any number.
  std::int64_t (*capacity)(const ClusterDescription&);
};
const std::vector<Network>& networks();
const Network* find_network(const std::string& name);

// The graph of the first `gpus` GPUs; where the description has a graph of its own, that graph
// whole. REQUIRES: the description was read without problems and holds that many.
ClusterGraph generate(const ClusterDescription& cluster, int gpus);

// generators/*.cpp: GPU fabrics
void connect_nvswitch(GraphBuilder& graph);
void connect_hybrid_cube_mesh(GraphBuilder& graph);
void connect_all_to_all(GraphBuilder& graph);
void connect_shared_memory(GraphBuilder& graph);
void connect_pcie_only(GraphBuilder& graph);
// generators/*.cpp: networks
void connect_single_switch(GraphBuilder& graph);
void connect_leaf_spine(GraphBuilder& graph);
void connect_rail_leaf_spine(GraphBuilder& graph);
void connect_fat_tree(GraphBuilder& graph);
void connect_dragonfly(GraphBuilder& graph);
void connect_torus(GraphBuilder& graph);
std::int64_t fat_tree_capacity(const ClusterDescription& cluster);
std::int64_t dragonfly_capacity(const ClusterDescription& cluster);
std::int64_t torus_capacity(const ClusterDescription& cluster);

// The layers above the leaves, shared by the leaf-spine networks: leaves[server group][any number].
void connect_spines(GraphBuilder& graph, const std::vector<std::vector<VertexId>>& leaves,
                    int nics_per_leaf);

}  // namespace headway
