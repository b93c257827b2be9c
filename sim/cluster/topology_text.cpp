#include "sim/cluster/topology_text.hpp"

#include <algorithm>
#include <cassert>
#include <vector>

#include "sim/cluster/cluster_description.hpp"
#include "sim/cluster/generators.hpp"
#include "sim/core/quantity.hpp"

namespace headway {

namespace {

std::string padded(std::string text, std::size_t width) {
  if (text.size() < width) text.append(width - text.size(), ' ');
  return text;
}

std::string row(const char* label, const std::string& content) {
  return "  " + padded(label, 10) + content + '\n';
}

std::string counted(std::size_t count, const std::string& noun) {
  return std::to_string(count) + ' ' + noun + (count == 1 ? "" : "s");
}

// Network bandwidths are known by their bits.
std::string both_units(Bandwidth bandwidth) {
  const double gigabits = bandwidth.bytes_per_second * 8 / 1e9;
  std::string text = std::to_string(gigabits);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return to_text(bandwidth) + " (" + text + " Gbit/s)";
}

// A row for each kind of link and bandwidth: how many there are in each direction pair.
struct LinkClass {
  std::string kind;
  Bandwidth bandwidth;
  Time latency;
  int count = 1;
  std::size_t number = 0;
};

std::vector<LinkClass> link_classes(const Topology& topology) {
  std::vector<LinkClass> classes;
  for (const TopologyLink& link : topology.links()) {
    const auto same = std::find_if(classes.begin(), classes.end(), [&](const LinkClass& entry) {
      return entry.kind == link.kind && entry.bandwidth == link.bandwidth &&
             entry.latency == link.latency && entry.count == link.count;
    });
    if (same == classes.end()) {
      classes.push_back({link.kind, link.bandwidth, link.latency, link.count, 1});
    } else {
      ++same->number;
    }
  }
  const auto place = [](const LinkClass& entry) {
    return std::find(link_kinds().begin(), link_kinds().end(), entry.kind) - link_kinds().begin();
  };
  std::stable_sort(classes.begin(), classes.end(), [&](const LinkClass& a, const LinkClass& b) {
    return place(a) < place(b) || (place(a) == place(b) && b.bandwidth < a.bandwidth);
  });
  return classes;
}

std::string vertex_counts(const Topology& topology) {
  std::vector<std::size_t> counts(static_cast<std::size_t>(NodeKind::kCore) + 1);
  for (const Vertex& vertex : topology.vertices()) ++counts[static_cast<std::size_t>(vertex.kind)];
  std::string text = std::to_string(topology.vertices().size()) + " vertices (";
  bool first = true;
  for (std::size_t kind = 0; kind < counts.size(); ++kind) {
    if (counts[kind] == 0) continue;
    if (!first) text += ", ";
    first = false;
    text += std::to_string(counts[kind]) + ' ' + std::string(name(static_cast<NodeKind>(kind)));
  }
  return text + "), " + std::to_string(topology.links().size()) + " directed links";
}

std::string fabric_text(const Topology& topology) {
  const GpuFabric* fabric = find_gpu_fabric(topology.description().server.gpu_fabric);
  const std::string how = fabric != nullptr ? fabric->summary : "as its graph says";
  return how + ", " + to_text(topology.nvlink_bandwidth()) + " each way from a GPU";
}

std::string network_text(const Topology& topology) {
  const ClusterDescription& cluster = topology.description();
  const Network* network = find_network(cluster.network.generator);
  if (network == nullptr) return cluster.graph ? "as its graph says" : "none";
  std::string text = network->summary;
  if (network->leaves) {
    text +=
        ", " + counted(static_cast<std::size_t>(cluster.network.leaf_servers), "node") + " a leaf";
    std::string ratio = std::to_string(cluster.network.oversubscription);
    ratio.erase(ratio.find_last_not_of('0') + 1);
    if (ratio.back() == '.') ratio.pop_back();
    text += ", " + ratio + ":1";
  }
  if (cluster.network.spines > 0) {
    text += ", " + counted(static_cast<std::size_t>(cluster.network.spines), "spine");
  }
  if (cluster.network.hashed_ways) text += ", ways by hash";
  if (cluster.network.rails_over_nvlink) text += ", rails change over NVLink";
  return text;
}

}  // namespace

std::string summary(const Topology& topology) {
  std::string text = topology.name() + ": " + topology.description().title + '\n';
  const auto number = [](int value) { return static_cast<std::size_t>(value); };
  text += row("GPUs", std::to_string(topology.gpus()) + " in " +
                          counted(number(topology.nodes()), "node") + " of " +
                          std::to_string(topology.gpus_per_node()) + ", NVLink domains of " +
                          std::to_string(topology.gpus_per_domain()));
  text += row("inside", fabric_text(topology));
  if (topology.nics_per_node() > 0) {
    text += row("outside", counted(number(topology.nics_per_node()), "NIC") + " a node, " +
                               both_units(topology.nic_bandwidth()) + " each");
  }
  text += row("network", network_text(topology));
  text += row("graph", vertex_counts(topology));
  for (const LinkClass& entry : link_classes(topology)) {
    text += row("", padded(entry.kind, 12) + padded(std::to_string(entry.number) + " x", 10) +
                        padded(to_text(entry.bandwidth), 12) + padded(to_text(entry.latency), 10) +
                        (entry.count > 1 ? std::to_string(entry.count) + " parallel" : ""));
  }
  if (const auto watts = topology.watts_per_node()) {
    text += row("power", std::to_string(static_cast<long long>(*watts)) + " W a node");
  }
  if (const auto dollars = topology.dollars_per_gpu_hour()) {
    std::string price = std::to_string(*dollars);
    price.resize(price.find('.') + 3);
    text += row("price", price + " $/h a GPU");
  }
  std::string profiles;
  for (const std::string& profile : topology.profiles()) {
    profiles += (profiles.empty() ? "" : ", ") + profile;
  }
  text += row("profiles", profiles);
  text += row("source", topology.source());
  return text;
}

std::string route_text(const Topology& topology, int from_rank, int to_rank) {
  assert(from_rank >= 0 && from_rank < topology.gpus() && to_rank >= 0 &&
         to_rank < topology.gpus());
  const std::vector<Vertex>& vertices = topology.vertices();
  const auto vertex_name = [&](VertexId vertex) {
    return vertices[static_cast<std::size_t>(vertex)].name;
  };
  std::string text = "GPU " + std::to_string(from_rank) + " (" +
                     vertex_name(topology.gpu(from_rank)) + ") to GPU " + std::to_string(to_rank) +
                     " (" + vertex_name(topology.gpu(to_rank)) + ")\n";
  const std::vector<LinkId> route = topology.route(from_rank, to_rank);
  if (route.empty()) {
    return text + (from_rank == to_rank ? "  nothing to cross\n" : "  no way: dead links\n");
  }
  std::size_t widest_name = 0;
  std::vector<std::string> hops;
  for (const LinkId id : route) {
    const TopologyLink& link = topology.links()[static_cast<std::size_t>(id)];
    hops.push_back(vertex_name(link.from) + " -> " + vertex_name(link.to));
    widest_name = std::max(widest_name, hops.back().size());
  }
  Time latency;
  const TopologyLink* narrowest = nullptr;
  for (std::size_t i = 0; i < route.size(); ++i) {
    const TopologyLink& link = topology.links()[static_cast<std::size_t>(route[i])];
    text += "  " + padded(hops[i], widest_name + 2) + padded(link.kind, 12) +
            padded(to_text(link.bandwidth), 12) + to_text(link.latency) + '\n';
    latency += link.latency;
    if (narrowest == nullptr || link.bandwidth < narrowest->bandwidth) narrowest = &link;
  }
  return text + "  latency " + to_text(latency) + ", narrowest link " +
         to_text(narrowest->bandwidth) + " (" + narrowest->kind + ")\n";
}

}  // namespace headway
