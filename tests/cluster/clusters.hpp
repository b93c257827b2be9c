// Small clusters for tests: the text of a topology file, changed piece by piece, and what comes of
// it.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "sim/cluster/topology.hpp"
#include "sim/cluster/topology_reader.hpp"

namespace headway {

struct Change {
  std::string piece, by;
};

// The text with each piece, which must occur, replaced where it first does.
inline std::string changed(std::string text, const std::vector<Change>& changes) {
  for (const Change& change : changes) {
    const std::size_t place = text.find(change.piece);
    EXPECT_NE(place, std::string::npos) << change.piece;
    if (place != std::string::npos) text.replace(place, change.piece.size(), change.by);
  }
  return text;
}

// Two GPUs and two NICs a node under one PCIe switch; rails with two nodes a leaf.
inline const char* const kSmallCluster = R"({
  "name": "small", "title": "a small cluster", "source": "made up", "profiles": ["a100-sxm-80gb"],
  "max_nodes": 64, "max_reason": "made up",
  "node": {"source": "made up", "gpus": 2,
    "gpu_fabric": {"source": "s", "generator": "nvswitch", "bandwidth": "300 GB/s", "latency": "0.3 us", "links": 12},
    "pcie": {"source": "s", "switches": 1, "bandwidth": "31 GB/s", "latency": "0.15 us"},
    "cpu": {"source": "s", "vendor": "amd"},
    "nics": {"source": "s", "count": 2, "bandwidth": "200 Gbit/s", "latency": "1 us"},
    "power": "2 kW", "price": "1.5 $/h"},
  "network": {"source": "s", "generator": "rail-leaf-spine", "leaf_nodes": 2, "latency": "0.25 us"}
})";

// Lines of all problems; empty where there are none.
inline std::string lines_of(const Problems& problems) {
  try {
    problems.throw_if_any();
  } catch (const InvalidInput& error) {
    return error.what();
  }
  return "";
}

inline std::string problems_of(const std::string& text, int gpus = 2,
                               const std::vector<LinkOverride>& overrides = {}) {
  Problems problems;
  const auto topology = read_topology(JsonNode::parse_text(text, "t.json"), gpus, overrides,
                                      JsonNode::parse_text("null", "job.json"), problems);
  EXPECT_EQ(topology.has_value(), problems.empty());
  return lines_of(problems);
}

inline Topology topology_of(const std::string& text, int gpus,
                            const std::vector<LinkOverride>& overrides = {}) {
  Problems problems;
  auto topology = read_topology(JsonNode::parse_text(text, "t.json"), gpus, overrides,
                                JsonNode::parse_text("null", "job.json"), problems);
  problems.throw_if_any();
  return *std::move(topology);
}

inline Topology preset(const std::string& name, int gpus) {
  Problems problems;
  auto topology = read_topology(name, gpus, {}, JsonNode::parse_text("null", "job.json"), problems);
  problems.throw_if_any();
  return *std::move(topology);
}

inline int count(const Topology& topology, NodeKind kind) {
  int number = 0;
  for (const Vertex& vertex : topology.vertices()) number += vertex.kind == kind ? 1 : 0;
  return number;
}

inline int count(const Topology& topology, const std::string& kind) {
  int number = 0;
  for (const TopologyLink& link : topology.links()) number += link.kind == kind ? 1 : 0;
  return number;
}

// "node0/gpu0 node0/nvswitch node0/gpu1": the vertices a route passes.
inline std::string way(const Topology& topology, int from, int to) {
  std::string text = topology.vertices()[static_cast<std::size_t>(topology.gpu(from))].name;
  for (const LinkId id : topology.route(from, to)) {
    const TopologyLink& link = topology.links()[static_cast<std::size_t>(id)];
    text += ' ' + topology.vertices()[static_cast<std::size_t>(link.to)].name;
  }
  return text;
}

}  // namespace headway
