#include "sim/cluster/generators.hpp"

#include <algorithm>
#include <cassert>
#include <utility>

namespace headway {

namespace {

// CPUs and PCIe switches of one server: switches and CPUs divide GPUs and NICs among them in
// blocks, as servers are laid out; a server without PCIe switches hangs them on the CPU itself.
void connect_server(GraphBuilder& graph, int server) {
  const ServerDescription& node = graph.cluster().server;
  const std::string prefix = "node" + std::to_string(server) + '/';
  std::vector<VertexId> cpus;
  for (int i = 0; i < node.sockets; ++i) {
    cpus.push_back(graph.add(NodeKind::kCpu, prefix + "cpu" + std::to_string(i), server));
    if (i > 0)
      graph.connect(cpus[static_cast<std::size_t>(i - 1)], cpus.back(), kSocket, node.socket);
  }
  const auto cpu_of = [&](int index, int count) {
    return cpus[static_cast<std::size_t>(index * node.sockets / count)];
  };
  std::vector<VertexId> switches;
  for (int i = 0; i < node.pcie_switches; ++i) {
    switches.push_back(
        graph.add(NodeKind::kPcieSwitch, prefix + "pcie" + std::to_string(i), server));
    graph.connect(switches.back(), cpu_of(i, node.pcie_switches), kPcie, node.pcie);
  }
  const auto root_of = [&](int index, int count) {
    if (switches.empty()) return cpu_of(index, count);
    return switches[static_cast<std::size_t>(index * node.pcie_switches / count)];
  };
  for (int i = 0; i < graph.gpus_in(server); ++i) {
    graph.connect(graph.gpu(server, i), root_of(i, node.gpus), kPcie, node.pcie);
  }
  for (int i = 0; i < node.nics; ++i) {
    graph.connect(graph.nic(server, i), root_of(i, node.nics), kPcie, node.pcie);
  }
}

std::int64_t any_number(const ClusterDescription&) { return 0; }

ClusterGraph written_graph(const GraphDescription& description) {
  ClusterGraph graph;
  for (const VertexDescription& vertex : description.vertices) {
    graph.vertices.push_back(
        {static_cast<NodeKind>(vertex.kind), vertex.name, vertex.server, vertex.domain});
  }
  for (const GraphDescription::Link& link : description.links) {
    graph.links.push_back(
        {link.from, link.to, link.kind, link.link.bandwidth, link.link.latency, link.link.count});
  }
  return graph;
}

void reserve(GraphBuilder& graph, ClusterGraph& content) {
  const ServerDescription& node = graph.cluster().server;
  const auto servers = static_cast<std::size_t>(graph.servers());
  const auto gpus = static_cast<std::size_t>(node.gpus);
  const auto nics = static_cast<std::size_t>(node.nics);
  const auto switches = static_cast<std::size_t>(node.pcie_switches + node.sockets);
  // Two directions each: a GPU's NVLink and PCIe, a NIC's PCIe and network, a switch's way up; then
  // room for a leaf each server and for meshes, which have more links.
  content.vertices.reserve(servers * (gpus + nics + switches + 2) + 64);
  content.links.reserve(servers * (4 * gpus + 4 * nics + 2 * switches + 8) + 64);
}

}  // namespace

const std::vector<std::string>& link_kinds() {
  static const std::vector<std::string> kinds = {kNvlink,    kMemory,    kPcie,  kSocket, kNicLink,
                                                 kLeafSpine, kSpineCore, kLocal, kGlobal, kTorus};
  return kinds;
}

GraphBuilder::GraphBuilder(const ClusterDescription& cluster, int gpus)
    : cluster_(cluster),
      gpus_(gpus),
      servers_((gpus + cluster.server.gpus - 1) / cluster.server.gpus) {
  const ServerDescription& node = cluster.server;
  reserve(*this, graph_);
  const auto add_all = [&](NodeKind kind, const char* what, int server, int number) {
    std::string name = "node" + std::to_string(server) + what;
    const std::size_t length = name.size();
    for (int i = 0; i < number; ++i) {
      name.resize(length);
      name += std::to_string(i);
      graph_.vertices.push_back(
          {kind, name, server, kind == NodeKind::kGpu ? server / node.domain_servers : -1});
    }
  };
  for (int server = 0; server < servers_; ++server) {
    add_all(NodeKind::kGpu, "/gpu", server, gpus_in(server));
  }
  for (int server = 0; server < servers_; ++server) {
    add_all(NodeKind::kNic, "/nic", server, node.nics);
  }
}

int GraphBuilder::gpus_in(int server) const {
  return std::min(cluster_.server.gpus, gpus_ - server * cluster_.server.gpus);
}

int GraphBuilder::domains() const {
  return (servers_ + cluster_.server.domain_servers - 1) / cluster_.server.domain_servers;
}

VertexId GraphBuilder::add(NodeKind kind, std::string name, int server) {
  graph_.vertices.push_back({kind, std::move(name), server, -1});
  return static_cast<VertexId>(graph_.vertices.size()) - 1;
}

void GraphBuilder::connect(VertexId a, VertexId b, const char* kind, const LinkDescription& link) {
  // Built in place: a large cluster has hundreds of thousands.
  for (const auto& [from, to] : {std::pair(a, b), std::pair(b, a)}) {
    TopologyLink& added = graph_.links.emplace_back();
    added.from = from;
    added.to = to;
    added.kind = kind;
    added.bandwidth = link.bandwidth;
    added.latency = link.latency;
    added.count = link.count;
  }
}

const std::vector<GpuFabric>& gpu_fabrics() {
  static const std::vector<GpuFabric> table = {
      {"nvswitch", NodeKind::kNvSwitch, kNvlink, 0, "NVLink through NVSwitches", connect_nvswitch},
      {"hybrid-cube-mesh", NodeKind::kGpu, kNvlink, 8, "NVLink as the DGX-1's hybrid cube mesh",
       connect_hybrid_cube_mesh},
      {"all-to-all", NodeKind::kGpu, kNvlink, 0, "NVLink from every GPU to every other",
       connect_all_to_all},
      {"pcie", NodeKind::kPcieSwitch, kPcie, 0, "PCI Express only", connect_pcie_only},
      {"shared-memory", NodeKind::kCpu, kMemory, 0, "the memory that all cores share",
       connect_shared_memory},
  };
  return table;
}

const GpuFabric* find_gpu_fabric(const std::string& name) {
  for (const GpuFabric& fabric : gpu_fabrics()) {
    if (name == fabric.name) return &fabric;
  }
  return nullptr;
}

const std::vector<Network>& networks() {
  static const std::vector<Network> table = {
      {"single-switch", false, "all NICs on one switch", connect_single_switch, any_number},
      {"leaf-spine", true, "leaf-spine, all NICs of a server under one leaf", connect_leaf_spine,
       any_number},
      {"rail-leaf-spine", true, "rail-optimised leaf-spine, a leaf for each rail",
       connect_rail_leaf_spine, any_number},
      {"fat-tree", false, "a k-ary fat tree, every switch a vertex", connect_fat_tree,
       fat_tree_capacity},
      {"dragonfly", false, "a dragonfly, minimal routes", connect_dragonfly, dragonfly_capacity},
      {"torus", false, "a torus of switches, shortest routes", connect_torus, torus_capacity},
  };
  return table;
}

const Network* find_network(const std::string& name) {
  for (const Network& network : networks()) {
    if (name == network.name) return &network;
  }
  return nullptr;
}

ClusterGraph generate(const ClusterDescription& cluster, int gpus) {
  assert(gpus >= 1);
  if (cluster.graph) return written_graph(*cluster.graph);
  GraphBuilder graph(cluster, gpus);
  const GpuFabric* fabric = find_gpu_fabric(cluster.server.gpu_fabric);
  assert(fabric != nullptr);
  // Cores and their memory are the server: there is nothing else inside.
  if (fabric->hub != NodeKind::kCpu) {
    for (int server = 0; server < graph.servers(); ++server) connect_server(graph, server);
  }
  fabric->connect(graph);
  if (!cluster.network.generator.empty()) {
    const Network* network = find_network(cluster.network.generator);
    assert(network != nullptr);
    network->connect(graph);
  }
  return graph.take();
}

}  // namespace headway
