// The dragonfly (Kim, Dally, Scott, Abts, ISCA 2008, section 3): groups of `a` routers, each with
// `p` NICs, joined all to all by local links; `h` global ports a router join the groups all to all.
// With g groups in use each pair has as many of the a*h ports as come to it, together one link
// here. Routes are minimal: local, global, local.
#include <algorithm>
#include <string>
#include <vector>

#include "sim/cluster/generators.hpp"

namespace headway {

std::int64_t dragonfly_capacity(const ClusterDescription& cluster) {
  const NetworkDescription& network = cluster.network;
  const std::int64_t routers = network.group_routers;
  return (routers * network.global_ports + 1) * routers * network.router_nics;
}

void connect_dragonfly(GraphBuilder& graph) {
  const NetworkDescription& network = graph.cluster().network;
  const LinkDescription& nic = graph.cluster().server.nic;
  const int a = network.group_routers, p = network.router_nics;
  const auto as_fast_as_a_nic = [&](LinkDescription link) {
    if (link.bandwidth.bytes_per_second <= 0) link.bandwidth = nic.bandwidth;
    return link;
  };
  const LinkDescription local = as_fast_as_a_nic(network.local);
  const int groups = (graph.nics() + a * p - 1) / (a * p);
  std::vector<std::vector<VertexId>> routers(static_cast<std::size_t>(groups));
  for (int g = 0; g < groups; ++g) {
    std::vector<VertexId>& own = routers[static_cast<std::size_t>(g)];
    for (int r = 0; r < a; ++r) {
      own.push_back(
          graph.add(NodeKind::kLeaf, "group" + std::to_string(g) + "/router" + std::to_string(r)));
      for (int other = 0; other < r; ++other) {
        graph.connect(own[static_cast<std::size_t>(other)], own.back(), kLocal, local);
      }
      const int first = (g * a + r) * p;
      for (int n = first; n < std::min(first + p, graph.nics()); ++n) {
        graph.connect(graph.nic(n), own.back(), kNicLink, nic);
      }
    }
  }
  if (groups < 2) return;
  LinkDescription global = as_fast_as_a_nic(network.global);
  global.count = std::max(1, a * network.global_ports / (groups - 1));
  global.bandwidth = global.bandwidth * global.count;
  // The other groups stand in turn around a group's routers: the first after it on router 0.
  const auto port = [&](int group, int to) {
    const int turn = (to - group - 1 + groups) % groups;
    return routers[static_cast<std::size_t>(group)]
                  [static_cast<std::size_t>(static_cast<std::int64_t>(turn) * a / (groups - 1))];
  };
  for (int g = 0; g < groups; ++g) {
    for (int other = g + 1; other < groups; ++other) {
      graph.connect(port(g, other), port(other, g), kGlobal, global);
    }
  }
}

}  // namespace headway
