#include "sim/cluster/dead_links.hpp"

#include "sim/cluster/cluster_description.hpp"

namespace headway {

Topology without(const Topology& topology, std::vector<LinkId> dead) {
  ClusterDescription cluster = topology.description();
  cluster.dead_links = std::move(dead);
  return Topology(std::move(cluster), topology.gpus());
}

// Links die in both directions, so ways compose: each rank is held against the first of its server
// and against rank 0.
std::optional<std::pair<int, int>> cut_off(const Topology& topology) {
  if (topology.description().dead_links.empty()) return std::nullopt;
  for (int rank = 1; rank < topology.gpus(); ++rank) {
    for (const int other : {rank - rank % topology.gpus_per_node(), 0}) {
      if (rank == other) continue;
      if (topology.route(other, rank).empty() || topology.route(rank, other).empty()) {
        return {{other, rank}};
      }
    }
  }
  return std::nullopt;
}

}  // namespace headway
