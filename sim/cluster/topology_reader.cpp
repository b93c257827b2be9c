#include "sim/cluster/topology_reader.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>
#include <stdexcept>
#include <utility>

#include "sim/cluster/generators.hpp"
#include "sim/cluster/graph_reader.hpp"
#include "sim/cluster/network_reader.hpp"
#include "sim/core/file.hpp"
#include "sim/core/quantity.hpp"
#include "sim/core/shipped_files.hpp"

namespace headway {

namespace {

constexpr const char* kFolder = "topologies/";
// Sizes beyond these are slips of the pen; products of them fit an int.
constexpr std::int64_t kMostGpusPerNode = 1024;
constexpr std::int64_t kMostNodes = 1 << 20;
constexpr std::int64_t kMostSwitches = 64;
constexpr std::int64_t kMostLinks = 1024;

int small(std::int64_t value) { return static_cast<int>(value); }

template <typename Names, typename Name>
std::vector<std::string> names_of(const Names& table, Name name) {
  std::vector<std::string> names;
  for (const auto& entry : table) names.emplace_back(name(entry));
  return names;
}

// A link of nothing would carry nothing for ever.
Bandwidth positive_bandwidth(ObjectReader& reader, std::string_view key) {
  const Bandwidth bandwidth = reader.require_bandwidth(key);
  if (bandwidth.bytes_per_second <= 0 && reader.has(key)) {
    reader.problem(key, "a bandwidth of 0; expected more");
  }
  return bandwidth;
}

LinkDescription read_link(ObjectReader& reader) {
  LinkDescription link;
  link.bandwidth = positive_bandwidth(reader, "bandwidth");
  link.latency = reader.require_time("latency");
  return link;
}

std::string require_choice(ObjectReader& reader, std::string_view key,
                           const std::vector<std::string>& allowed) {
  if (!reader.has(key)) {
    reader.problem(key, "missing; expected " + any_of(allowed));
    return {};
  }
  return reader.choice(key, allowed).value_or("");
}

void read_gpu_fabric(const JsonNode& node, ClusterDescription& cluster, Problems& problems) {
  ObjectReader reader(node, problems);
  ServerDescription& server = cluster.server;
  reader.require_string("source");
  server.gpu_fabric = require_choice(
      reader, "generator", names_of(gpu_fabrics(), [](const GpuFabric& f) { return f.name; }));
  const GpuFabric* fabric = find_gpu_fabric(server.gpu_fabric);
  if (fabric == nullptr) return;  // what else belongs here is not known
  if (fabric->required_gpus != 0 && server.gpus != fabric->required_gpus) {
    reader.problem("generator", server.gpu_fabric + " joins " +
                                    std::to_string(fabric->required_gpus) + " GPUs, not " +
                                    std::to_string(server.gpus));
  }
  if (fabric->hub != NodeKind::kPcieSwitch) {
    server.gpu_link = read_link(reader);
    server.gpu_link.count =
        small(reader.integer("links", {.min = 1, .max = kMostLinks}).value_or(1));
  }
  if (fabric->hub == NodeKind::kNvSwitch) {
    server.domain_servers =
        small(reader.integer("domain_nodes", {.min = 1, .max = kMostNodes}).value_or(1));
  }
  reader.finish();
}

void read_pcie(const JsonNode& node, ServerDescription& server, Problems& problems) {
  ObjectReader reader(node, problems);
  reader.require_string("source");
  server.pcie_switches =
      small(reader.require_integer("switches", {.min = 0, .max = kMostSwitches}));
  server.pcie = read_link(reader);
  reader.finish();
}

void read_cpu(const JsonNode& node, ServerDescription& server, Problems& problems) {
  ObjectReader reader(node, problems);
  reader.require_string("source");
  server.cpu_vendor = require_choice(reader, "vendor", {"intel", "amd", "arm"});
  server.sockets = small(reader.integer("sockets", {.min = 1, .max = kMostSwitches}).value_or(1));
  if (server.sockets > 1) server.socket = read_link(reader);
  reader.finish();
}

// The memory of a server's CPUs, as what is offloaded finds it.
void read_host_memory(const JsonNode& node, ServerDescription& server, Problems& problems) {
  ObjectReader reader(node, problems);
  reader.require_string("source");
  server.host_bandwidth = positive_bandwidth(reader, "bandwidth");
  server.host_memory = reader.require_bytes("size");
  reader.finish();
}

void read_c2c(const JsonNode& node, ServerDescription& server, Problems& problems) {
  ObjectReader reader(node, problems);
  reader.require_string("source");
  server.c2c = read_link(reader);
  reader.finish();
}

void read_nics(const JsonNode& node, ServerDescription& server, Problems& problems) {
  ObjectReader reader(node, problems);
  reader.require_string("source");
  const int count = small(reader.require_integer("count", {.min = 1, .max = kMostGpusPerNode}));
  server.nic = read_link(reader);
  if (count > 0 && server.gpus > 0) {
    if (count > server.gpus && count % server.gpus == 0) {
      // A GPU stripes over its NICs: one NIC with the bandwidth of all of them.
      server.nic.count = count / server.gpus;
      server.nic.bandwidth = server.nic.bandwidth * server.nic.count;
      server.nics = server.gpus;
    } else {
      server.nics = count;
      if (server.gpus % count != 0) {
        reader.problem("count", std::to_string(count) + " NICs cannot be divided among " +
                                    std::to_string(server.gpus) +
                                    " GPUs; expected a divisor or a multiple of them");
      }
    }
  }
  reader.finish();
}

template <typename Parse>
std::optional<double> read_quantity(ObjectReader& reader, std::string_view key, Parse parse) {
  const std::optional<std::string> text = reader.string(key);
  if (!text) return std::nullopt;
  try {
    return parse(*text);
  } catch (const std::invalid_argument& error) {
    reader.problem(key, error.what());
    return std::nullopt;
  }
}

void read_node(const JsonNode& node, bool own_graph, ClusterDescription& cluster,
               Problems& problems) {
  ObjectReader reader(node, problems);
  ServerDescription& server = cluster.server;
  reader.require_string("source");
  if (!own_graph) {
    server.gpus = small(reader.require_integer("gpus", {.min = 1, .max = kMostGpusPerNode}));
    if (const auto fabric = reader.object("gpu_fabric")) {
      read_gpu_fabric(*fabric, cluster, problems);
    } else if (!reader.has("gpu_fabric")) {
      reader.problem("gpu_fabric", "missing; expected how the GPUs of a node reach each other");
    }
    const GpuFabric* fabric = find_gpu_fabric(server.gpu_fabric);
    const bool has_pcie = fabric == nullptr || fabric->hub != NodeKind::kCpu;
    if (has_pcie) {
      if (const auto pcie = reader.object("pcie")) {
        read_pcie(*pcie, server, problems);
      } else if (!reader.has("pcie")) {
        reader.problem("pcie", "missing; expected the PCI Express of a node");
      }
    }
    if (const auto c2c = reader.object("c2c")) read_c2c(*c2c, server, problems);
    if (has_pcie) {
      if (const auto nics = reader.object("nics")) read_nics(*nics, server, problems);
    }
  }
  if (const auto memory = reader.object("host_memory")) read_host_memory(*memory, server, problems);
  if (const auto cpu = reader.object("cpu")) {
    read_cpu(*cpu, server, problems);
  } else if (!reader.has("cpu")) {
    reader.problem("cpu", "missing; expected the vendor of the CPUs");
  }
  server.watts = read_quantity(reader, "power", parse_watts);
  cluster.dollars_per_gpu_hour = read_quantity(reader, "price", parse_dollars_per_hour);
  reader.finish();
}

void read_profiles(ObjectReader& reader, ClusterDescription& cluster) {
  const auto profiles = reader.strings("profiles");
  if (!profiles) {
    if (!reader.has("profiles")) reader.problem("profiles", "missing; expected a list of profiles");
    return;
  }
  if (profiles->empty()) reader.problem("profiles", "empty; expected at least one profile");
  const auto known = names_of(devices(), [](const Device& device) { return device.name; });
  std::set<std::string> seen;
  for (std::size_t i = 0; i < profiles->size(); ++i) {
    const std::string& profile = (*profiles)[i];
    const auto refuse = [&](const std::string& message) {
      reader.problems().add(reader.node().file(),
                            reader.node().pointer() + "/profiles/" + std::to_string(i),
                            "\"" + profile + "\" " + message);
    };
    if (!seen.insert(profile).second) refuse("is given twice");
    if (is_path(profile) || find_device(profile) != nullptr) continue;
    const std::string near = nearest(profile, known);
    refuse("is no known device" + (near.empty() ? "" : "; did you mean \"" + near + "\"?"));
  }
  cluster.profiles = *profiles;
}

void read_generated(ObjectReader& reader, ClusterDescription& cluster, Problems& problems) {
  cluster.max_servers = small(reader.require_integer("max_nodes", {.min = 1, .max = kMostNodes}));
  cluster.max_reason = reader.string("max_reason").value_or("");
  if (const auto network = reader.object("network")) {
    read_network(*network, cluster, problems);
  } else if (!reader.has("network") && cluster.max_servers > cluster.server.domain_servers) {
    reader.problem("max_nodes", std::to_string(cluster.max_servers) +
                                    " nodes cannot be joined without a \"network\"");
  }
}

// Asked-for overrides that fit the cluster replace its figures.
void override_links(ClusterDescription& cluster, const std::vector<LinkOverride>& overrides,
                    const std::string& file, Problems& problems) {
  std::vector<std::pair<std::string, std::vector<LinkDescription*>>> links;
  if (cluster.graph) {
    for (GraphDescription::Link& link : cluster.graph->links) {
      const auto same = std::find_if(links.begin(), links.end(),
                                     [&](const auto& entry) { return entry.first == link.kind; });
      if (same == links.end()) {
        links.push_back({link.kind, {&link.link}});
      } else {
        same->second.push_back(&link.link);
      }
    }
  } else {
    ServerDescription& server = cluster.server;
    NetworkDescription& network = cluster.network;
    const GpuFabric* fabric = find_gpu_fabric(server.gpu_fabric);
    if (fabric->hub != NodeKind::kPcieSwitch)
      links.push_back({fabric->link_kind, {&server.gpu_link}});
    if (fabric->hub != NodeKind::kCpu) links.push_back({kPcie, {&server.pcie}});
    if (server.sockets > 1) links.push_back({kSocket, {&server.socket}});
    if (server.nics > 0) links.push_back({kNicLink, {&server.nic}});
    for (const auto& [kind, link] : network_links(network)) links.push_back({kind, {link}});
  }
  const auto kinds = names_of(links, [](const auto& entry) { return entry.first; });
  for (const LinkOverride& change : overrides) {
    const auto found = std::find_if(links.begin(), links.end(),
                                    [&](const auto& entry) { return entry.first == change.kind; });
    if (found == links.end()) {
      const std::string near = nearest(change.kind, kinds);
      problems.add(file, change.pointer,
                   "\"" + change.kind + "\" is no kind of link of " + cluster.name +
                       (near.empty() ? "" : "; did you mean \"" + near + "\"?") + " (it has " +
                       any_of(kinds) + ")");
      continue;
    }
    if (change.bandwidth && change.bandwidth->bytes_per_second <= 0) {
      problems.add(file, change.pointer, "a bandwidth of 0; expected more");
      continue;
    }
    const GpuFabric* fabric = find_gpu_fabric(cluster.server.gpu_fabric);
    if (change.bandwidth && change.kind == (fabric == nullptr ? kNvlink : fabric->link_kind)) {
      const double before = found->second.front()->bandwidth.bytes_per_second;
      if (before > 0) cluster.server.gpu_link_factor *= change.bandwidth->bytes_per_second / before;
    }
    for (LinkDescription* link : found->second) {
      if (change.bandwidth) {
        // NICs that serve one GPU together are one link here; the override speaks of one of them.
        const bool striped = !cluster.graph && change.kind == kNicLink;
        link->bandwidth = *change.bandwidth * (striped ? link->count : 1);
      }
      if (change.latency) link->latency = *change.latency;
    }
  }
  if (cluster.graph) summarise_graph(cluster);
}

std::string plural(int count, const char* noun) {
  return std::to_string(count) + ' ' + noun + (count == 1 ? "" : "s");
}

// Nothing, or why a job cannot have so many GPUs of the cluster.
std::string size_problem(const ClusterDescription& cluster, int gpus) {
  const int per_node = cluster.server.gpus;
  const std::int64_t most = cluster.graph
                                ? static_cast<std::int64_t>(cluster.graph->nic_of_gpu.size())
                                : std::int64_t{cluster.max_servers} * per_node;
  if (gpus < 1) return std::to_string(gpus) + " GPUs; expected at least 1";
  if (gpus > most) {
    return "too many GPUs: " + std::to_string(gpus) + ", and " + cluster.name + " has at most " +
           std::to_string(most) +
           (cluster.max_reason.empty() ? "" : " (" + cluster.max_reason + ")");
  }
  if (gpus > per_node && gpus % per_node != 0) {
    return std::to_string(gpus) + " GPUs are not whole nodes of " + cluster.name + ", which have " +
           plural(per_node, "GPU") + " each; expected a multiple of " + std::to_string(per_node) +
           ", or fewer than one node";
  }
  return {};
}

std::optional<Topology> finish(ClusterDescription cluster, int gpus,
                               const std::vector<LinkOverride>& overrides, const std::string& file,
                               const std::string& pointer, Problems& problems) {
  const std::size_t before = problems.size();
  override_links(cluster, overrides, file, problems);
  if (const std::string problem = size_problem(cluster, gpus); !problem.empty()) {
    problems.add(file, pointer, problem);
  }
  if (problems.size() != before) return std::nullopt;
  return Topology(std::move(cluster), gpus);
}

}  // namespace

ClusterDescription read_cluster_description(const JsonNode& node, Problems& problems) {
  ClusterDescription cluster;
  ObjectReader reader(node, problems);
  const std::size_t before = problems.size();
  cluster.name = reader.require_string("name");
  cluster.title = reader.require_string("title");
  cluster.source = reader.require_string("source");
  read_profiles(reader, cluster);
  const auto graph = reader.object("graph");
  if (const auto server = reader.object("node")) {
    read_node(*server, graph.has_value(), cluster, problems);
  } else if (!reader.has("node")) {
    reader.problem("node", "missing; expected the description of a node");
  }
  if (graph) {
    read_graph(*graph, cluster, problems);
  } else {
    read_generated(reader, cluster, problems);
  }
  reader.finish();
  if (graph && problems.size() == before) summarise_graph(cluster);
  return cluster;
}

std::optional<JsonNode> find_topology_file(const std::string& name, const JsonNode& place,
                                           Problems& problems) {
  try {
    if (is_path(name)) return JsonNode::parse_file(name);
    const std::string path = kFolder + name + ".json";
    if (const ShippedFile* file = find_shipped_file(path)) {
      return JsonNode::parse_text(file->content, path);
    }
  } catch (const InvalidInput& error) {
    for (const Problem& problem : error.problems()) {
      problems.add(problem.file, problem.pointer, problem.message);
    }
    return std::nullopt;
  }
  std::vector<std::string> known;
  for (const std::string_view preset : shipped_names(kFolder)) known.emplace_back(preset);
  const std::string near = nearest(name, known);
  problems.add(place.file(), place.pointer(),
               "\"" + name + "\" is no known topology" +
                   (near.empty() ? "" : "; did you mean \"" + near + "\"?") + " (there are " +
                   any_of(known) + ", or a path)");
  return std::nullopt;
}

std::optional<Topology> read_topology(const JsonNode& description, int gpus,
                                      const std::vector<LinkOverride>& overrides,
                                      const JsonNode& place, Problems& problems) {
  const std::size_t before = problems.size();
  ClusterDescription cluster = read_cluster_description(description, problems);
  if (problems.size() != before) return std::nullopt;
  return finish(std::move(cluster), gpus, overrides, place.file(), place.pointer(), problems);
}

std::optional<Topology> read_topology(const std::string& name, int gpus,
                                      const std::vector<LinkOverride>& overrides,
                                      const JsonNode& place, Problems& problems) {
  const std::optional<JsonNode> file = find_topology_file(name, place, problems);
  if (!file) return std::nullopt;
  return read_topology(*file, gpus, overrides, place, problems);
}

std::vector<TopologyName> topology_presets() {
  std::vector<TopologyName> presets;
  for (const std::string_view name : shipped_names(kFolder)) {
    Problems problems;
    const std::string path = kFolder + std::string(name) + ".json";
    const ClusterDescription cluster = read_cluster_description(
        JsonNode::parse_text(find_shipped_file(path)->content, path), problems);
    problems.throw_if_any();
    presets.push_back(
        {cluster.name, cluster.title, cluster.source, cluster.profiles, cluster.server.gpus});
  }
  return presets;
}

// ---------------------------------------------------------------------------------------------------
// A cluster in one line

namespace {

// The topology that each device is best known from.
struct KnownFrom {
  const char* device;
  const char* topology;
};
constexpr KnownFrom kKnownFrom[] = {
    {"v100-sxm2-32gb", "v100-1x100"},
    {"v100-sxm2-16gb", "v100-1x100"},
    {"a100-sxm-80gb", "dgx-a100"},
    {"a100-sxm-40gb", "dgx-a100"},
    {"h100-sxm", "dgx-h100"},
    {"h100-96gb-500w", "grand-teton-h100-96gb"},
    {"h800", "h800"},
    {"h200", "dgx-h200"},
    {"b200", "dgx-b200"},
    {"b300", "dgx-b300"},
    {"gb200", "gb200-nvl72"},
    {"gb300", "gb300-nvl72"},
    {"mi300x", "mi300x"},
    {"host-cpu", "host-cpu"},
};

// The first whose name is, or begins with, the word and a hyphen.
const KnownFrom* known_from(const std::string& gpu) {
  for (const KnownFrom& entry : kKnownFrom) {
    if (gpu == entry.device || std::string(entry.device).starts_with(gpu + '-')) return &entry;
  }
  return nullptr;
}

// "8x400 Gbit/s" or "400 Gbit/s": how many, and each one's bandwidth.
bool parse_nics(const std::string& text, ServerDescription& server, Problems& problems) {
  int count = 1;
  std::string bandwidth = text;
  if (const std::size_t times = text.find('x'); times != std::string::npos) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + times, count);
    if (error != std::errc() || end != text.data() + times || count < 1) {
      problems.add("--nic", "",
                   "\"" + text +
                       "\" is no number of NICs and a bandwidth; expected "
                       "for example \"8x400 Gbit/s\"");
      return false;
    }
    bandwidth = text.substr(times + 1);
  }
  try {
    server.nic.bandwidth = parse_bandwidth(bandwidth);
  } catch (const std::invalid_argument& error) {
    problems.add("--nic", "", std::string(error.what()) + ", as in \"8x400 Gbit/s\"");
    return false;
  }
  if (server.nic.bandwidth.bytes_per_second <= 0) {
    problems.add("--nic", "", "a bandwidth of 0; expected more");
    return false;
  }
  if (count > server.gpus ? count % server.gpus != 0 : server.gpus % count != 0) {
    problems.add("--nic", "",
                 std::to_string(count) + " NICs cannot be divided among " +
                     std::to_string(server.gpus) +
                     " GPUs; expected a divisor or a multiple of them");
    return false;
  }
  server.nic.count = std::max(1, count / server.gpus);
  server.nic.bandwidth = server.nic.bandwidth * server.nic.count;
  server.nics = std::min(count, server.gpus);
  return true;
}

}  // namespace

bool names_one_line_cluster(const std::string& gpu) {
  return known_from(gpu) != nullptr && find_shipped_file(kFolder + gpu + ".json") == nullptr;
}

std::optional<Topology> cluster_in_one_line(const ClusterOptions& options, Problems& problems) {
  const std::size_t before = problems.size();
  const KnownFrom* known = known_from(options.gpu);
  if (known == nullptr) {
    std::vector<std::string> names;
    for (const KnownFrom& entry : kKnownFrom) names.emplace_back(entry.device);
    const std::string near = nearest(options.gpu, names);
    problems.add("--cluster", "",
                 "\"" + options.gpu + "\" is no known GPU" +
                     (near.empty() ? "" : "; did you mean \"" + near + "\"?") + " (there are " +
                     any_of(names) + ")");
    return std::nullopt;
  }
  const std::string path = kFolder + std::string(known->topology) + ".json";
  ClusterDescription cluster = read_cluster_description(
      JsonNode::parse_text(find_shipped_file(path)->content, path), problems);
  const std::string base = cluster.name;
  cluster.profiles = {known->device};
  cluster.name = options.gpu;
  if (options.nic) {
    if (cluster.server.nics == 0) {
      problems.add("--nic", "", base + " has no network");
    } else if (parse_nics(*options.nic, cluster.server, problems)) {
      cluster.name += ' ' + *options.nic;
    }
  }
  if (options.oversubscription) {
    if (!(*options.oversubscription > 0) || !std::isfinite(*options.oversubscription)) {
      problems.add("--oversubscription", "", "expected a number above 0");
    } else if (const Network* network = find_network(cluster.network.generator);
               network == nullptr || !network->leaves) {
      problems.add("--oversubscription", "", base + " has no leaf and spine switches");
    } else {
      cluster.network.oversubscription = *options.oversubscription;
      // One layer for all: what is asked for is what a transfer across leaves meets.
      cluster.network.pod_servers = 0;
    }
  }
  if (options.nodes < 0 || options.nodes > cluster.max_servers) {
    problems.add("--nodes", "",
                 std::to_string(options.nodes) + " nodes; expected an integer from 1 " + "up to " +
                     std::to_string(cluster.max_servers));
  }
  if (problems.size() != before) return std::nullopt;
  cluster.title = "a cluster of " + std::string(known->device) + ", otherwise as " + base;
  const int gpus = options.gpus != 0 ? options.gpus : options.nodes * cluster.server.gpus;
  return finish(std::move(cluster), gpus, options.overrides, "--cluster", "", problems);
}

// ---------------------------------------------------------------------------------------------------

std::vector<Problem> check_topology(const std::string& name) {
  Problems problems;
  const JsonNode place = JsonNode::parse_text("null", name);
  try {
    const auto file = find_topology_file(name, place, problems);
    if (file) {
      const ClusterDescription cluster = read_cluster_description(*file, problems);
      problems.throw_if_any();
      if (!cluster.graph) check_generated(cluster, file->file(), problems);
    }
    problems.throw_if_any();
  } catch (const InvalidInput& error) {
    return error.problems();
  }
  return {};
}

}  // namespace headway
