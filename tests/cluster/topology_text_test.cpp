#include "sim/cluster/topology_text.hpp"

#include <gmock/gmock.h>

#include "tests/cluster/clusters.hpp"

namespace headway {
namespace {

TEST(TopologyText, SummarisesSizesLinksAndSources) {
  EXPECT_EQ(summary(preset("a100-4x200", 512)),
            "a100-4x200: 8 x A100 SXM, NVSwitch; 4 x 200 Gb/s InfiniBand\n"
            "  GPUs      512 in 64 nodes of 8, NVLink domains of 8\n"
            "  inside    NVLink through NVSwitches, 300 GB/s each way from a GPU\n"
            "  outside   4 NICs a node, 25 GB/s (200 Gbit/s) each\n"
            "  network   rail-optimised leaf-spine, a leaf for each rail, 20 nodes a leaf, 1:1\n"
            "  graph     1233 vertices (512 gpu, 64 nvswitch, 256 pcie-switch, 128 cpu, 256 nic, "
            "16 leaf, "
            "1 spine), 3744 directed links\n"
            "            nvlink      1024 x    300 GB/s    300 ns    12 parallel\n"
            "            pcie        2048 x    31 GB/s     150 ns    \n"
            "            socket      128 x     16 GB/s     300 ns    \n"
            "            nic         512 x     25 GB/s     1.05 us   \n"
            "            leaf-spine  32 x      500 GB/s    250 ns    20 parallel\n"
            "  power     6500 W a node\n"
            "  price     1.90 $/h a GPU\n"
            "  profiles  a100-sxm-80gb\n"
            "  source    the cluster of vTrain (MICRO 2024): 8 A100 and 4 HDR InfiniBand HCAs a "
            "node, up to "
            "64 nodes\n");
}

TEST(TopologyText, ListsARouteLinkByLink) {
  EXPECT_EQ(route_text(preset("a100-4x200", 512), 3, 163),
            "GPU 3 (node0/gpu3) to GPU 163 (node20/gpu3)\n"
            "  node0/gpu3 -> node0/pcie1    pcie        31 GB/s     150 ns\n"
            "  node0/pcie1 -> node0/nic1    pcie        31 GB/s     150 ns\n"
            "  node0/nic1 -> unit0/leaf1    nic         25 GB/s     1.05 us\n"
            "  unit0/leaf1 -> spines0       leaf-spine  500 GB/s    250 ns\n"
            "  spines0 -> unit1/leaf1       leaf-spine  500 GB/s    250 ns\n"
            "  unit1/leaf1 -> node20/nic1   nic         25 GB/s     1.05 us\n"
            "  node20/nic1 -> node20/pcie1  pcie        31 GB/s     150 ns\n"
            "  node20/pcie1 -> node20/gpu3  pcie        31 GB/s     150 ns\n"
            "  latency 3.2 us, narrowest link 25 GB/s (nic)\n");
}

TEST(TopologyText, OfARouteToItselfSaysThatThereIsNothingToCross) {
  EXPECT_EQ(route_text(preset("host-cpu", 2), 1, 1),
            "GPU 1 (node0/gpu1) to GPU 1 (node0/gpu1)\n  nothing to cross\n");
}

}  // namespace
}  // namespace headway
