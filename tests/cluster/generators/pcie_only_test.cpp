#include <gmock/gmock.h>

#include "tests/cluster/clusters.hpp"

namespace headway {
namespace {

const std::vector<Change> kPcieServer = {
    {"\"generator\": \"nvswitch\", \"bandwidth\": \"300 GB/s\", \"latency\": \"0.3 us\", "
     "\"links\": 12",
     "\"generator\": \"pcie\""},
    {"\"gpus\": 2", "\"gpus\": 4"},
    {"\"switches\": 1", "\"switches\": 2"},
    {"\"vendor\": \"amd\"",
     "\"vendor\": \"amd\", \"sockets\": 2, \"bandwidth\": \"16 GB/s\", \"latency\": \"0.3 us\""}};

TEST(PcieOnly, CarriesEverythingOverSwitchesAndCpus) {
  const Topology topology = topology_of(changed(kSmallCluster, kPcieServer), 4);
  EXPECT_EQ(count(topology, "nvlink"), 0);
  EXPECT_EQ(way(topology, 0, 1), "node0/gpu0 node0/pcie0 node0/gpu1");
  EXPECT_EQ(way(topology, 0, 3),
            "node0/gpu0 node0/pcie0 node0/cpu0 node0/cpu1 node0/pcie1 node0/gpu3");
  EXPECT_DOUBLE_EQ(topology.nvlink_bandwidth().bytes_per_second, 31e9);
  EXPECT_EQ(topology.gpus_per_domain(), 4);
}

TEST(PcieOnly, TakesNoFigureOfNvlink) {
  EXPECT_EQ(problems_of(changed(kSmallCluster, {{"\"nvswitch\"", "\"pcie\""}})),
            "t.json: /node/gpu_fabric/bandwidth: unknown key \"bandwidth\"; known are generator or "
            "source\n"
            "t.json: /node/gpu_fabric/latency: unknown key \"latency\"; known are generator or "
            "source\n"
            "t.json: /node/gpu_fabric/links: unknown key \"links\"; known are generator or source");
}

}  // namespace
}  // namespace headway
