// All-to-all: every GPU of a server has its links divided evenly among all others (four V100s: two
// of six links for each; eight MI300X: one of seven).
#include <algorithm>

#include "sim/cluster/generators.hpp"

namespace headway {

void connect_all_to_all(GraphBuilder& graph) {
  const ServerDescription& node = graph.cluster().server;
  if (node.gpus < 2) return;
  const int others = node.gpus - 1;
  const LinkDescription link = {node.gpu_link.bandwidth * (1.0 / others), node.gpu_link.latency,
                                std::max(1, node.gpu_link.count / others)};
  for (int server = 0; server < graph.servers(); ++server) {
    for (int a = 0; a < graph.gpus_in(server); ++a) {
      for (int b = a + 1; b < graph.gpus_in(server); ++b) {
        graph.connect(graph.gpu(server, a), graph.gpu(server, b), kNvlink, link);
      }
    }
  }
}

}  // namespace headway
