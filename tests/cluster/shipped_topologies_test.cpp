#include <gmock/gmock.h>

#include <map>

#include "sim/cluster/cluster_description.hpp"
#include "tests/cluster/clusters.hpp"

namespace headway {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::string> shipped() {
  std::vector<std::string> names;
  for (const TopologyName& preset : topology_presets()) names.push_back(preset.name);
  return names;
}

TEST(ShippedTopologies, AreThoseOfTheMeasuredRunsAndOthersThatUsersName) {
  EXPECT_THAT(shipped(), ElementsAre("a100-1x100", "a100-400g", "a100-4x200", "a100-roce-4x100",
                                     "a100-roce-8x200", "aws-p4d", "aws-p5", "azure-nd-a100-v4",
                                     "azure-nd-h100-v5", "dgx-1v", "dgx-a100", "dgx-b200",
                                     "dgx-b300", "dgx-h100", "dgx-h200", "eos", "gb200-nvl72",
                                     "gb300-nvl72", "gcp-a3-mega", "grand-teton-h100-96gb",
                                     "h100-800g", "h800", "hgx-a100-4", "host-cpu",
                                     "jean-zay-a100", "jean-zay-v100", "mi300x", "pcie-a100",
                                     "selene", "v100-1x100"));
}

TEST(ShippedTopologies, HaveNoProblems) {
  for (const std::string& name : shipped()) {
    std::string text;
    for (const Problem& problem : check_topology(name)) text += problem.text() + '\n';
    EXPECT_THAT(text, IsEmpty());
  }
}

TEST(ShippedTopologies, HaveTheNodesAndProfilesOfTheTable) {
  // The table of topologies in the README of the measured runs: GPUs a node, NICs a node, Gbit/s of
  // each, profiles with the default first.
  struct Row {
    int gpus, nics;
    double gigabits;
    std::vector<std::string> profiles;
  };
  const std::vector<std::string> a100 = {"a100-sxm-80gb", "a100-sxm-40gb"};
  const std::map<std::string, Row> table = {
      {"a100-4x200", {8, 4, 200, {"a100-sxm-80gb"}}},
      {"dgx-a100", {8, 8, 200, a100}},
      {"a100-roce-8x200", {8, 8, 200, a100}},
      {"a100-roce-4x100", {8, 4, 100, a100}},
      {"a100-1x100", {8, 1, 100, a100}},
      {"a100-400g", {8, 4, 100, a100}},
      {"jean-zay-a100", {8, 4, 100, {"a100-sxm-80gb"}}},
      {"v100-1x100", {8, 1, 100, {"v100-sxm2-16gb", "v100-sxm2-32gb"}}},
      {"jean-zay-v100", {4, 4, 100, {"v100-sxm2-32gb", "v100-sxm2-16gb"}}},
      {"dgx-h100", {8, 8, 400, {"h100-sxm"}}},
      {"dgx-h200", {8, 8, 400, {"h200"}}},
      {"h100-800g", {8, 4, 200, {"h100-sxm"}}},
      {"grand-teton-h100-96gb", {8, 8, 400, {"h100-96gb-500w"}}},
      {"h800", {8, 8, 400, {"h800"}}},
      {"mi300x", {8, 8, 400, {"mi300x"}}},
      {"dgx-b200", {8, 8, 400, {"b200"}}},
      {"dgx-b300", {8, 8, 800, {"b300"}}},
      {"gb200-nvl72", {4, 4, 400, {"gb200"}}},
      {"gb300-nvl72", {4, 4, 800, {"gb300"}}},
      {"host-cpu", {64, 0, 0, {"host-cpu"}}},
      {"aws-p4d", {8, 4, 100, {"a100-sxm-40gb", "a100-sxm-80gb"}}},
      {"aws-p5", {8, 8, 400, {"h100-sxm"}}},  // four NICs to a GPU
      {"azure-nd-a100-v4", {8, 8, 200, a100}},
      {"azure-nd-h100-v5", {8, 8, 400, {"h100-sxm"}}},
      {"dgx-1v", {8, 4, 100, {"v100-sxm2-32gb", "v100-sxm2-16gb"}}},
      {"eos", {8, 8, 400, {"h100-sxm"}}},
      {"gcp-a3-mega", {8, 8, 200, {"h100-sxm"}}},
      {"hgx-a100-4", {4, 4, 200, a100}},
      {"pcie-a100", {8, 2, 200, a100}},
      {"selene", {8, 8, 200, a100}},
  };
  for (const auto& [name, row] : table) {
    const Topology topology = preset(name, row.gpus);
    EXPECT_EQ(topology.gpus_per_node(), row.gpus) << name;
    EXPECT_EQ(topology.nics_per_node(), row.nics) << name;
    EXPECT_DOUBLE_EQ(topology.nic_bandwidth().bytes_per_second * 8, row.gigabits * 1e9) << name;
    EXPECT_EQ(topology.profiles(), row.profiles) << name;
    EXPECT_EQ(topology.default_profile(), row.profiles.front()) << name;
  }
}

TEST(ShippedTopologies, LinkGpusAsFastAsTheirDevices) {
  for (const std::string& name : shipped()) {
    if (name == "host-cpu") continue;
    const Topology topology = preset(name, 1);
    const Device* device = find_device(topology.default_profile());
    const bool nvlink = topology.description().server.gpu_fabric != "pcie";
    EXPECT_DOUBLE_EQ(topology.nvlink_bandwidth().bytes_per_second,
                     (nvlink ? device->nvlink : device->pcie).bytes_per_second)
        << name;
    EXPECT_DOUBLE_EQ(topology.description().server.pcie.bandwidth.bytes_per_second,
                     device->pcie.bytes_per_second)
        << name;
  }
}

TEST(ShippedTopologies, LoadAtOneNodeFourAndAllTheyHave) {
  for (const std::string& name : shipped()) {
    const int per_node = preset(name, 1).gpus_per_node();
    const int most = preset(name, 1).description().max_servers * per_node;
    EXPECT_EQ(preset(name, per_node).nodes(), 1) << name;
    EXPECT_EQ(preset(name, most).gpus(), most) << name;
    if (name != "host-cpu") {
      const Topology four = preset(name, 4 * per_node);
      EXPECT_EQ(four.nodes(), 4) << name;
      EXPECT_FALSE(four.route(0, 4 * per_node - 1).empty()) << name;
    }
    Problems problems;
    read_topology(name, most + per_node, {}, JsonNode::parse_text("null", "job.json"), problems);
    EXPECT_THAT(lines_of(problems), testing::StartsWith("job.json: too many GPUs: ")) << name;
  }
}

TEST(ShippedTopologies, HoldTheLargestPublishedJobs) {
  EXPECT_EQ(preset("grand-teton-h100-96gb", 16384).nodes(), 2048);
  EXPECT_EQ(preset("dgx-h100", 65536).nodes(), 8192);
  EXPECT_EQ(preset("h800", 2048).nodes(), 256);
}

TEST(ShippedTopologies, HaveTheSameBandwidthBothWays) {
  for (const std::string& name : shipped()) {
    const int per_node = preset(name, 1).gpus_per_node();
    const Topology topology = preset(name, name == "host-cpu" ? 8 : 3 * per_node);
    std::map<std::pair<int, int>, double> bandwidth;
    for (const TopologyLink& link : topology.links()) {
      bandwidth[{link.from, link.to}] += link.bandwidth.bytes_per_second;
    }
    for (const auto& [ends, sum] : bandwidth) {
      EXPECT_EQ(sum, (bandwidth.at({ends.second, ends.first}))) << name;
    }
  }
}

}  // namespace
}  // namespace headway
