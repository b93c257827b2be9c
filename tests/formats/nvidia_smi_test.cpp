#include "sim/formats/nvidia_smi.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/core/error.hpp"

namespace headway {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string problem_of(const std::string& text) {
  try {
    import_nvidia_smi(text, "topo.txt");
  } catch (const InvalidInput& error) {
    return error.what();
  }
  return "";
}

// A compute tray of a GB200 NVL72 (github.com/NVIDIA/k8s-test-infra, issue 371).
constexpr const char* kGb200 =
    R"(        GPU0    GPU1    GPU2    GPU3    CPU Affinity    NUMA Affinity   GPU NUMA ID
GPU0     X      NV18    NV18    NV18    0-71    0               N/A
GPU1    NV18     X      NV18    NV18    0-71    0               N/A
GPU2    NV18    NV18     X      NV18    72-143  1               N/A
GPU3    NV18    NV18    NV18     X      72-143  1               N/A

Legend:

  X    = Self
)";

// A DGX H100 (kubernetes.recipes, "DGX H100 nvidia-smi topo -m Guide").
constexpr const char* kDgxH100 =
    R"(        GPU0  GPU1  GPU2  GPU3  GPU4  GPU5  GPU6  GPU7  CPU Affinity  NUMA
GPU0     X    NV18  NV18  NV18  NV18  NV18  NV18  NV18  0-51         0
GPU1    NV18   X    NV18  NV18  NV18  NV18  NV18  NV18  0-51         0
GPU2    NV18  NV18   X    NV18  NV18  NV18  NV18  NV18  0-51         0
GPU3    NV18  NV18  NV18   X    NV18  NV18  NV18  NV18  0-51         0
GPU4    NV18  NV18  NV18  NV18   X    NV18  NV18  NV18  52-103       1
GPU5    NV18  NV18  NV18  NV18  NV18   X    NV18  NV18  52-103       1
GPU6    NV18  NV18  NV18  NV18  NV18  NV18   X    NV18  52-103       1
GPU7    NV18  NV18  NV18  NV18  NV18  NV18  NV18   X    52-103       1
)";

// One GPU and five NICs (github.com/NVIDIA/nccl, issue 1657).
constexpr const char* kOneGpu =
    R"(GPU0    NIC0    NIC1    NIC2    NIC3    NIC4    CPU Affinity    NUMA Affinity   GPU NUMA ID
GPU0     X      NODE    NODE    PXB     PXB     SYS     0-31,64-95      0               N/A
NIC0    NODE     X      PIX     NODE    NODE    SYS
NIC1    NODE    PIX      X      NODE    NODE    SYS
NIC2    PXB     NODE    NODE     X      PIX     SYS
NIC3    PXB     NODE    NODE    PIX      X      SYS
NIC4    SYS     SYS     SYS     SYS     SYS      X
)";

// Two RTX 5090 (github.com/noonghunna/club-3090, issue 1229), with the terminal's underlining.
constexpr const char* kTwo5090 =
    "\t\x1b[4mGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
    "GPU0\t X \tPHB\t0-63\t0\t\tN/A\n"
    "GPU1\tPHB\t X \t0-63\t0\t\tN/A\n";

TEST(NvidiaSmi, ReadsSwitchedNvlinkOfATray) {
  NodeDraft draft = import_nvidia_smi(kGb200, "topo.txt");
  EXPECT_EQ(draft.gpus, 4);
  EXPECT_EQ(draft.fabric, "nvswitch");  // 3 x 18 links are more than a GPU has
  EXPECT_EQ(draft.links, 18);
  EXPECT_EQ(draft.sockets, 2);
  EXPECT_EQ(draft.nics, 0);
  EXPECT_THAT(draft.missing(),
              ElementsAre("profiles", "node.gpu_fabric.bandwidth", "node.pcie.switches",
                          "node.pcie.bandwidth", "node.cpu.vendor"));
  set_profile(draft, "gb200");
  EXPECT_DOUBLE_EQ(draft.link_bandwidth->bytes_per_second, 900e9);
}

TEST(NvidiaSmi, ReadsADgx) {
  NodeDraft draft = import_nvidia_smi(kDgxH100, "topo.txt");
  EXPECT_EQ(draft.gpus, 8);
  EXPECT_EQ(draft.fabric, "nvswitch");
  set_profile(draft, "h100-sxm");
  EXPECT_DOUBLE_EQ(draft.link_bandwidth->bytes_per_second, 450e9);
}

TEST(NvidiaSmi, TakesTheNicsBehindAGpusSwitches) {
  const NodeDraft draft = import_nvidia_smi(kOneGpu, "topo.txt");
  EXPECT_EQ(draft.gpus, 1);
  EXPECT_EQ(draft.nics, 2);
  EXPECT_EQ(draft.pcie_switches, 1);
  EXPECT_THAT(draft.left_out,
              ElementsAre("NIC0, which no GPU is near", "NIC1, which no GPU is near",
                          "NIC4, which no GPU is near"));
}

TEST(NvidiaSmi, ReadsGpusWithoutNvlinkAndATerminalsUnderlining) {
  const NodeDraft draft = import_nvidia_smi(kTwo5090, "topo.txt");
  EXPECT_EQ(draft.gpus, 2);
  EXPECT_EQ(draft.fabric, "pcie");
  EXPECT_EQ(draft.pcie_switches, 0);  // through the host bridge
  EXPECT_EQ(draft.sockets, 1);
}

// Of four A100s with four links between any two, each has twelve: they are joined directly.
TEST(NvidiaSmi, TellsDirectLinksFromSwitches) {
  std::string text = "\tGPU0\tGPU1\tGPU2\tGPU3\n";
  for (int a = 0; a < 4; ++a) {
    text += "GPU" + std::to_string(a);
    for (int b = 0; b < 4; ++b) text += a == b ? "\tX" : "\tNV4";
    text += '\n';
  }
  const NodeDraft draft = import_nvidia_smi(text, "topo.txt");
  EXPECT_EQ(draft.fabric, "all-to-all");
  EXPECT_EQ(draft.links, 12);
}

TEST(NvidiaSmi, NamesWhatIsWrong) {
  EXPECT_EQ(problem_of("no GPUs here\n"),
            "topo.txt: no matrix of GPUs; expected what `nvidia-smi topo -m` prints");
  EXPECT_EQ(problem_of("GPU0 GPU1\nGPU0 X NV4\n"), "topo.txt: line 2: ends before the row of GPU1");
  EXPECT_EQ(problem_of("GPU0 GPU1\nGPU0 X NV4\nGPU1 NV4\n"),
            "topo.txt: line 3: the row of GPU1 has 1 entries; expected 2");
  EXPECT_EQ(problem_of("GPU0 GPU1\nGPU1 X NV4\n"),
            "topo.txt: line 2: the row of GPU1; expected GPU0");
  EXPECT_THAT(problem_of("GPU0 GPU1\nGPU0 X QPI\nGPU1 QPI X\n"),
              HasSubstr("topo.txt: line 2: \"QPI\" between GPU0 and GPU1; expected NV#"));
  EXPECT_THAT(problem_of("GPU0 GPU1\nGPU0 NV4 X\nGPU1 X NV4\n"), HasSubstr("X on the diagonal"));
  EXPECT_THAT(problem_of("GPU0 GPU1 GPU2\nGPU0 X NV4 SYS\nGPU1 NV4 X SYS\nGPU2 SYS SYS X\n"),
              HasSubstr("as no generator joins them"));
}

}  // namespace
}  // namespace headway
