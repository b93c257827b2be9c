#include "sim/formats/nccl_topology.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/cluster/topology_reader.hpp"
#include "sim/core/error.hpp"
#include "sim/core/file.hpp"
#include "tests/support/folders.hpp"

namespace headway {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

NodeDraft imported(const std::string& name) {
  const std::string file = source_dir() + "/tests/formats/topologies/" + name;
  return import_nccl_topology(read_file(file), name);
}

std::string problem_of(const std::string& text) {
  try {
    import_nccl_topology(text, "t.xml");
  } catch (const InvalidInput& error) {
    return error.what();
  }
  return "";
}

// One GPU of compute capability 80 under a bridge, with so many NVLinks to switches.
std::string gpu(const std::string& bus, const std::string& links) {
  return R"(<pci busid=")" + bus +
         R"(" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16">
      <gpu dev="0" sm="80"><nvlink target="c4" count=")" +
         links + R"(" tclass="0x068000"/></gpu></pci>)";
}
std::string system_of(const std::string& content) {
  return R"(<system version="1"><cpu numaid="0" arch="x86_64" vendor="AuthenticAMD">)" + content +
         "</cpu></system>";
}

TEST(NcclTopology, ReadsAServerOfAPublicCloud) {
  const NodeDraft draft = imported("ibm-h100.xml");
  EXPECT_EQ(draft.gpus, 8);
  EXPECT_EQ(draft.profile, "h100-sxm");
  EXPECT_EQ(draft.fabric, "nvswitch");
  EXPECT_EQ(draft.links, 18);
  EXPECT_DOUBLE_EQ(draft.link_bandwidth->bytes_per_second, 450e9);
  EXPECT_EQ(draft.pcie_switches, 8);
  EXPECT_DOUBLE_EQ(draft.pcie->bytes_per_second, 63e9);  // its widths are 0: the device's
  EXPECT_EQ(draft.cpu_vendor, "intel");
  EXPECT_EQ(draft.sockets, 2);
  EXPECT_DOUBLE_EQ(draft.socket->bytes_per_second, 22e9);  // Sapphire Rapids
  EXPECT_EQ(draft.nics, 8);
  EXPECT_DOUBLE_EQ(draft.nic->bytes_per_second, 25e9);
  EXPECT_THAT(draft.missing(), IsEmpty());
  EXPECT_THAT(draft.left_out, IsEmpty());
}

TEST(NcclTopology, WhatItWritesIsATopologyFile) {
  Problems problems;
  const ClusterDescription cluster = read_cluster_description(
      JsonNode::parse_text(imported("ibm-h100.xml").json(), "topology"), problems);
  problems.throw_if_any();
  EXPECT_EQ(cluster.server.gpus, 8);
  EXPECT_EQ(cluster.server.nics, 8);
  EXPECT_EQ(cluster.server.pcie_switches, 8);
  EXPECT_DOUBLE_EQ(cluster.server.nic.bandwidth.bytes_per_second, 25e9);
}

TEST(NcclTopology, OfAVirtualMachineLeavesOutWhatItDoesNotState) {
  NodeDraft draft = imported("azure-ndv5.xml");
  EXPECT_EQ(draft.gpus, 8);
  EXPECT_EQ(draft.nics, 8);
  EXPECT_EQ(draft.pcie_switches, 8);
  EXPECT_NEAR(draft.pcie->bytes_per_second, 63e9, 0.1e9);  // 32 GT/s x 16 x 128/130
  EXPECT_THAT(draft.missing(), ElementsAre("profiles", "node.nics.bandwidth"));
  set_profile(draft, "h100-sxm");
  EXPECT_THAT(draft.missing(), ElementsAre("node.nics.bandwidth"));
}

TEST(NcclTopology, RefusesPairsOfGpusThatNoGeneratorMakes) {
  try {
    imported("azure-ncv4.xml");
    FAIL();
  } catch (const InvalidInput& error) {
    EXPECT_THAT(error.what(), HasSubstr("azure-ncv4.xml: its GPUs are joined by NVLink as no "
                                        "generator joins them"));
  }
}

TEST(NcclTopology, LeavesOutNicsThatNoGpuIsNearAndSlowerOnes) {
  const std::string nic = R"(<pci busid="n" class="0x020700"><nic><net name=")";
  const NodeDraft draft = import_nccl_topology(
      system_of("<pci busid=\"a\" class=\"0x060400\">" + gpu("g0", "12") + nic +
                R"(mlx5_0" speed="200000"/><net name="mlx5_1" speed="100000"/></nic></pci></pci>)" +
                nic + R"(mlx5_9" speed="200000"/></nic></pci>)"),
      "t.xml");
  EXPECT_EQ(draft.nics, 1);
  EXPECT_THAT(draft.left_out,
              ElementsAre("mlx5_1, slower than the others", "mlx5_9, which no GPU is near"));
  EXPECT_EQ(draft.cpu_vendor, "amd");
  EXPECT_EQ(draft.sockets, 1);
}

TEST(NcclTopology, NamesWhatIsWrong) {
  EXPECT_EQ(problem_of("<topology/>"),
            "t.xml: line 1: <topology>; expected <system>, as NCCL_TOPO_DUMP_FILE writes it");
  EXPECT_EQ(problem_of(system_of("")), "t.xml: has no GPUs");
  EXPECT_THAT(problem_of("<system>\n<cpu numaid=\"0\">\n</system>"),
              HasSubstr("t.xml: line 3: </system> ends <cpu>"));
  EXPECT_THAT(problem_of("<system><cpu numaid=0/></system>"),
              HasSubstr("the value of numaid is not in quotes"));
  EXPECT_THAT(problem_of("no markup"), HasSubstr("no element"));
  EXPECT_THAT(problem_of(system_of(gpu("a", "12") + gpu("b", "6"))),
              HasSubstr("as no generator joins them"));
  EXPECT_THAT(problem_of(R"(<system><cpu host_hash="1"/><cpu host_hash="2"/></system>)"),
              HasSubstr("holds 2 hosts (host_hash); expected one server"));
  EXPECT_THAT(problem_of(system_of(
                  gpu("a", "12") + gpu("b", "12") + gpu("c", "12") +
                  R"(<nic><net name="x" speed="1000"/><net name="y" speed="1000"/></nic>)")),
              HasSubstr("2 NICs cannot be divided among 3 GPUs"));
}

}  // namespace
}  // namespace headway
