#include "sim/cluster/graph_reader.hpp"

#include <gmock/gmock.h>

#include "tests/cluster/clusters.hpp"

namespace headway {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Two nodes of two GPUs joined by NVLink, one NIC a node on its GPUs' PCIe switch, two spines of
// which the second is wider.
const char* const kOwnGraph = R"({
  "name": "own", "title": "a graph of its own", "source": "made up", "profiles": ["a100-sxm-80gb"],
  "node": {"source": "made up", "cpu": {"source": "s", "vendor": "intel"}},
  "graph": {"source": "made up",
    "vertices": [
      {"name": "a", "kind": "gpu", "node": 0}, {"name": "b", "kind": "gpu", "node": 0},
      {"name": "p", "kind": "pcie-switch", "node": 0}, {"name": "n", "kind": "nic", "node": 0},
      {"name": "c", "kind": "gpu", "node": 1}, {"name": "d", "kind": "gpu", "node": 1},
      {"name": "q", "kind": "pcie-switch", "node": 1}, {"name": "m", "kind": "nic", "node": 1},
      {"name": "l0", "kind": "leaf"}, {"name": "l1", "kind": "leaf"},
      {"name": "s0", "kind": "spine"}, {"name": "s1", "kind": "spine"}],
    "links": [
      {"from": "a", "to": "b", "kind": "nvlink", "bandwidth": "300 GB/s", "latency": "0.3 us", "count": 12},
      {"from": "c", "to": "d", "kind": "nvlink", "bandwidth": "300 GB/s", "latency": "0.3 us", "count": 12},
      {"from": "a", "to": "p", "kind": "pcie", "bandwidth": "31 GB/s", "latency": "0.2 us"},
      {"from": "b", "to": "p", "kind": "pcie", "bandwidth": "31 GB/s", "latency": "0.2 us"},
      {"from": "n", "to": "p", "kind": "pcie", "bandwidth": "31 GB/s", "latency": "0.2 us"},
      {"from": "c", "to": "q", "kind": "pcie", "bandwidth": "31 GB/s", "latency": "0.2 us"},
      {"from": "d", "to": "q", "kind": "pcie", "bandwidth": "31 GB/s", "latency": "0.2 us"},
      {"from": "m", "to": "q", "kind": "pcie", "bandwidth": "31 GB/s", "latency": "0.2 us"},
      {"from": "n", "to": "l0", "kind": "nic", "bandwidth": "200 Gbit/s", "latency": "1 us"},
      {"from": "m", "to": "l1", "kind": "nic", "bandwidth": "200 Gbit/s", "latency": "1 us"},
      {"from": "l0", "to": "s0", "kind": "leaf-spine", "bandwidth": "100 Gbit/s", "latency": "0.2 us"},
      {"from": "l1", "to": "s0", "kind": "leaf-spine", "bandwidth": "100 Gbit/s", "latency": "0.2 us"},
      {"from": "l0", "to": "s1", "kind": "leaf-spine", "bandwidth": "400 Gbit/s", "latency": "0.2 us"},
      {"from": "l1", "to": "s1", "kind": "leaf-spine", "bandwidth": "400 Gbit/s", "latency": "0.2 us"}]}
})";

TEST(GraphReader, ReadsVerticesAndLinksOneByOne) {
  const Topology topology = topology_of(kOwnGraph, 4);
  EXPECT_EQ(topology.nodes(), 2);
  EXPECT_EQ(topology.gpus_per_node(), 2);
  EXPECT_EQ(topology.gpus_per_domain(), 2);
  EXPECT_EQ(topology.nics_per_node(), 1);
  EXPECT_EQ(topology.vertices().size(), 12U);
  EXPECT_EQ(topology.links().size(), 2U * 14U);
  EXPECT_EQ(topology.nvlink_bandwidth().bytes_per_second, 300e9);
  EXPECT_EQ(topology.nic_bandwidth().bytes_per_second, 25e9);
  EXPECT_FALSE(topology.has_nvswitch());
  EXPECT_EQ(topology.placement({0, 2}).neighbours_sharing_nic, 2);
}

TEST(GraphReader, RoutesOverTheWiderSpine) {
  const Topology topology = topology_of(kOwnGraph, 4);
  EXPECT_EQ(way(topology, 0, 1), "a b");
  EXPECT_EQ(way(topology, 1, 2), "b p n l0 s1 l1 m q c");
  EXPECT_EQ(way(topology, 2, 1), "c q m l1 s1 l0 n p b");
}

TEST(GraphReader, TakesAPartOfTheGpus) {
  EXPECT_EQ(topology_of(kOwnGraph, 2).nodes(), 1);
  EXPECT_EQ(topology_of(kOwnGraph, 1).gpus(), 1);
  EXPECT_THAT(problems_of(kOwnGraph, 3), HasSubstr("3 GPUs are not whole nodes of own"));
  EXPECT_EQ(problems_of(kOwnGraph, 6),
            "job.json: too many GPUs: 6, and own has at most 4 (the vertices of its graph)");
}

TEST(GraphReader, OverridesEveryLinkOfAKind) {
  const Topology topology =
      topology_of(kOwnGraph, 4, {{"leaf-spine", Bandwidth{1e9}, std::nullopt, ""}});
  for (const TopologyLink& link : topology.links()) {
    if (link.kind == "leaf-spine") {
      EXPECT_EQ(link.bandwidth.bytes_per_second, 1e9);
    }
  }
  // Both spines are equally wide now: receivers take them in turn.
  EXPECT_EQ(way(topology, 0, 2), "a p n l0 s0 l1 m q c");
  EXPECT_EQ(way(topology, 0, 3), "a p n l0 s1 l1 m q d");
}

struct BadGraph {
  const char* piece;
  const char* by;
  const char* message;
};
void PrintTo(const BadGraph& bad, std::ostream* out) { *out << bad.message; }

class BadOwnGraph : public testing::TestWithParam<BadGraph> {};

TEST_P(BadOwnGraph, IsRefusedWithPlaceAndReason) {
  const BadGraph& bad = GetParam();
  EXPECT_THAT(problems_of(changed(kOwnGraph, {{bad.piece, bad.by}})), HasSubstr(bad.message));
}

INSTANTIATE_TEST_SUITE_P(
    EachParameter, BadOwnGraph,
    testing::Values(
        BadGraph{"\"name\": \"b\"", "\"name\": \"a\"",
                 "t.json: /graph/vertices/1/name: \"a\" is given twice"},
        BadGraph{"\"pcie-switch\"", "\"pcie-swich\"", "t.json: /graph/vertices/2/kind: "},
        BadGraph{"{\"name\": \"a\", \"kind\": \"gpu\", \"node\": 0}",
                 "{\"name\": \"a\", \"kind\": \"gpu\"}", "t.json: /graph/vertices/0/node: missing"},
        BadGraph{"\"kind\": \"gpu\", \"node\": 0", "\"kind\": \"gpu\", \"node\": -1",
                 "t.json: /graph/vertices/0/node: "},
        BadGraph{"{\"name\": \"l0\", \"kind\": \"leaf\"}",
                 "{\"name\": \"l0\", \"kind\": \"leaf\", \"node\": 0}",
                 "t.json: /graph/vertices/8/node: unknown key"},
        BadGraph{
            "\"kind\": \"gpu\", \"node\": 1}, {\"name\": \"d\", \"kind\": \"gpu\", \"node\": 1}",
            "\"kind\": \"gpu\", \"node\": 1}, {\"name\": \"d\", \"kind\": \"gpu\", \"node\": 2}",
            "t.json: /graph/vertices: GPUs must stand in the order of their nodes"},
        BadGraph{"\"kind\": \"gpu\", \"node\": 0}",
                 "\"kind\": \"gpu\", \"node\": 0, \"domain\": 3}",
                 "t.json: /graph/vertices: GPUs must stand in the order of their domains"},
        BadGraph{"\"to\": \"l0\"", "\"to\": \"l9\"",
                 "t.json: /graph/links/8/to: \"l9\" is no vertex; did you mean \"l0\"?"},
        BadGraph{"\"from\": \"a\", \"to\": \"b\"", "\"from\": \"a\", \"to\": \"a\"",
                 "t.json: /graph/links/0/to: a link from a vertex to itself"},
        BadGraph{"\"from\": \"a\", ", "", "t.json: /graph/links/0/from: missing"},
        BadGraph{"\"kind\": \"nvlink\"", "\"kind\": \"nvlnk\"", "t.json: /graph/links/0/kind: "},
        BadGraph{"\"300 GB/s\"", "\"0 GB/s\"",
                 "t.json: /graph/links/0/bandwidth: a bandwidth of 0"},
        BadGraph{"\"300 GB/s\"", "300", "t.json: /graph/links/0/bandwidth: "},
        BadGraph{"\"0.3 us\"", "\"0.3\"", "t.json: /graph/links/0/latency: "},
        BadGraph{"\"count\": 12", "\"count\": 0", "t.json: /graph/links/0/count: "},
        BadGraph{"\"count\": 12", "\"width\": 12", "t.json: /graph/links/0/width: unknown key"},
        BadGraph{"\"from\": \"m\", \"to\": \"q\"", "\"from\": \"m\", \"to\": \"p\"",
                 "t.json: /graph/links: no PCIe way from \"c\" to a NIC of its node"},
        BadGraph{"\"from\": \"m\", \"to\": \"l1\", \"kind\": \"nic\"",
                 "\"from\": \"m\", \"to\": \"l1\", \"one_way\": true, \"kind\": \"nic\"",
                 "t.json: /graph/links: no way both ways between the NICs of \"c\" and \"a\""},
        BadGraph{"\"graph\": {\"source\": \"made up\",", "\"graph\": {",
                 "t.json: /graph/source: missing"}));

TEST(GraphReader, NeedsAGpu) {
  EXPECT_THAT(problems_of(R"({"name": "own", "title": "t", "source": "s", "profiles": ["h200"],
                "node": {"source": "s", "cpu": {"source": "s", "vendor": "intel"}},
                "graph": {"source": "s", "vertices": [{"name": "l", "kind": "leaf"}], "links": []}})"),
              AllOf(HasSubstr("/graph/vertices: no gpu among them")));
}

}  // namespace
}  // namespace headway
