// One switch that every NIC of every server hangs on: a small cluster, or a fabric whose inside
// never binds.
#include "sim/cluster/generators.hpp"

namespace headway {

void connect_single_switch(GraphBuilder& graph) {
  const ServerDescription& node = graph.cluster().server;
  const VertexId leaf = graph.add(NodeKind::kLeaf, "leaf0");
  for (int server = 0; server < graph.servers(); ++server) {
    for (int i = 0; i < node.nics; ++i) {
      graph.connect(graph.nic(server, i), leaf, kNicLink, node.nic);
    }
  }
}

}  // namespace headway
