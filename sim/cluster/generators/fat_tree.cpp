// The k-ary fat tree (Al-Fares, Loukissas, Vahdat, SIGCOMM 2008, figure 3): k pods of k/2 leaf and
// k/2 spine switches with k ports each, k/2 NICs on every leaf, and (k/2)^2 core switches, of which
// spine s of every pod reaches k/2. All links are as fast as a NIC. Every switch is a vertex, so
// that what an unlucky choice of way does to single flows is seen; the leaf-spine networks have the
// even spread.
#include <string>
#include <vector>

#include "sim/cluster/generators.hpp"

namespace headway {

std::int64_t fat_tree_capacity(const ClusterDescription& cluster) {
  const std::int64_t ports = cluster.network.ports;
  return ports * ports * ports / 4;
}

void connect_fat_tree(GraphBuilder& graph) {
  const NetworkDescription& network = graph.cluster().network;
  const LinkDescription& nic = graph.cluster().server.nic;
  const int half = network.ports / 2;
  LinkDescription up = nic;
  up.latency = network.uplink.latency;
  const int leaves = (graph.nics() + half - 1) / half;
  const int pods = (leaves + half - 1) / half;
  // Switches above the first pod have no use without a second one.
  std::vector<VertexId> cores;
  if (pods > 1) {
    for (int i = 0; i < half * half; ++i) {
      cores.push_back(graph.add(NodeKind::kCore, "core" + std::to_string(i)));
    }
  }
  for (int pod = 0; pod < pods; ++pod) {
    const std::string prefix = "pod" + std::to_string(pod) + '/';
    std::vector<VertexId> spines;
    for (int s = 0; s < half && leaves > 1; ++s) {
      spines.push_back(graph.add(NodeKind::kSpine, prefix + "spine" + std::to_string(s)));
      for (int c = 0; c < half && !cores.empty(); ++c) {
        graph.connect(spines.back(), cores[static_cast<std::size_t>(s * half + c)], kSpineCore, up);
      }
    }
    for (int l = pod * half; l < leaves && l < (pod + 1) * half; ++l) {
      const VertexId leaf =
          graph.add(NodeKind::kLeaf, prefix + "leaf" + std::to_string(l - pod * half));
      for (int n = l * half; n < (l + 1) * half && n < graph.nics(); ++n) {
        graph.connect(graph.nic(n), leaf, kNicLink, nic);
      }
      for (const VertexId spine : spines) graph.connect(leaf, spine, kLeafSpine, up);
    }
  }
}

}  // namespace headway
