// NVSwitch: every GPU of a domain has links to each of its switches and reaches any other GPU with
// all of them at once. The switches of a domain are one vertex: traffic spreads evenly over them,
// so what binds is the GPU's own links. A domain is a server, or several servers joined by switch
// trays (NVL72: 18 trays of 4 GPUs).
#include <algorithm>

#include "sim/cluster/generators.hpp"

namespace headway {

void connect_nvswitch(GraphBuilder& graph) {
  const ServerDescription& node = graph.cluster().server;
  for (int domain = 0; domain < graph.domains(); ++domain) {
    const int first = domain * node.domain_servers;
    const int end = std::min(first + node.domain_servers, graph.servers());
    const bool inside_server = node.domain_servers == 1;
    const VertexId hub =
        graph.add(NodeKind::kNvSwitch,
                  (inside_server ? "node" : "domain") + std::to_string(domain) + "/nvswitch",
                  inside_server ? domain : -1);
    for (int server = first; server < end; ++server) {
      for (int i = 0; i < graph.gpus_in(server); ++i) {
        graph.connect(graph.gpu(server, i), hub, kNvlink, node.gpu_link);
      }
    }
  }
}

}  // namespace headway
