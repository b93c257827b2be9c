#include "sim/cluster/topology.hpp"

#include <algorithm>
#include <cassert>
#include <cstdio>
#include <mutex>
#include <utility>

#include "sim/cluster/cluster_description.hpp"
#include "sim/cluster/generators.hpp"
#include "sim/cluster/routing.hpp"
#include "sim/core/counter_bits.hpp"

namespace headway {

namespace {

int divide_up(int a, int b) { return (a + b - 1) / b; }

// As a Graphviz string.
std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char letter : text) {
    if (letter == '"' || letter == '\\') result += '\\';
    result += letter;
  }
  return result + '"';
}

}  // namespace

std::string_view name(NodeKind kind) {
  switch (kind) {
    case NodeKind::kGpu:
      return "gpu";
    case NodeKind::kNvSwitch:
      return "nvswitch";
    case NodeKind::kPcieSwitch:
      return "pcie-switch";
    case NodeKind::kCpu:
      return "cpu";
    case NodeKind::kNic:
      return "nic";
    case NodeKind::kLeaf:
      return "leaf";
    case NodeKind::kSpine:
      return "spine";
    case NodeKind::kCore:
      return "core";
  }
  return "";
}

struct Topology::Graph {
  ClusterDescription cluster;
  int gpus = 0;
  int gpus_per_domain = 1;

  // Built once, when first asked for.
  const ClusterGraph& content() const {
    std::call_once(built, [this] { graph = generate(cluster, gpus); });
    return graph;
  }
  const Router& routes() const {
    std::call_once(routed,
                   [this] { router = std::make_unique<Router>(content(), cluster.dead_links); });
    return *router;
  }

  VertexId nic_of(int rank) const {  // -1: none
    if (cluster.dead_links.empty()) return home_nic(rank);
    std::call_once(nics_found, [this] {
      const auto servers = nics_by_server();
      for (int r = 0; r < gpus; ++r) {
        nics.push_back(live_nic(r, servers[static_cast<std::size_t>(r / cluster.server.gpus)]));
      }
    });
    return nics[static_cast<std::size_t>(rank)];
  }
  VertexId home_nic(int rank) const {
    if (cluster.graph) return cluster.graph->nic_of_gpu[static_cast<std::size_t>(rank)];
    const ServerDescription& server = cluster.server;
    if (server.nics == 0) return -1;
    const int local = rank % server.gpus;
    return gpus + rank / server.gpus * server.nics + local * server.nics / server.gpus;
  }
  // GPUs in use that share the NIC of `rank`, itself included.
  int sharing_nic(int rank) const {
    const VertexId nic = nic_of(rank);
    if (nic < 0) return 1;
    const int first = rank - rank % cluster.server.gpus;
    const int end = std::min(first + cluster.server.gpus, gpus);
    int sharing = 0;
    for (int other = first; other < end; ++other) sharing += nic_of(other) == nic ? 1 : 0;
    return sharing;
  }

  // What chooses among equally good ways.
  std::uint64_t spread(int from_rank, int to_rank) const {
    const NetworkDescription& network = cluster.network;
    if (!network.hashed_ways) return static_cast<std::uint64_t>(to_rank);
    const auto ends =
        (static_cast<std::uint64_t>(from_rank) << 32U) + static_cast<std::uint64_t>(to_rank);
    return mixed(ends ^ mixed(network.seed));
  }

  // The GPU of the sender's server through whose NIC a transfer leaves: where rails change over
  // NVLink, one that sits on the receiver's rail.
  int leaving_rank(int from_rank, int to_rank) const {
    if (!cluster.network.rails_over_nvlink || cluster.graph) return from_rank;
    const auto rail = [&](int rank) {
      const VertexId nic = nic_of(rank);
      return nic < 0 ? nic : (nic - gpus) % cluster.server.nics;
    };
    const int first = from_rank - from_rank % cluster.server.gpus;
    const int end = std::min(first + cluster.server.gpus, gpus);
    if (rail(from_rank) == rail(to_rank)) return from_rank;
    for (int other = first; other < end; ++other) {
      if (rail(other) != rail(to_rank)) continue;
      if (cluster.dead_links.empty() || !routes().path(from_rank, other, Reach::kFabric).empty()) {
        return other;
      }
    }
    return from_rank;
  }

 private:
  std::vector<std::vector<VertexId>> nics_by_server() const {
    const std::vector<Vertex>& vertices = content().vertices;
    std::vector<std::vector<VertexId>> servers(
        static_cast<std::size_t>(divide_up(gpus, cluster.server.gpus)));
    for (VertexId v = gpus; v < static_cast<VertexId>(vertices.size()); ++v) {
      const Vertex& vertex = vertices[static_cast<std::size_t>(v)];
      const auto server = static_cast<std::size_t>(vertex.node);
      if (vertex.kind == NodeKind::kNic && server < servers.size()) servers[server].push_back(v);
    }
    return servers;
  }
  // Its own NIC, or the next one of its server that can still be reached and reaches out; -1: none.
  VertexId live_nic(int rank, std::vector<VertexId> candidates) const {
    const VertexId home = home_nic(rank);
    if (home < 0) return home;
    std::rotate(candidates.begin(), std::find(candidates.begin(), candidates.end(), home),
                candidates.end());
    for (const VertexId nic : candidates) {
      if (routes().reaches_outside(nic) && !routes().path(rank, nic, Reach::kServer).empty() &&
          !routes().path(nic, rank, Reach::kServer).empty()) {
        return nic;
      }
    }
    return -1;
  }

  mutable std::once_flag built, routed, nics_found;
  mutable ClusterGraph graph;
  mutable std::unique_ptr<Router> router;
  mutable std::vector<VertexId> nics;  // by rank, where links are dead
};

Topology::Topology(ClusterDescription cluster, int gpus) {
  assert(gpus >= 1);
  auto graph = std::make_shared<Graph>();
  graph->gpus_per_domain = cluster.graph ? cluster.graph->gpus_per_domain
                                         : cluster.server.gpus * cluster.server.domain_servers;
  graph->cluster = std::move(cluster);
  graph->gpus = gpus;
  graph_ = std::move(graph);
}
Topology::Topology(const Topology&) = default;
Topology::Topology(Topology&&) noexcept = default;
Topology& Topology::operator=(Topology other) noexcept {
  graph_.swap(other.graph_);
  return *this;
}
Topology::~Topology() = default;

const ClusterDescription& Topology::description() const { return graph_->cluster; }
const std::string& Topology::name() const { return graph_->cluster.name; }
const std::string& Topology::source() const { return graph_->cluster.source; }
const std::string& Topology::default_profile() const { return graph_->cluster.profiles.front(); }
const std::vector<std::string>& Topology::profiles() const { return graph_->cluster.profiles; }
int Topology::gpus() const { return graph_->gpus; }
int Topology::nodes() const { return divide_up(graph_->gpus, graph_->cluster.server.gpus); }
int Topology::gpus_per_node() const { return graph_->cluster.server.gpus; }
int Topology::gpus_per_domain() const { return graph_->gpus_per_domain; }
int Topology::nics_per_node() const { return graph_->cluster.server.nics; }
Bandwidth Topology::nic_bandwidth() const { return graph_->cluster.server.nic.bandwidth; }
Bandwidth Topology::nvlink_bandwidth() const {
  const ServerDescription& server = graph_->cluster.server;
  return server.gpu_link.bandwidth.bytes_per_second > 0 ? server.gpu_link.bandwidth
                                                        : server.pcie.bandwidth;
}
std::optional<HostMemory> Topology::host_memory() const {
  const ServerDescription& server = graph_->cluster.server;
  if (graph_->cluster.graph || server.host_bandwidth.bytes_per_second <= 0) return std::nullopt;
  const int gpus = std::min(server.gpus, graph_->gpus);
  HostMemory host;
  host.bandwidth = {server.host_bandwidth.bytes_per_second / gpus};
  host.size = {server.host_memory.count / gpus};
  if (server.c2c.bandwidth.bytes_per_second > 0) {
    host.link = server.c2c.bandwidth;
    host.latency = server.c2c.latency;
    host.link_kind = "c2c";
  } else if (server.pcie.bandwidth.bytes_per_second > 0) {
    // The GPUs below a switch share its way up.
    const int switches = server.pcie_switches;
    const int below = switches > 0 ? divide_up(server.gpus, switches) : 1;
    host.link = {server.pcie.bandwidth.bytes_per_second / std::min(below, gpus)};
    host.latency = server.pcie.latency * (switches > 0 ? 2 : 1);
    host.link_kind = kPcie;
  } else {
    host.link = server.gpu_link.bandwidth;
    host.latency = server.gpu_link.latency;
    host.link_kind = kMemory;
  }
  return host;
}
bool Topology::has_nvswitch() const { return graph_->cluster.server.gpu_fabric == "nvswitch"; }
std::string Topology::cpu_vendor() const { return graph_->cluster.server.cpu_vendor; }
std::optional<double> Topology::watts_per_node() const { return graph_->cluster.server.watts; }
std::optional<double> Topology::dollars_per_gpu_hour() const {
  return graph_->cluster.dollars_per_gpu_hour;
}

const std::vector<Vertex>& Topology::vertices() const { return graph_->content().vertices; }
const std::vector<TopologyLink>& Topology::links() const { return graph_->content().links; }

VertexId Topology::gpu(int rank) const {
  assert(rank >= 0 && rank < graph_->gpus);
  return rank;  // GPUs are the first vertices
}

int Topology::node_of(int rank) const { return rank / graph_->cluster.server.gpus; }

std::optional<VertexId> Topology::nic_of(int rank) const {
  assert(rank >= 0 && rank < graph_->gpus);
  const VertexId nic = graph_->nic_of(rank);
  if (nic < 0) return std::nullopt;
  return nic;
}

std::vector<LinkId> Topology::route(int from_rank, int to_rank) const {
  const VertexId from = gpu(from_rank), to = gpu(to_rank);
  if (from == to) return {};
  const Router& router = graph_->routes();
  const std::uint64_t choice = graph_->spread(from_rank, to_rank);
  if (from_rank / graph_->gpus_per_domain == to_rank / graph_->gpus_per_domain) {
    std::vector<LinkId> links = router.path(from, to, Reach::kFabric, choice);
    if (!links.empty()) return links;
  }
  if (node_of(from_rank) == node_of(to_rank)) {
    std::vector<LinkId> links = router.path(from, to, Reach::kServer, choice);
    if (!links.empty()) return links;
  }
  const int leaving = graph_->leaving_rank(from_rank, to_rank);
  const VertexId out = graph_->nic_of(leaving), in = graph_->nic_of(to_rank);
  if (out < 0 || in < 0) return {};
  std::vector<LinkId> links;
  bool whole = true;
  const auto go = [&](VertexId a, VertexId b, Reach reach) {
    const std::vector<LinkId> part = router.path(a, b, reach, choice);
    whole = whole && (a == b || !part.empty());
    links.insert(links.end(), part.begin(), part.end());
  };
  go(from, gpu(leaving), Reach::kFabric);
  go(gpu(leaving), out, Reach::kServer);
  go(out, in, Reach::kOutside);
  go(in, to, Reach::kServer);
  assert(whole || !graph_->cluster.dead_links.empty());
  return whole ? links : std::vector<LinkId>{};
}

GroupPlacement Topology::placement(const std::vector<int>& ranks) const {
  GroupPlacement placement;
  placement.ranks = static_cast<int>(ranks.size());
  placement.nodes = 0;
  placement.ranks_per_node = 0;
  // A placement counts what costs depend on: where a domain spans servers, members anywhere in it
  // are as near as in one server.
  const int near = std::max(graph_->gpus_per_domain, graph_->cluster.server.gpus);
  std::vector<int> ordered = ranks;
  if (!std::is_sorted(ordered.begin(), ordered.end())) std::sort(ordered.begin(), ordered.end());
  for (std::size_t i = 0; i < ordered.size();) {
    const int place = ordered[i] / near;
    int together = 0;
    for (; i < ordered.size() && ordered[i] / near == place; ++i) {
      assert(ordered[i] >= 0 && ordered[i] < graph_->gpus);
      ++together;
      placement.neighbours_sharing_nic =
          std::max(placement.neighbours_sharing_nic, graph_->sharing_nic(ordered[i]));
    }
    ++placement.nodes;
    placement.ranks_per_node = std::max(placement.ranks_per_node, together);
  }
  return placement;
}

std::string Topology::dot() const {
  std::string text = "digraph " + quoted(name()) + " {\n  rankdir=BT;\n  node [shape=box];\n";
  const std::vector<Vertex>& vertices = this->vertices();
  for (std::size_t i = 0; i < vertices.size(); ++i) {
    text += "  v" + std::to_string(i) + " [label=" + quoted(vertices[i].name) + "];\n";
  }
  for (const TopologyLink& link : links()) {
    char label[64];
    std::snprintf(label, sizeof label, "%.4g GB/s", link.bandwidth.bytes_per_second / 1e9);
    text += "  v" + std::to_string(link.from) + " -> v" + std::to_string(link.to) + " [label=\"" +
            link.kind + ' ' + label + "\"];\n";
  }
  return text + "}\n";
}

}  // namespace headway
