#include <gmock/gmock.h>

#include "tests/cluster/clusters.hpp"

namespace headway {
namespace {

TEST(SharedMemory, JoinsCoresThroughTheMemoryOfTheirServer) {
  const Topology topology = preset("host-cpu", 8);
  EXPECT_EQ(topology.nodes(), 1);
  EXPECT_EQ(topology.vertices().size(), 9U);
  EXPECT_EQ(topology.links().size(), 16U);
  EXPECT_EQ(way(topology, 0, 7), "node0/gpu0 node0/memory node0/gpu7");
  EXPECT_EQ(topology.nics_per_node(), 0);
  EXPECT_EQ(topology.nic_of(0), std::nullopt);
  EXPECT_GT(topology.nvlink_bandwidth().bytes_per_second, 0);
  EXPECT_EQ(topology.placement({0, 1, 2}).neighbours_sharing_nic, 1);
}

}  // namespace
}  // namespace headway
