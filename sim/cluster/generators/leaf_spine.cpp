// A fat tree of leaf and spine switches, and of a core above them where the cluster has pods: all
// NICs of a server hang on the leaf of its rack.
//
// The spine switches of a layer are one vertex, and a leaf's uplinks one link with the bandwidth of
// all of them. For a fabric that spreads every flow evenly over equal spines (adaptive routing,
// packet spraying) that is exact: each uplink of a leaf carries the same share of what the leaf
// sends, so the uplinks bind together, when their sum does. What an unlucky hash, or a dead spine,
// does to single flows is seen where the network says how many spines a layer has: each is a vertex
// then, with its share of every leaf's uplinks.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "sim/cluster/generators.hpp"

namespace headway {

void connect_spines(GraphBuilder& graph, const std::vector<std::vector<VertexId>>& leaves,
                    int nics_per_leaf) {
  const NetworkDescription& network = graph.cluster().network;
  const LinkDescription& nic = graph.cluster().server.nic;
  // What `ports` NICs can send, divided by the oversubscription, unless the file gives a bandwidth.
  const auto up = [&](const LinkDescription& given, double ports, double oversubscription) {
    LinkDescription link = given;
    if (given.bandwidth.bytes_per_second <= 0) {
      link.bandwidth = nic.bandwidth * (ports / oversubscription);
    }
    link.count = std::max(1, static_cast<int>(std::ceil(ports * nic.count / oversubscription)));
    return link;
  };
  std::size_t total = 0;
  for (const auto& group : leaves) total += group.size();
  if (total < 2) return;

  const LinkDescription uplink = up(network.uplink, nics_per_leaf, network.oversubscription);
  const int groups_per_pod = network.pod_servers == 0
                                 ? static_cast<int>(leaves.size())
                                 : std::max(1, network.pod_servers / network.leaf_servers);
  const int spines = std::max(1, network.spines);
  const auto share = [&](LinkDescription link) {
    link.bandwidth = link.bandwidth * (1.0 / spines);
    link.count = std::max(1, link.count / spines);
    return link;
  };
  std::vector<std::vector<VertexId>> pods;  // the spines of each
  for (std::size_t group = 0; group < leaves.size(); ++group) {
    if (static_cast<int>(group) % groups_per_pod == 0) {
      const std::string pod = std::to_string(pods.size());
      pods.emplace_back();
      for (int s = 0; s < spines; ++s) {
        const std::string name =
            network.spines == 0 ? "spines" + pod : "pod" + pod + "/spine" + std::to_string(s);
        pods.back().push_back(graph.add(NodeKind::kSpine, name));
      }
    }
    for (const VertexId leaf : leaves[group]) {
      for (const VertexId spine : pods.back()) {
        graph.connect(leaf, spine, kLeafSpine, share(uplink));
      }
    }
  }
  if (pods.size() < 2) return;
  const double pod_ports = static_cast<double>(network.pod_servers) * graph.cluster().server.nics;
  const LinkDescription to_core = up(network.core, pod_ports, network.core_oversubscription);
  // Spine s of every pod meets the others in the cores of its own plane.
  std::vector<VertexId> cores;
  for (int s = 0; s < spines; ++s) {
    cores.push_back(
        graph.add(NodeKind::kCore, network.spines == 0 ? "core" : "core" + std::to_string(s)));
  }
  for (const std::vector<VertexId>& pod : pods) {
    for (std::size_t s = 0; s < pod.size(); ++s) {
      graph.connect(pod[s], cores[s], kSpineCore, share(to_core));
    }
  }
}

void connect_leaf_spine(GraphBuilder& graph) {
  const ServerDescription& node = graph.cluster().server;
  const int leaf_servers = graph.cluster().network.leaf_servers;
  std::vector<std::vector<VertexId>> leaves;
  for (int server = 0; server < graph.servers(); ++server) {
    if (server % leaf_servers == 0) {
      leaves.push_back({graph.add(NodeKind::kLeaf, "leaf" + std::to_string(leaves.size()))});
    }
    for (int i = 0; i < node.nics; ++i) {
      graph.connect(graph.nic(server, i), leaves.back().front(), kNicLink, node.nic);
    }
  }
  connect_spines(graph, leaves, leaf_servers * node.nics);
}

}  // namespace headway
