#include "sim/cluster/routing.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/graph/compressed_sparse_row_graph.hpp>
#include <boost/graph/strong_components.hpp>
#include <cassert>
#include <limits>
#include <utility>

namespace headway {

namespace {

// An edge carries its link's number and reach in one int: a search reads thousands of them for each
// link that it takes.
struct EdgeContent {
  std::int32_t packed = 0;

  static EdgeContent of(LinkId link, Reach reach) {
    return {static_cast<std::int32_t>(link * 4 + static_cast<int>(reach))};
  }
  LinkId link() const { return packed >> 2; }
  Reach reach() const { return static_cast<Reach>(packed & 3); }
};
using BoostGraph = boost::compressed_sparse_row_graph<boost::directedS, boost::no_property,
                                                      EdgeContent, boost::no_property, int, int>;

constexpr std::size_t kReaches = 3;
constexpr LinkId kNoWay = -1, kSeveralWays = -2;

Reach reach_of(const std::string& kind) {
  if (kind == kNvlink || kind == kMemory) return Reach::kFabric;
  return kind == kPcie || kind == kSocket ? Reach::kServer : Reach::kOutside;
}

// A part of a route may begin and end anywhere, but pass only through what forwards traffic.
bool forwards(NodeKind kind, Reach reach) {
  if (kind == NodeKind::kGpu) return reach == Reach::kFabric;
  return kind != NodeKind::kNic;
}

constexpr int kNoAlternative = -1;

// What a search knows of a vertex. Kept from search to search and told apart by a stamp, so that a
// search costs what it visits, not what the graph holds.
struct Visit {
  std::int64_t stamp = 0;
  int hops = 0;
  double width = 0;  // of the narrowest link on the way here
  VertexId parent = 0;
  LinkId link = 0;
  int alternatives = kNoAlternative;  // the first of them
};
struct Alternative {  // an equally good last step to a vertex, beside the one in its Visit
  VertexId parent;
  LinkId link;
  int next;
};
// A search from a vertex goes on where it stopped: from one GPU to all others costs one search.
struct Search {
  std::int64_t stamp = 0;
  std::int64_t router = 0;  // whose, from where, by which links: valid where they are asked again
  VertexId from = -1;
  Reach reach = Reach::kFabric;
  std::size_t next = 0;  // of the queue
  std::vector<Visit> visits;
  std::vector<VertexId> queue;
  std::vector<Alternative> alternatives;
};

}  // namespace

struct Router::Adjacency {
  std::int64_t number;  // of all routers, from 1: memory is used again, numbers are not
  const ClusterGraph& content;
  BoostGraph graph;
  // By reach and vertex: the only link that leads there, or one of these.
  std::array<std::vector<LinkId>, kReaches> only_way;
};

Router::Router(const ClusterGraph& graph, const std::vector<LinkId>& dead) {
  static std::atomic<std::int64_t> routers = 0;
  std::vector<bool> is_dead(dead.empty() ? 0 : graph.links.size(), false);
  for (const LinkId link : dead) is_dead[static_cast<std::size_t>(link)] = true;
  std::vector<EdgeContent> edges;
  std::vector<std::pair<VertexId, VertexId>> ends;
  edges.reserve(graph.links.size());
  ends.reserve(graph.links.size());
  std::array<std::vector<LinkId>, kReaches> only_way;
  for (std::vector<LinkId>& ways : only_way) ways.assign(graph.vertices.size(), kNoWay);
  // Links of a kind stand together: their reach is looked up where the kind changes.
  const std::string* kind = nullptr;
  Reach reach = Reach::kFabric;
  for (std::size_t i = 0; i < graph.links.size(); ++i) {
    const TopologyLink& link = graph.links[i];
    if (!is_dead.empty() && is_dead[i]) continue;
    if (kind == nullptr || link.kind != *kind) {
      kind = &link.kind;
      reach = reach_of(link.kind);
    }
    const auto id = static_cast<LinkId>(i);
    edges.push_back(EdgeContent::of(id, reach));
    ends.emplace_back(link.from, link.to);
    LinkId& way = only_way[static_cast<std::size_t>(reach)][static_cast<std::size_t>(link.to)];
    way = way == kNoWay ? id : kSeveralWays;
  }
  adjacency_ = std::make_unique<const Adjacency>(
      Adjacency{++routers, graph,
                BoostGraph(boost::edges_are_unsorted_multi_pass, ends.begin(), ends.end(),
                           edges.begin(), static_cast<int>(graph.vertices.size())),
                std::move(only_way)});
}

Router::~Router() = default;

std::vector<LinkId> Router::path(VertexId from, VertexId to, Reach reach,
                                 std::uint64_t spread) const {
  if (from == to) return {};
  // Whatever the way, it ends with the only link to `to`: a leaf need not be searched for its NICs.
  const LinkId last =
      adjacency_->only_way[static_cast<std::size_t>(reach)][static_cast<std::size_t>(to)];
  if (last == kNoWay) return {};
  if (last != kSeveralWays) {
    const VertexId before = adjacency_->content.links[static_cast<std::size_t>(last)].from;
    if (before == from) return {last};
    if (!forwards(adjacency_->content.vertices[static_cast<std::size_t>(before)].kind, reach)) {
      return {};
    }
    std::vector<LinkId> links = path(from, before, reach, spread);
    if (!links.empty()) links.push_back(last);
    return links;
  }
  const BoostGraph& graph = adjacency_->graph;
  const std::vector<Vertex>& vertices = adjacency_->content.vertices;
  const auto passes = [&](VertexId vertex) {
    return forwards(vertices[static_cast<std::size_t>(vertex)].kind, reach);
  };
  thread_local Search search;
  const auto visit = [&](VertexId vertex) -> Visit& {
    return search.visits[static_cast<std::size_t>(vertex)];
  };
  if (search.router != adjacency_->number || search.from != from || search.reach != reach ||
      !passes(to)) {
    if (search.visits.size() < vertices.size()) search.visits.resize(vertices.size());
    ++search.stamp;
    // A search for what passes nothing on visits that too: it is not gone on with.
    search.router = passes(to) ? adjacency_->number : 0;
    search.from = from;
    search.reach = reach;
    search.next = 0;
    search.queue.assign(1, from);
    search.alternatives.clear();
    visit(from) = {search.stamp, 0,  std::numeric_limits<double>::infinity(),
                   from,         -1, kNoAlternative};
  }

  // Breadth first. All vertices one hop nearer are done before a vertex is left again, so its width
  // is final by then.
  for (; search.next < search.queue.size(); ++search.next) {
    const VertexId here = search.queue[search.next];
    const Visit at = visit(here);
    const Visit& goal = visit(to);
    if (goal.stamp == search.stamp && at.hops >= goal.hops) break;
    if (here != from && !passes(here)) continue;
    const auto [begin, end] = boost::out_edges(here, graph);
    for (auto edge = begin; edge != end; ++edge) {
      const EdgeContent content = graph[*edge];
      if (content.reach() != reach) continue;
      const VertexId there = boost::target(*edge, graph);
      // Another GPU's or NIC's leaf link leads nowhere.
      if (there != to && !passes(there)) continue;
      Visit& known = visit(there);
      const LinkId link = content.link();
      const double width = std::min(
          at.width,
          adjacency_->content.links[static_cast<std::size_t>(link)].bandwidth.bytes_per_second);
      if (known.stamp != search.stamp) {
        known = {search.stamp, at.hops + 1, width, here, link, kNoAlternative};
        search.queue.push_back(there);
      } else if (known.hops == at.hops + 1 && width > known.width) {
        known = {search.stamp, at.hops + 1, width, here, link, kNoAlternative};
      } else if (known.hops == at.hops + 1 && width == known.width) {
        search.alternatives.push_back({here, link, known.alternatives});
        known.alternatives = static_cast<int>(search.alternatives.size()) - 1;
      }
    }
  }
  if (visit(to).stamp != search.stamp) return {};

  std::vector<LinkId> links;
  std::vector<std::pair<LinkId, VertexId>> choices;
  for (VertexId here = to; here != from;) {
    const Visit& step = visit(here);
    choices.assign(1, {step.link, step.parent});
    for (int i = step.alternatives; i != kNoAlternative;) {
      const Alternative& other = search.alternatives[static_cast<std::size_t>(i)];
      choices.emplace_back(other.link, other.parent);
      i = other.next;
    }
    std::sort(choices.begin(), choices.end());
    const auto& [link, parent] = choices[spread % choices.size()];
    spread /= choices.size();
    links.push_back(link);
    here = parent;
  }
  std::reverse(links.begin(), links.end());
  return links;
}

bool Router::reaches_outside(VertexId vertex) const {
  const LinkId back =
      adjacency_
          ->only_way[static_cast<std::size_t>(Reach::kOutside)][static_cast<std::size_t>(vertex)];
  if (back == kNoWay) return false;
  const auto [begin, end] = boost::out_edges(vertex, adjacency_->graph);
  return std::any_of(begin, end, [&](const auto& edge) {
    return adjacency_->graph[edge].reach() == Reach::kOutside;
  });
}

std::vector<int> Router::components() const {
  const BoostGraph& graph = adjacency_->graph;
  std::vector<int> component(boost::num_vertices(graph));
  if (component.empty()) return component;
  const auto index = boost::get(boost::vertex_index, graph);
  boost::strong_components(graph, boost::make_iterator_property_map(component.begin(), index));
  return component;
}

}  // namespace headway
