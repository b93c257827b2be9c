// The rail-optimised fat tree of the DGX SuperPODs: servers form scalable units, and NIC i of every
// server of a unit hangs on the unit's leaf i, so that GPUs with the same index are one switch
// apart. Units meet in the spine layer. NVIDIA DGX SuperPOD reference architectures (A100: 20
// servers a unit, H100 and B200: 32).
#include "sim/cluster/generators.hpp"

namespace headway {

void connect_rail_leaf_spine(GraphBuilder& graph) {
  const ServerDescription& node = graph.cluster().server;
  const int unit_servers = graph.cluster().network.leaf_servers;
  std::vector<std::vector<VertexId>> leaves;
  for (int server = 0; server < graph.servers(); ++server) {
    if (server % unit_servers == 0) {
      std::vector<VertexId> rails;
      for (int rail = 0; rail < node.nics; ++rail) {
        rails.push_back(graph.add(NodeKind::kLeaf, "unit" + std::to_string(leaves.size()) +
                                                       "/leaf" + std::to_string(rail)));
      }
      leaves.push_back(std::move(rails));
    }
    for (int rail = 0; rail < node.nics; ++rail) {
      graph.connect(graph.nic(server, rail), leaves.back()[static_cast<std::size_t>(rail)],
                    kNicLink, node.nic);
    }
  }
  connect_spines(graph, leaves, unit_servers);
}

}  // namespace headway
