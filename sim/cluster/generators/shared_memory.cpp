// Cores of one server as devices: each reaches every other through the memory they share.
#include "sim/cluster/generators.hpp"

namespace headway {

void connect_shared_memory(GraphBuilder& graph) {
  const ServerDescription& node = graph.cluster().server;
  for (int server = 0; server < graph.servers(); ++server) {
    const VertexId memory =
        graph.add(NodeKind::kCpu, "node" + std::to_string(server) + "/memory", server);
    for (int i = 0; i < graph.gpus_in(server); ++i) {
      graph.connect(graph.gpu(server, i), memory, kMemory, node.gpu_link);
    }
  }
}

}  // namespace headway
