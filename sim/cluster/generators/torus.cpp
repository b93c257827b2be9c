// A torus: a switch for each server, joined to the next and the one before it along each dimension;
// a dimension of two has one link, not two. Servers stand in order with the first dimension
// running fastest.
#include <algorithm>
#include <string>
#include <vector>

#include "sim/cluster/generators.hpp"

namespace headway {

std::int64_t torus_capacity(const ClusterDescription& cluster) {
  std::int64_t switches = 1;
  for (const int size : cluster.network.dimensions) switches *= size;
  return switches * cluster.server.nics;
}

void connect_torus(GraphBuilder& graph) {
  const ClusterDescription& cluster = graph.cluster();
  LinkDescription link = cluster.network.ring;
  if (link.bandwidth.bytes_per_second <= 0) link.bandwidth = cluster.server.nic.bandwidth;
  const auto switches =
      static_cast<int>(torus_capacity(cluster) / std::max(1, cluster.server.nics));
  std::vector<VertexId> grid;
  for (int s = 0; s < switches; ++s) {
    grid.push_back(graph.add(NodeKind::kLeaf, "switch" + std::to_string(s)));
    if (s >= graph.servers()) continue;  // forwards, and has no server yet
    for (int i = 0; i < cluster.server.nics; ++i) {
      graph.connect(graph.nic(s, i), grid.back(), kNicLink, cluster.server.nic);
    }
  }
  int stride = 1;
  for (const int size : cluster.network.dimensions) {
    for (int s = 0; s < switches; ++s) {
      const int place = s / stride % size;
      if (size == 1 || (size == 2 && place == 1)) continue;
      const int next = s + ((place + 1) % size - place) * stride;
      graph.connect(grid[static_cast<std::size_t>(s)], grid[static_cast<std::size_t>(next)], kTorus,
                    link);
    }
    stride *= size;
  }
}

}  // namespace headway
