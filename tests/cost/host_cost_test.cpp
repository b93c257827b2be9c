#include "sim/cost/host_cost.hpp"

#include <gtest/gtest.h>

#include "sim/core/error.hpp"
#include "sim/core/json_reader.hpp"

namespace headway {
namespace {

Topology topology(const std::string& name, int gpus) {
  Problems problems;
  const JsonNode place = JsonNode::parse_text("{}", "test");
  const auto read = read_topology(name, gpus, {}, place, problems);
  problems.throw_if_any();
  return *read;
}

Kernel kernel(KernelKind kind, std::int64_t elements, DataType type) {
  Kernel made;
  made.kind = kind;
  made.rows = elements;
  made.columns = 1;
  made.type = made.output = type;
  return made;
}

TEST(HostCost, OfACopyIsItsBytesOverTheShareOfTheLink) {
  // DGX A100: 8 GPUs below 4 PCIe switches, so two share the 31 GB/s to the host.
  const HostCost cost(topology("dgx-a100", 8));
  const Price down = cost.price(kernel(KernelKind::kToHost, 1'000'000'000, DataType::kBf16));
  EXPECT_NEAR(down.time.seconds(), 2e9 / 15.5e9, 1e-6);
  EXPECT_EQ(down.grade, Grade::kExtrapolated);
  // A single GPU has the link to itself.
  const HostCost alone(topology("dgx-a100", 1));
  EXPECT_NEAR(
      alone.price(kernel(KernelKind::kToDevice, 1'000'000'000, DataType::kBf16)).time.seconds(),
      2e9 / 31e9, 1e-6);
}

TEST(HostCost, OfACopyToGraceIsBoundByItsMemory) {
  // GB200: C2C carries 450 GB/s, a GPU's half of the two Graces' memory 256 GB/s.
  const HostCost cost(topology("gb200-nvl72", 72));
  EXPECT_NEAR(
      cost.price(kernel(KernelKind::kToHost, 1'000'000'000, DataType::kBf16)).time.seconds(),
      2e9 / 256e9, 1e-5);
}

TEST(HostCost, OfAdamIsWhatZeroOffloadMeasured) {
  // arXiv 2101.06840, table 4 (from memory): 10 billion parameters in 2.57 s on two Xeon 8168,
  // whose memory moves 256 GB/s; here Jean Zay's two Xeon 6248 with 281.6 GB/s and one GPU in use.
  const HostCost cost(topology("jean-zay-v100", 1));
  Kernel adam = kernel(KernelKind::kAdam, 10'000'000'000, DataType::kFp32);
  adam.on_host = true;
  EXPECT_TRUE(HostCost::prices(adam));
  EXPECT_NEAR(cost.price(adam).time.seconds(), 2.57 * 256 / 281.6, 0.03);
}

TEST(HostCost, IsOfWhatTouchesTheHostAlone) {
  EXPECT_FALSE(HostCost::prices(kernel(KernelKind::kAdam, 1, DataType::kFp32)));
  EXPECT_FALSE(HostCost::prices(Gemm{}));
}

}  // namespace
}  // namespace headway
