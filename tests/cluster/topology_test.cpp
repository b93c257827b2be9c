#include "sim/cluster/topology.hpp"

#include <gmock/gmock.h>

#include <map>
#include <random>
#include <set>
#include <thread>

#include "tests/cluster/clusters.hpp"

namespace headway {
namespace {

using testing::HasSubstr;

TEST(Topology, KnowsItsSizesWithoutAGraph) {
  const Topology topology = preset("dgx-a100", 1024);
  EXPECT_EQ(topology.name(), "dgx-a100");
  EXPECT_EQ(topology.gpus(), 1024);
  EXPECT_EQ(topology.nodes(), 128);
  EXPECT_EQ(topology.gpus_per_node(), 8);
  EXPECT_EQ(topology.gpus_per_domain(), 8);
  EXPECT_EQ(topology.nics_per_node(), 8);
  EXPECT_DOUBLE_EQ(topology.nic_bandwidth().bytes_per_second, 25e9);
  EXPECT_DOUBLE_EQ(topology.nvlink_bandwidth().bytes_per_second, 300e9);
  EXPECT_EQ(topology.cpu_vendor(), "amd");
  EXPECT_EQ(topology.default_profile(), "a100-sxm-80gb");
  EXPECT_EQ(topology.watts_per_node(), 6500);
  EXPECT_EQ(topology.dollars_per_gpu_hour(), 1.9);
  EXPECT_EQ(topology.node_of(1023), 127);
}

TEST(Topology, OfADgxA100SuperPodHasTheVerticesAndLinksCountedByHand) {
  const Topology topology = preset("dgx-a100", 1024);
  // GPUs and NICs 1024 each; per server one NVSwitch vertex, 4 PCIe switches, 2 CPUs; 7 units (of
  // 20 servers) x 8 leaves; one spine layer.
  EXPECT_EQ(topology.vertices().size(), 2U * 1024 + 128 * 7 + 56 + 1);
  // Each both ways: NVLink 1024; PCIe 8 + 8 + 4 a server; one socket link a server; NICs; leaves.
  EXPECT_EQ(topology.links().size(), 2U * (1024 + 128 * 20 + 128 + 1024 + 56));
}

TEST(Topology, HasTheGpusOfPartOfANodeAndAllItsNics) {
  const Topology topology = preset("a100-4x200", 2);
  EXPECT_EQ(topology.nodes(), 1);
  EXPECT_EQ(topology.gpus_per_node(), 8);
  EXPECT_EQ(count(topology, NodeKind::kGpu), 2);
  EXPECT_EQ(count(topology, NodeKind::kNic), 4);
  EXPECT_EQ(way(topology, 0, 1), "node0/gpu0 node0/nvswitch node0/gpu1");
}

TEST(Topology, NumbersGpusByRankAndNicsByServer) {
  const Topology topology = preset("a100-4x200", 24);
  for (int rank = 0; rank < topology.gpus(); ++rank) {
    const Vertex& gpu = topology.vertices()[static_cast<std::size_t>(topology.gpu(rank))];
    EXPECT_EQ(gpu.kind, NodeKind::kGpu);
    EXPECT_EQ(gpu.name, "node" + std::to_string(rank / 8) + "/gpu" + std::to_string(rank % 8));
    EXPECT_EQ(gpu.node, topology.node_of(rank));
    const Vertex& nic = topology.vertices()[static_cast<std::size_t>(*topology.nic_of(rank))];
    EXPECT_EQ(nic.kind, NodeKind::kNic);
    // Eight GPUs share four NICs in pairs.
    EXPECT_EQ(nic.name, "node" + std::to_string(rank / 8) + "/nic" + std::to_string(rank % 8 / 2));
  }
}

TEST(Topology, SaysHowManyGpusShareANic) {
  EXPECT_EQ(preset("dgx-a100", 16).placement({0, 8}).neighbours_sharing_nic, 1);
  EXPECT_EQ(preset("a100-4x200", 16).placement({0, 8}).neighbours_sharing_nic, 2);
  EXPECT_EQ(preset("a100-1x100", 16).placement({0, 8}).neighbours_sharing_nic, 8);
  // Only GPUs in use count.
  EXPECT_EQ(preset("a100-1x100", 4).placement({0, 1}).neighbours_sharing_nic, 4);
  EXPECT_EQ(preset("a100-4x200", 3).placement({2}).neighbours_sharing_nic, 1);
}

TEST(Topology, PlacesGroupsByTheServersOfTheirRanks) {
  const Topology topology = preset("dgx-a100", 64);
  const GroupPlacement tensor = topology.placement({8, 9, 10, 11});
  EXPECT_EQ(tensor.ranks, 4);
  EXPECT_EQ(tensor.nodes, 1);
  EXPECT_EQ(tensor.ranks_per_node, 4);
  const GroupPlacement data = topology.placement({0, 8, 16, 24, 32, 40, 48, 56});
  EXPECT_EQ(data.nodes, 8);
  EXPECT_EQ(data.ranks_per_node, 1);
  const GroupPlacement uneven = topology.placement({63, 0, 1, 2});
  EXPECT_EQ(uneven.nodes, 2);
  EXPECT_EQ(uneven.ranks_per_node, 3);
}

TEST(Topology, CopiesShareOneGraph) {
  const Topology topology = preset("dgx-a100", 64);
  const Topology copy = topology;  // NOLINT: the copy is the point
  EXPECT_EQ(&copy.vertices(), &topology.vertices());
  Topology other = preset("dgx-h100", 8);
  other = copy;
  EXPECT_EQ(other.name(), "dgx-a100");
}

TEST(Topology, BuildsItsGraphOnceForAllThreads) {
  const Topology topology = preset("dgx-h100", 256);
  std::vector<const std::vector<Vertex>*> seen(8);
  std::vector<std::vector<LinkId>> routes(8);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < seen.size(); ++i) {
    threads.emplace_back([&, i] {
      routes[i] = topology.route(1, 254);
      seen[i] = &topology.vertices();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::size_t i = 0; i < seen.size(); ++i) {
    EXPECT_EQ(seen[i], seen[0]);
    EXPECT_EQ(routes[i], routes[0]);
  }
}

TEST(Topology, WritesGraphvizText) {
  const Topology topology = topology_of(
      changed(kSmallCluster, {{"\"gpus\": 2", "\"gpus\": 1"}, {"\"count\": 2", "\"count\": 1"}}),
      1);
  EXPECT_EQ(topology.dot(),
            "digraph \"small\" {\n"
            "  rankdir=BT;\n"
            "  node [shape=box];\n"
            "  v0 [label=\"node0/gpu0\"];\n"
            "  v1 [label=\"node0/nic0\"];\n"
            "  v2 [label=\"node0/cpu0\"];\n"
            "  v3 [label=\"node0/pcie0\"];\n"
            "  v4 [label=\"node0/nvswitch\"];\n"
            "  v5 [label=\"unit0/leaf0\"];\n"
            "  v3 -> v2 [label=\"pcie 31 GB/s\"];\n"
            "  v2 -> v3 [label=\"pcie 31 GB/s\"];\n"
            "  v0 -> v3 [label=\"pcie 31 GB/s\"];\n"
            "  v3 -> v0 [label=\"pcie 31 GB/s\"];\n"
            "  v1 -> v3 [label=\"pcie 31 GB/s\"];\n"
            "  v3 -> v1 [label=\"pcie 31 GB/s\"];\n"
            "  v0 -> v4 [label=\"nvlink 300 GB/s\"];\n"
            "  v4 -> v0 [label=\"nvlink 300 GB/s\"];\n"
            "  v1 -> v5 [label=\"nic 25 GB/s\"];\n"
            "  v5 -> v1 [label=\"nic 25 GB/s\"];\n"
            "}\n");
}

// Over random clusters: placements equal those counted from the vertices, and every route is a way
// that goes from one GPU to the other, passes nothing twice, and is as long and as wide as the way
// back.
TEST(Topology, RoutesAndPlacementsHoldOnRandomClusters) {
  std::mt19937 random(20240601);
  const auto presets = topology_presets();
  for (int round = 0; round < 200; ++round) {
    const TopologyName& chosen = presets[random() % presets.size()];
    const int most = chosen.name == "host-cpu" ? 1 : 40;
    const int nodes = 1 + static_cast<int>(random() % static_cast<unsigned>(most));
    const int gpus =
        nodes > 1 ? nodes * chosen.gpus_per_node
                  : 1 + static_cast<int>(random() % static_cast<unsigned>(chosen.gpus_per_node));
    const Topology topology = preset(chosen.name, gpus);
    const auto any = [&] { return static_cast<int>(random() % static_cast<unsigned>(gpus)); };

    std::set<int> group;
    for (int i = 0; i < 6; ++i) group.insert(any());
    std::map<int, int> by_domain;
    for (const int rank : group) {
      ++by_domain[topology.vertices()[static_cast<std::size_t>(rank)].domain];
    }
    const GroupPlacement placement = topology.placement({group.begin(), group.end()});
    EXPECT_EQ(placement.nodes, static_cast<int>(by_domain.size())) << chosen.name << ' ' << gpus;
    int most_on_one = 0;
    for (const auto& [domain, ranks] : by_domain) most_on_one = std::max(most_on_one, ranks);
    EXPECT_EQ(placement.ranks_per_node, most_on_one) << chosen.name << ' ' << gpus;

    const int from = any(), to = any();
    const auto width_of = [&](const std::vector<LinkId>& route) {
      double width = 1e30;
      for (const LinkId id : route) {
        width = std::min(width,
                         topology.links()[static_cast<std::size_t>(id)].bandwidth.bytes_per_second);
      }
      return width;
    };
    const std::vector<LinkId> route = topology.route(from, to);
    EXPECT_EQ(route, topology.route(from, to));
    VertexId here = topology.gpu(from);
    std::set<VertexId> passed = {here};
    for (const LinkId id : route) {
      const TopologyLink& link = topology.links()[static_cast<std::size_t>(id)];
      EXPECT_EQ(link.from, here);
      here = link.to;
      EXPECT_TRUE(passed.insert(here).second) << chosen.name << ": " << way(topology, from, to);
    }
    EXPECT_EQ(here, topology.gpu(to)) << chosen.name << ' ' << from << ' ' << to;
    const std::vector<LinkId> back = topology.route(to, from);
    EXPECT_EQ(back.size(), route.size()) << chosen.name << ": " << way(topology, from, to);
    EXPECT_EQ(width_of(back), width_of(route)) << chosen.name << ": " << way(topology, from, to);
  }
}

}  // namespace
}  // namespace headway
