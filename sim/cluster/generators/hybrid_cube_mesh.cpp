// The DGX-1's hybrid cube mesh of eight V100s: two quads joined corner to corner, six NVLinks from
// each GPU to four others, as `nvidia-smi topo -m` shows them on a DGX-1 with V100 (NV1, NV2). GPUs
// without a common link reach each other through one that both know.
#include "sim/cluster/generators.hpp"

namespace headway {

namespace {

struct Edge {
  int a, b, links;
};
constexpr int kLinksPerGpu = 6;
constexpr Edge kEdges[] = {
    {0, 1, 1}, {0, 2, 1}, {0, 3, 2}, {1, 2, 2}, {1, 3, 1}, {2, 3, 2},  // quad 0
    {4, 5, 1}, {4, 6, 1}, {4, 7, 2}, {5, 6, 2}, {5, 7, 1}, {6, 7, 2},  // quad 1
    {0, 4, 2}, {1, 5, 2}, {2, 6, 1}, {3, 7, 1},                        // between them
};

}  // namespace

void connect_hybrid_cube_mesh(GraphBuilder& graph) {
  const LinkDescription& all = graph.cluster().server.gpu_link;
  for (int server = 0; server < graph.servers(); ++server) {
    for (const Edge& edge : kEdges) {
      if (edge.b >= graph.gpus_in(server)) continue;
      const Bandwidth bandwidth = all.bandwidth * (static_cast<double>(edge.links) / kLinksPerGpu);
      graph.connect(graph.gpu(server, edge.a), graph.gpu(server, edge.b), kNvlink,
                    {bandwidth, all.latency, edge.links});
    }
  }
}

}  // namespace headway
