#include "sim/cluster/graph_reader.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "sim/cluster/generators.hpp"
#include "sim/cluster/routing.hpp"
#include "sim/cluster/topology.hpp"

namespace headway {

namespace {

constexpr NodeKind kKinds[] = {NodeKind::kGpu,   NodeKind::kNvSwitch, NodeKind::kPcieSwitch,
                               NodeKind::kCpu,   NodeKind::kNic,      NodeKind::kLeaf,
                               NodeKind::kSpine, NodeKind::kCore};
// Ids are ints; a graph that large is generated, not written.
constexpr std::int64_t kMostServers = 1 << 20;

// Only what hangs in the network is outside every node.
bool in_a_node(NodeKind kind) {
  return kind == NodeKind::kGpu || kind == NodeKind::kPcieSwitch || kind == NodeKind::kCpu ||
         kind == NodeKind::kNic;
}

int kind_named(const std::string& kind) {
  for (const NodeKind candidate : kKinds) {
    if (kind == name(candidate)) return static_cast<int>(candidate);
  }
  return -1;
}

struct Reading {
  GraphDescription graph;
  std::map<std::string, int> by_name;
  std::vector<std::string> names;
};

void read_vertices(const JsonNode& array, Reading& reading, Problems& problems) {
  std::vector<std::string> kinds;
  for (const NodeKind kind : kKinds) kinds.emplace_back(name(kind));
  std::vector<VertexDescription> others;
  for (const JsonNode& node : array.elements()) {
    ObjectReader reader(node, problems);
    VertexDescription vertex;
    vertex.name = reader.require_string("name");
    vertex.kind = kind_named(reader.choice("kind", kinds).value_or(""));
    if (!reader.has("kind")) reader.problem("kind", "missing; expected " + any_of(kinds));
    if (reader.has("name") &&
        std::count(reading.names.begin(), reading.names.end(), vertex.name) != 0) {
      reader.problem("name", "\"" + vertex.name + "\" is given twice");
    }
    reading.names.push_back(vertex.name);
    const NodeKind kind = static_cast<NodeKind>(std::max(0, vertex.kind));
    if (vertex.kind >= 0 && in_a_node(kind)) {
      vertex.server =
          static_cast<int>(reader.require_integer("node", {.min = 0, .max = kMostServers}));
    }
    if (kind == NodeKind::kGpu && vertex.kind >= 0) {
      vertex.domain = static_cast<int>(
          reader.integer("domain", {.min = 0, .max = kMostServers}).value_or(vertex.server));
    }
    reader.finish();
    (vertex.kind == static_cast<int>(NodeKind::kGpu) ? reading.graph.vertices : others)
        .push_back(std::move(vertex));
  }
  reading.graph.vertices.insert(reading.graph.vertices.end(), others.begin(), others.end());
  for (std::size_t i = 0; i < reading.graph.vertices.size(); ++i) {
    reading.by_name.emplace(reading.graph.vertices[i].name, static_cast<int>(i));
  }
}

int read_end(ObjectReader& reader, const char* key, const Reading& reading) {
  const std::string end = reader.require_string(key);
  if (const auto found = reading.by_name.find(end); found != reading.by_name.end()) {
    return found->second;
  }
  if (reader.has(key) && !end.empty()) {
    const std::string near = nearest(end, reading.names);
    reader.problem(key, "\"" + end + "\" is no vertex" +
                            (near.empty() ? "" : "; did you mean \"" + near + "\"?"));
  }
  return -1;
}

void read_links(const JsonNode& array, Reading& reading, Problems& problems) {
  for (const JsonNode& node : array.elements()) {
    ObjectReader reader(node, problems);
    GraphDescription::Link link;
    link.from = read_end(reader, "from", reading);
    link.to = read_end(reader, "to", reading);
    if (link.from >= 0 && link.from == link.to) {
      reader.problem("to", "a link from a vertex to itself");
    }
    link.kind = reader.choice("kind", link_kinds()).value_or("");
    if (!reader.has("kind")) reader.problem("kind", "missing; expected " + any_of(link_kinds()));
    link.link.bandwidth = reader.require_bandwidth("bandwidth");
    if (reader.has("bandwidth") && link.link.bandwidth.bytes_per_second <= 0) {
      reader.problem("bandwidth", "a bandwidth of 0; expected more");
    }
    link.link.latency = reader.require_time("latency");
    link.link.count =
        static_cast<int>(reader.integer("count", {.min = 1, .max = 1 << 20}).value_or(1));
    const bool one_way = reader.boolean("one_way").value_or(false);
    reader.finish();
    if (link.from < 0 || link.to < 0) continue;
    reading.graph.links.push_back(link);
    if (one_way) continue;
    std::swap(link.from, link.to);
    reading.graph.links.push_back(link);
  }
}

// GPUs must stand in rank order: node after node, as many on each, domains in blocks.
void read_order(ObjectReader& reader, Reading& reading, ClusterDescription& cluster) {
  GraphDescription& graph = reading.graph;
  std::vector<int> servers, domains;
  for (const VertexDescription& vertex : graph.vertices) {
    if (vertex.kind != static_cast<int>(NodeKind::kGpu)) continue;
    servers.push_back(vertex.server);
    domains.push_back(vertex.domain);
  }
  if (servers.empty()) {
    reader.problem("vertices", "no gpu among them; expected at least one");
    return;
  }
  const auto block = [](const std::vector<int>& values) {
    return static_cast<int>(std::count(values.begin(), values.end(), values.front()));
  };
  const auto in_blocks = [](const std::vector<int>& values, int size) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (values[i] != static_cast<int>(i) / size) return false;
    }
    return static_cast<int>(values.size()) % size == 0;
  };
  cluster.server.gpus = block(servers);
  graph.gpus_per_domain = block(domains);
  if (!in_blocks(servers, cluster.server.gpus)) {
    reader.problem("vertices",
                   "GPUs must stand in the order of their nodes, numbered from 0, with "
                   "equally many on each");
  }
  if (!in_blocks(domains, graph.gpus_per_domain)) {
    reader.problem("vertices",
                   "GPUs must stand in the order of their domains, numbered from 0, with "
                   "equally many in each");
  }
  cluster.max_servers = static_cast<int>(servers.size()) / cluster.server.gpus;
  cluster.max_reason = "the vertices of its graph";
  graph.nic_of_gpu.assign(servers.size(), -1);
}

// The nearest NIC of the GPU's node, the first of equally near ones.
int nearest_nic(const GraphDescription& graph, const Router& router, int gpu) {
  int best = -1;
  std::size_t hops = 0;
  for (std::size_t i = 0; i < graph.vertices.size(); ++i) {
    const VertexDescription& vertex = graph.vertices[i];
    if (vertex.kind != static_cast<int>(NodeKind::kNic)) continue;
    if (vertex.server != graph.vertices[static_cast<std::size_t>(gpu)].server) continue;
    const int nic = static_cast<int>(i);
    const std::size_t way = router.path(gpu, nic, Reach::kServer).size();
    if (way == 0 || router.path(nic, gpu, Reach::kServer).empty()) continue;
    if (best < 0 || way < hops) {
      best = nic;
      hops = way;
    }
  }
  return best;
}

// Every GPU is compared with the first of its node and that node's first with rank 0: ways compose,
// since each is made of NVLink, PCIe or NIC links both ways.
void check_ways(ObjectReader& reader, ClusterDescription& cluster) {
  GraphDescription& graph = *cluster.graph;
  const ClusterGraph content = generate(cluster, static_cast<int>(graph.nic_of_gpu.size()));
  const Router router(content);
  const auto both = [&](int a, int b, Reach reach) {
    return a == b || (!router.path(a, b, reach).empty() && !router.path(b, a, reach).empty());
  };
  const int gpus = static_cast<int>(graph.nic_of_gpu.size());
  for (int gpu = 0; gpu < gpus; ++gpu) {
    graph.nic_of_gpu[static_cast<std::size_t>(gpu)] = nearest_nic(graph, router, gpu);
  }
  const auto nic = [&](int gpu) { return graph.nic_of_gpu[static_cast<std::size_t>(gpu)]; };
  for (int gpu = 0; gpu < gpus; ++gpu) {
    const std::string& gpu_name = graph.vertices[static_cast<std::size_t>(gpu)].name;
    const bool by_nic = nic(gpu) >= 0 && nic(0) >= 0 && both(nic(gpu), nic(0), Reach::kOutside);
    const int first = gpu - gpu % cluster.server.gpus;
    if (first != gpu && !by_nic && !both(gpu, first, Reach::kFabric) &&
        !both(gpu, first, Reach::kServer)) {
      reader.problem("links", "no way both ways between \"" + gpu_name + "\" and \"" +
                                  graph.vertices[static_cast<std::size_t>(first)].name + '"');
    }
    if (cluster.max_servers < 2) continue;
    if (nic(gpu) < 0) {
      reader.problem("links", "no PCIe way from \"" + gpu_name + "\" to a NIC of its node");
    } else if (nic(0) >= 0 && !by_nic) {
      reader.problem("links", "no way both ways between the NICs of \"" + gpu_name + "\" and \"" +
                                  graph.vertices[0].name + '"');
    }
  }
}

}  // namespace

void read_graph(const JsonNode& node, ClusterDescription& cluster, Problems& problems) {
  ObjectReader reader(node, problems);
  const std::size_t before = problems.size();
  Reading reading;
  reader.require_string("source");
  const auto vertices = reader.array("vertices");
  const auto links = reader.array("links");
  if (!reader.has("vertices")) reader.problem("vertices", "missing; expected a list of vertices");
  if (!reader.has("links")) reader.problem("links", "missing; expected a list of links");
  if (vertices) read_vertices(*vertices, reading, problems);
  if (links) read_links(*links, reading, problems);
  reader.finish();
  if (problems.size() == before) read_order(reader, reading, cluster);
  cluster.graph = std::move(reading.graph);
  if (problems.size() == before) check_ways(reader, cluster);
}

void summarise_graph(ClusterDescription& cluster) {
  const GraphDescription& graph = *cluster.graph;
  ServerDescription& server = cluster.server;
  server.gpu_fabric.clear();
  server.gpu_link = server.pcie = server.nic = {};
  server.nics = 0;
  const int nic = graph.nic_of_gpu.front();
  for (const VertexDescription& vertex : graph.vertices) {
    const NodeKind kind = static_cast<NodeKind>(vertex.kind);
    if (kind == NodeKind::kNvSwitch) server.gpu_fabric = "nvswitch";
    if (kind == NodeKind::kNic && vertex.server == 0) ++server.nics;
  }
  const auto add = [](LinkDescription& sum, const LinkDescription& link) {
    sum.bandwidth = {sum.bandwidth.bytes_per_second + link.bandwidth.bytes_per_second};
    sum.latency = link.latency;
    sum.count = link.count;
  };
  for (const GraphDescription::Link& link : graph.links) {
    const bool fabric = link.kind == kNvlink || link.kind == kMemory;
    if (link.from == 0 && fabric) add(server.gpu_link, link.link);
    if (link.from == 0 && link.kind == kPcie) add(server.pcie, link.link);
    if (link.from == nic && link.kind == kNicLink) add(server.nic, link.link);
  }
}

void check_generated(const ClusterDescription& cluster, const std::string& file,
                     Problems& problems) {
  constexpr int kLargest = 4096;
  const int per_node = cluster.server.gpus;
  const int most =
      std::max(per_node, std::min(cluster.max_servers, kLargest / per_node) * per_node);
  for (const int gpus : {per_node, std::min(2 * per_node, most), most}) {
    const ClusterGraph graph = generate(cluster, gpus);
    for (const TopologyLink& link : graph.links) {
      if (link.bandwidth.bytes_per_second > 0) continue;
      problems.add(file, "",
                   "a " + link.kind + " link of " +
                       graph.vertices[static_cast<std::size_t>(link.from)].name +
                       " has no bandwidth");
    }
    const std::vector<int> component = Router(graph).components();
    for (int gpu = 1; gpu < gpus; ++gpu) {
      if (component[static_cast<std::size_t>(gpu)] == component[0]) continue;
      problems.add(file, "",
                   "with " + std::to_string(gpus) + " GPUs there is no way between " +
                       graph.vertices[0].name + " and " +
                       graph.vertices[static_cast<std::size_t>(gpu)].name);
      break;
    }
  }
}

}  // namespace headway
