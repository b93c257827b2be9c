#include "sim/cluster/link_names.hpp"

#include <algorithm>
#include <set>

namespace headway {

namespace {

VertexId vertex_named(const Topology& topology, const std::string& name) {
  const std::vector<Vertex>& vertices = topology.vertices();
  const auto found = std::find_if(vertices.begin(), vertices.end(),
                                  [&](const Vertex& vertex) { return vertex.name == name; });
  return found == vertices.end() ? -1 : static_cast<VertexId>(found - vertices.begin());
}

template <typename Chosen>
std::vector<LinkId> links_where(const Topology& topology, Chosen chosen) {
  std::vector<LinkId> links;
  for (std::size_t i = 0; i < topology.links().size(); ++i) {
    if (chosen(topology.links()[i])) links.push_back(static_cast<LinkId>(i));
  }
  return links;
}

}  // namespace

std::vector<LinkId> links_named(const Topology& topology, const std::string& name) {
  std::vector<LinkId> of_kind =
      links_where(topology, [&](const TopologyLink& link) { return link.kind == name; });
  if (!of_kind.empty()) return of_kind;
  if (const VertexId vertex = vertex_named(topology, name); vertex >= 0) {
    return links_where(topology, [&](const TopologyLink& link) {
      return link.from == vertex || link.to == vertex;
    });
  }
  const std::size_t colon = name.find(':');
  if (colon == std::string::npos) return {};
  const VertexId a = vertex_named(topology, name.substr(0, colon));
  const VertexId b = vertex_named(topology, name.substr(colon + 1));
  if (a < 0 || b < 0) return {};
  return links_where(topology, [&](const TopologyLink& link) {
    return (link.from == a && link.to == b) || (link.from == b && link.to == a);
  });
}

std::string link_names_expected(const Topology& topology, const std::string& name) {
  std::set<std::string> kinds;
  for (const TopologyLink& link : topology.links()) kinds.insert(link.kind);
  const std::vector<std::string> known(kinds.begin(), kinds.end());
  std::vector<std::string> names = known;
  for (const Vertex& vertex : topology.vertices()) names.push_back(vertex.name);
  const std::string near = nearest(name, names);
  return (near.empty() ? "" : "did you mean '" + near + "'? ") + "expected a kind (" +
         any_of(known) + "), a vertex, or two vertices as in 'node0/nic0:leaf0'";
}

std::vector<double> link_shares(const Topology& topology,
                                const std::map<std::string, double>& shares,
                                const std::string& option, Problems& problems) {
  std::vector<double> left(topology.links().size(), 1.0);
  for (const auto& [name, share] : shares) {
    const std::vector<LinkId> links = links_named(topology, name);
    if (links.empty()) {
      problems.add(
          option, "",
          "this cluster has no links named '" + name + "'; " + link_names_expected(topology, name));
    }
    for (const LinkId link : links) left[static_cast<std::size_t>(link)] *= share;
  }
  return left;
}

}  // namespace headway
