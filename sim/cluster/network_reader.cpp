#include "sim/cluster/network_reader.hpp"

#include <algorithm>
#include <string>

#include "sim/cluster/generators.hpp"

namespace headway {

namespace {

// Sizes beyond these are slips of the pen; products of them fit 64 bits.
constexpr std::int64_t kMostNodes = 1 << 20;
constexpr std::int64_t kMostPorts = 1024;
constexpr std::int64_t kMostTorusSwitches = 1 << 20;

int small(std::int64_t value) { return static_cast<int>(value); }

// Absent: as fast as a NIC.
Bandwidth link_bandwidth(ObjectReader& reader, const char* key) {
  if (!reader.has(key)) return {};
  const Bandwidth bandwidth = reader.require_bandwidth(key);
  if (bandwidth.bytes_per_second <= 0) reader.problem(key, "a bandwidth of 0; expected more");
  return bandwidth;
}

void read_pods(ObjectReader& reader, NetworkDescription& network) {
  if (!reader.has("pod_nodes")) return;  // then what belongs to a core is unknown here
  network.pod_servers =
      small(reader.integer("pod_nodes", {.min = 1, .max = kMostNodes}).value_or(0));
  if (network.pod_servers % network.leaf_servers != 0) {
    reader.problem("pod_nodes", std::to_string(network.pod_servers) +
                                    " nodes are not whole leaves of " +
                                    std::to_string(network.leaf_servers));
  }
  network.core_oversubscription =
      reader.number("core_oversubscription", {.min = 0, .min_excluded = true}).value_or(1);
  network.core.latency = reader.require_time("core_latency");
}

void read_leaves(ObjectReader& reader, NetworkDescription& network) {
  network.leaf_servers =
      std::max(1, small(reader.require_integer("leaf_nodes", {.min = 1, .max = kMostNodes})));
  network.oversubscription =
      reader.number("oversubscription", {.min = 0, .min_excluded = true}).value_or(1);
  network.uplink.latency = reader.require_time("latency");
  network.spines = small(reader.integer("spines", {.min = 1, .max = kMostPorts}).value_or(0));
  read_pods(reader, network);
}

void read_fat_tree(ObjectReader& reader, NetworkDescription& network) {
  network.ports = small(reader.require_integer("ports", {.min = 2, .max = kMostPorts}));
  if (network.ports % 2 != 0) {
    reader.problem("ports", std::to_string(network.ports) +
                                " ports cannot be halved; expected an even number");
  }
  network.uplink.latency = reader.require_time("latency");
}

void read_dragonfly(ObjectReader& reader, NetworkDescription& network) {
  network.group_routers =
      small(reader.require_integer("group_routers", {.min = 1, .max = kMostPorts}));
  network.router_nics = small(reader.require_integer("router_nics", {.min = 1, .max = kMostPorts}));
  network.global_ports =
      small(reader.require_integer("global_ports", {.min = 1, .max = kMostPorts}));
  network.local = {link_bandwidth(reader, "local_bandwidth"), reader.require_time("latency"), 1};
  network.global = {link_bandwidth(reader, "global_bandwidth"), network.local.latency, 1};
}

void read_torus(ObjectReader& reader, NetworkDescription& network) {
  network.ring = {link_bandwidth(reader, "bandwidth"), reader.require_time("latency"), 1};
  const auto array = reader.array("dimensions");
  if (!array) {
    if (!reader.has("dimensions")) {
      reader.problem("dimensions", "missing; expected a list of sizes, such as [4, 4, 4]");
    }
    return;
  }
  const std::vector<std::int64_t> sizes = array->integers().value_or(std::vector<std::int64_t>{});
  std::int64_t switches = sizes.empty() ? 0 : 1;
  for (const std::int64_t size : sizes) {
    const bool fits = size >= 1 && switches >= 1 && size <= kMostTorusSwitches / switches;
    switches = fits ? switches * size : 0;
    network.dimensions.push_back(small(std::clamp<std::int64_t>(size, 1, kMostTorusSwitches)));
  }
  if (switches == 0) {
    reader.problem("dimensions", "expected a list of whole numbers from 1, together at most " +
                                     std::to_string(kMostTorusSwitches) + " switches");
  }
}

// Which of several equally good ways; where there can be none, the keys are unknown.
void read_ways(ObjectReader& reader, NetworkDescription& network) {
  network.hashed_ways =
      reader.choice("ways", {"destination", "hash"}).value_or("destination") == "hash";
  if (!network.hashed_ways) return;
  constexpr std::int64_t kMostSeed = std::int64_t{1} << 53;  // exact in any JSON reader
  network.seed =
      static_cast<std::uint64_t>(reader.integer("seed", {.min = 0, .max = kMostSeed}).value_or(0));
}

void check_capacity(ObjectReader& reader, const ClusterDescription& cluster,
                    const Network& network) {
  const std::int64_t capacity = network.capacity(cluster);
  const std::int64_t nics = std::int64_t{cluster.max_servers} * cluster.server.nics;
  if (capacity == 0 || nics <= capacity) return;
  reader.problem("generator", "joins " + std::to_string(capacity) + " NICs, and " +
                                  std::to_string(cluster.max_servers) + " nodes have " +
                                  std::to_string(nics));
}

}  // namespace

void read_network(const JsonNode& node, ClusterDescription& cluster, Problems& problems) {
  ObjectReader reader(node, problems);
  NetworkDescription& network = cluster.network;
  const std::size_t before = problems.size();
  reader.require_string("source");
  std::vector<std::string> names;
  for (const Network& each : networks()) names.emplace_back(each.name);
  if (reader.has("generator")) {
    network.generator = reader.choice("generator", names).value_or("");
  } else {
    reader.problem("generator", "missing; expected " + any_of(names));
  }
  if (cluster.server.nics == 0) {
    reader.problem("", "a network needs NICs; the node has no \"nics\"");
  }
  const Network* const kind = find_network(network.generator);
  if (kind == nullptr) return;
  if (kind->leaves) read_leaves(reader, network);
  if (network.generator == "fat-tree") read_fat_tree(reader, network);
  if (network.generator == "dragonfly") read_dragonfly(reader, network);
  if (network.generator == "torus") read_torus(reader, network);
  if (network.generator != "single-switch") read_ways(reader, network);
  if (network.generator == "rail-leaf-spine") {
    network.rails_over_nvlink = reader.boolean("rails_over_nvlink").value_or(false);
    const GpuFabric* fabric = find_gpu_fabric(cluster.server.gpu_fabric);
    if (network.rails_over_nvlink && fabric != nullptr &&
        std::string(fabric->link_kind) != kNvlink) {
      reader.problem("rails_over_nvlink", "the node's GPUs have no NVLink");
    }
  }
  if (problems.size() == before) check_capacity(reader, cluster, *kind);
  reader.finish();
}

std::vector<std::pair<const char*, LinkDescription*>> network_links(NetworkDescription& network) {
  std::vector<std::pair<const char*, LinkDescription*>> links;
  const Network* const kind = find_network(network.generator);
  if (kind == nullptr) return links;
  if (kind->leaves) links.emplace_back(kLeafSpine, &network.uplink);
  if (network.pod_servers > 0) links.emplace_back(kSpineCore, &network.core);
  if (network.generator == "dragonfly") {
    links.emplace_back(kLocal, &network.local);
    links.emplace_back(kGlobal, &network.global);
  }
  if (network.generator == "torus") links.emplace_back(kTorus, &network.ring);
  return links;
}

}  // namespace headway
