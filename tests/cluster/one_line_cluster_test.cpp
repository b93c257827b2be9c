#include <gmock/gmock.h>

#include "sim/cluster/cluster_description.hpp"
#include "tests/cluster/clusters.hpp"

namespace headway {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

Topology cluster(const ClusterOptions& options) {
  Problems problems;
  auto topology = cluster_in_one_line(options, problems);
  problems.throw_if_any();
  return *std::move(topology);
}

std::string refusal(const ClusterOptions& options) {
  Problems problems;
  EXPECT_FALSE(cluster_in_one_line(options, problems).has_value());
  return lines_of(problems);
}

TEST(OneLineCluster, TakesServersAndNicsFromTheOptions) {
  const Topology topology =
      cluster({.gpu = "h100", .nodes = 64, .nic = "8x400 Gbit/s", .oversubscription = 2});
  EXPECT_EQ(topology.gpus(), 512);
  EXPECT_EQ(topology.default_profile(), "h100-sxm");
  EXPECT_EQ(topology.name(), "h100 8x400 Gbit/s");
  EXPECT_EQ(topology.nics_per_node(), 8);
  for (const TopologyLink& link : topology.links()) {
    if (link.kind != "leaf-spine") continue;
    EXPECT_DOUBLE_EQ(link.bandwidth.bytes_per_second, 32 * 50e9 / 2);
    EXPECT_EQ(link.count, 16);
  }
}

TEST(OneLineCluster, IsTheTopologyTheGpuIsKnownFromWhereNothingElseIsGiven) {
  const Topology topology = cluster({.gpu = "gb200", .gpus = 144});
  EXPECT_EQ(topology.gpus_per_domain(), 72);
  EXPECT_EQ(cluster({.gpu = "a100-sxm-40gb", .nodes = 1}).default_profile(), "a100-sxm-40gb");
  EXPECT_EQ(cluster({.gpu = "v100", .nodes = 2}).default_profile(), "v100-sxm2-32gb");
  EXPECT_EQ(cluster({.gpu = "h100-96gb-500w", .nodes = 2}).gpus(), 16);
}

TEST(OneLineCluster, JoinsSeveralNicsOfOneGpu) {
  const Topology topology = cluster({.gpu = "h200", .nodes = 2, .nic = "16x200 Gbit/s"});
  EXPECT_EQ(topology.nics_per_node(), 8);
  EXPECT_DOUBLE_EQ(topology.nic_bandwidth().bytes_per_second, 50e9);
}

TEST(OneLineCluster, NamesTheOptionAtFault) {
  EXPECT_THAT(refusal({.gpu = "h1000", .nodes = 1}),
              StartsWith("--cluster: \"h1000\" is no known GPU"));
  EXPECT_THAT(refusal({.gpu = "h100", .nodes = -1}), StartsWith("--nodes: -1 nodes; expected"));
  EXPECT_THAT(refusal({.gpu = "h100", .nodes = 100000}), StartsWith("--nodes: 100000 nodes"));
  EXPECT_THAT(refusal({.gpu = "h100"}), StartsWith("--cluster: 0 GPUs; expected at least 1"));
  EXPECT_THAT(refusal({.gpu = "h100", .gpus = 12}), HasSubstr("not whole nodes"));
  EXPECT_THAT(refusal({.gpu = "h100", .nodes = 2, .nic = "400"}), HasSubstr("--nic: \"400\""));
  EXPECT_THAT(refusal({.gpu = "h100", .nodes = 2, .nic = "0x400 Gbit/s"}), StartsWith("--nic: "));
  EXPECT_THAT(refusal({.gpu = "h100", .nodes = 2, .nic = "8x0 Gbit/s"}),
              StartsWith("--nic: a bandwidth of 0"));
  EXPECT_THAT(refusal({.gpu = "h100", .nodes = 2, .nic = "3x400 Gbit/s"}),
              HasSubstr("3 NICs cannot be divided among 8 GPUs"));
  EXPECT_THAT(refusal({.gpu = "h100", .nodes = 2, .oversubscription = 0}),
              StartsWith("--oversubscription: "));
  EXPECT_THAT(refusal({.gpu = "host-cpu", .gpus = 2, .nic = "1x100 Gbit/s"}),
              StartsWith("--nic: host-cpu has no network"));
}

TEST(OneLineCluster, ReportsEveryProblemAtOnce) {
  EXPECT_EQ(refusal({.gpu = "h100", .nodes = -1, .nic = "8x0 Gbit/s", .oversubscription = -2}),
            "--nic: a bandwidth of 0; expected more\n"
            "--oversubscription: expected a number above 0\n"
            "--nodes: -1 nodes; expected an integer from 1 up to 8192");
}

TEST(OneLineCluster, IsAskedForByAGpusNameThatIsNoPreset) {
  EXPECT_TRUE(names_one_line_cluster("h100"));
  EXPECT_TRUE(names_one_line_cluster("a100-sxm-40gb"));
  EXPECT_FALSE(names_one_line_cluster("dgx-h100"));
  EXPECT_FALSE(names_one_line_cluster("h800"));  // a topology has that name
}

}  // namespace
}  // namespace headway
