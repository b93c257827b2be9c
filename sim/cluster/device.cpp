#include "sim/cluster/device.hpp"

namespace headway {

namespace {

constexpr double kTera = 1e12;
constexpr double kMebi = 1048576;

FlopRate tera(double rate) { return {rate * kTera}; }
Bandwidth gigabytes(double rate) { return {rate * 1e9}; }
Bytes gib(double amount) { return {static_cast<std::int64_t>(amount * 1024 * kMebi)}; }
Bytes mib(double amount) { return {static_cast<std::int64_t>(amount * kMebi)}; }

// Dense peaks in TFLOP/s. Where a device has no rate for a type (0), the entry is left out: what it
// cannot compute fast is an error of whoever asks, not a slow number.
std::map<DataType, FlopRate> peaks(double half, double fp8, double fp4, double tf32, double fp32,
                                   double fp64, bool has_bf16 = true) {
  std::map<DataType, FlopRate> rates;
  const auto add = [&](DataType type, double rate) {
    if (rate > 0) rates[type] = tera(rate);
  };
  add(DataType::kFp16, half);
  add(DataType::kBf16, has_bf16 ? half : 0);
  add(DataType::kFp8, fp8);
  add(DataType::kFp4, fp4);
  add(DataType::kTf32, tf32);
  add(DataType::kFp32, fp32);
  add(DataType::kFp64, fp64);
  return rates;
}

// PCI Express, x16, one direction, as reported by transfers: facts 6 ("PCIe uni").
constexpr double kPcie4 = 31, kPcie5 = 63, kPcie6 = 121;
// 8 GT/s x 16 lanes x 128/130.
constexpr double kPcie3 = 15.75;

// Peaks, bandwidths, multiprocessors, L2 and watts: facts 6 and the vendors' data sheets (fp64 and
// tf32 from these alone). Memory is what the runtime reports as the device's total, which is what a
// framework can ask for: the figures of out-of-memory messages ("has a total capacity of").
std::vector<Device> make_devices() {
  std::vector<Device> list;

  Device v100;
  v100.name = "v100-sxm2-32gb";
  v100.title = "NVIDIA V100-SXM2-32GB";
  v100.source = "facts 6; NVIDIA V100 data sheet; memory as CUDA reports it (31.75 GiB)";
  // First generation of tensor cores: fp16 only.
  v100.dense_peak = peaks(125, 0, 0, 0, 15.7, 7.8, false);
  v100.memory = gib(31.75);
  v100.memory_bandwidth = gigabytes(900);
  v100.l2_cache = mib(6);
  v100.multiprocessors = 80;
  v100.compute_capability = 70;
  v100.nvlink = gigabytes(150);
  v100.pcie = gigabytes(kPcie3);
  v100.watts = 300;
  list.push_back(v100);
  v100.name = "v100-sxm2-16gb";
  v100.title = "NVIDIA V100-SXM2-16GB";
  v100.source = "facts 6; NVIDIA V100 data sheet; memory as CUDA reports it (15.78 GiB)";
  v100.memory = gib(15.78);
  list.push_back(v100);

  Device a100;
  a100.name = "a100-sxm-80gb";
  a100.title = "NVIDIA A100-SXM4-80GB";
  a100.source = "facts 6; NVIDIA A100 data sheet; memory as CUDA reports it (79.14 to 79.35 GiB)";
  a100.dense_peak = peaks(312, 0, 0, 156, 19.5, 19.5);
  a100.memory = gib(79.25);
  a100.memory_bandwidth = gigabytes(2039);
  a100.l2_cache = mib(40);
  a100.multiprocessors = 108;
  a100.compute_capability = 80;
  a100.nvlink = gigabytes(300);
  a100.pcie = gigabytes(kPcie4);
  a100.watts = 400;
  list.push_back(a100);
  a100.name = "a100-sxm-40gb";
  a100.title = "NVIDIA A100-SXM4-40GB";
  a100.source = "facts 6; NVIDIA A100 data sheet; memory as CUDA reports it (39.50 GiB)";
  a100.memory = gib(39.5);
  a100.memory_bandwidth = gigabytes(1555);
  list.push_back(a100);
  a100.name = "a100-pcie-80gb";
  a100.title = "NVIDIA A100-PCIE-80GB";
  a100.source = "facts 6; NVIDIA A100 data sheet; memory as CUDA reports it (79.14 to 79.35 GiB)";
  a100.memory = gib(79.25);
  a100.memory_bandwidth = gigabytes(1935);
  a100.nvlink = {};  // without the bridge that joins two cards
  a100.watts = 300;
  list.push_back(a100);

  Device h100;
  h100.name = "h100-sxm";
  h100.title = "NVIDIA H100-SXM5-80GB";
  h100.source = "facts 6; NVIDIA H100 data sheet; memory as CUDA reports it (79.18 GiB)";
  h100.dense_peak = peaks(989.4, 1979, 0, 494.7, 67, 67);
  h100.memory = gib(79.18);
  h100.memory_bandwidth = gigabytes(3350);
  h100.l2_cache = mib(50);
  h100.multiprocessors = 132;
  h100.compute_capability = 90;
  h100.nvlink = gigabytes(450);
  h100.pcie = gigabytes(kPcie5);
  h100.watts = 700;
  list.push_back(h100);
  Device h100_96 = h100;
  h100_96.name = "h100-96gb-500w";
  h100_96.title = "NVIDIA H100 96 GB HBM2e, 500 W limit";
  h100_96.source =
      "the H100's peaks (facts 6), which the 500 W limit rarely lets it reach; 96 GB of HBM2e at "
      "2.4 TB/s; memory assumed to lose as much as the 80 GB part does (1 %)";
  h100_96.memory = gib(95.0);
  h100_96.memory_bandwidth = gigabytes(2400);
  h100_96.watts = 500;
  list.push_back(h100_96);
  Device h800 = h100;
  h800.name = "h800";
  h800.title = "NVIDIA H800-SXM5-80GB";
  h800.source =
      "the H100's figures with NVLink cut to 400 GB/s both ways (facts 6); fp64 is cut to 1 "
      "TFLOP/s";
  h800.dense_peak = peaks(989.4, 1979, 0, 494.7, 67, 1);
  h800.nvlink = gigabytes(200);
  list.push_back(h800);
  Device h200 = h100;
  h200.name = "h200";
  h200.title = "NVIDIA H200-SXM-141GB";
  h200.source = "facts 6; NVIDIA H200 data sheet; memory as CUDA reports it (139.80 GiB)";
  h200.memory = gib(139.8);
  h200.memory_bandwidth = gigabytes(4800);
  list.push_back(h200);

  Device b200;
  b200.name = "b200";
  b200.title = "NVIDIA B200-SXM-180GB";
  b200.source =
      "facts 6 (148 multiprocessors second hand); NVIDIA HGX B200 data sheet; memory as CUDA "
      "reports it (178.35 GiB)";
  b200.dense_peak = peaks(2250, 4500, 9000, 1125, 80, 40);
  b200.memory = gib(178.35);
  b200.memory_bandwidth = gigabytes(8000);
  b200.l2_cache = mib(126);
  b200.multiprocessors = 148;
  b200.compute_capability = 100;
  b200.nvlink = gigabytes(900);
  b200.pcie = gigabytes(kPcie5);
  b200.watts = 1000;
  list.push_back(b200);
  Device b300 = b200;
  b300.name = "b300";
  b300.title = "NVIDIA B300-SXM-270GB";
  b300.source =
      "NVIDIA HGX B300 data sheet as tabled on glennklockwood.com/garden/processors/B300 (bf16 "
      "2250, "
      "fp8 4500, fp4 13125, fp64 1.25 TFLOP/s; PCIe 6); multiprocessors and L2 as the B200; memory "
      "as CUDA reports it (267.69 GiB)";
  b300.dense_peak = peaks(2250, 4500, 13125, 1125, 75, 1.25);
  b300.memory = gib(267.69);
  b300.compute_capability = 103;
  b300.pcie = gigabytes(kPcie6);
  b300.watts = 1100;
  list.push_back(b300);
  Device gb200 = b200;
  gb200.name = "gb200";
  gb200.title = "NVIDIA GB200 (one GPU)";
  gb200.source = "facts 6; NVIDIA GB200 NVL72 data sheet; memory as CUDA reports it (184.31 GiB)";
  gb200.dense_peak = peaks(2500, 5000, 10000, 1250, 80, 40);
  gb200.memory = gib(184.31);
  gb200.watts = 1200;
  list.push_back(gb200);
  Device gb300 = gb200;
  gb300.name = "gb300";
  gb300.title = "NVIDIA GB300 (one GPU)";
  gb300.source =
      "NVIDIA GB300 NVL72 data sheet (fp8 360 and fp4 1100 PFLOP/s per 72 GPUs, 1400 W); "
      "multiprocessors and L2 as the GB200; memory as CUDA reports it (276.50 GiB)";
  gb300.dense_peak = peaks(2500, 5000, 15000, 1250, 80, 1.3);
  gb300.memory = gib(276.5);
  gb300.compute_capability = 103;
  gb300.pcie = gigabytes(kPcie6);
  gb300.watts = 1400;
  list.push_back(gb300);

  Device mi300x;
  mi300x.name = "mi300x";
  mi300x.title = "AMD MI300X";
  mi300x.source =
      "facts 6 (compute units from memory); AMD MI300X data sheet; memory as HIP reports it "
      "(191.98 GiB); nvlink is Infinity Fabric, 7 links of 64 GB/s";
  mi300x.dense_peak = peaks(1307, 2610, 0, 653.7, 163.4, 163.4);
  mi300x.memory = gib(191.98);
  mi300x.memory_bandwidth = gigabytes(5300);
  mi300x.l2_cache = mib(256);  // the Infinity Cache
  mi300x.multiprocessors = 304;
  mi300x.nvlink = gigabytes(448);
  mi300x.pcie = gigabytes(kPcie5);
  mi300x.watts = 750;
  list.push_back(mi300x);

  Device host;
  host.name = "host-cpu";
  host.title = "one core of an x86-64 server";
  host.source =
      "AVX2 at about 2.45 GHz: 2 fused multiply-adds of 256 bits a cycle (78 GFLOP/s fp32, 39 "
      "fp64; "
      "16-bit types are computed in fp32); a core's share of a server's memory. An estimate: its "
      "profile says what was measured";
  host.dense_peak = peaks(0.078, 0, 0, 0.078, 0.078, 0.039);
  host.memory = gib(4);
  host.memory_bandwidth = gigabytes(10);
  host.l2_cache = mib(0.5);
  host.multiprocessors = 1;
  host.watts = 5;
  list.push_back(host);
  return list;
}

}  // namespace

const std::vector<Device>& devices() {
  static const std::vector<Device> list = make_devices();
  return list;
}

const Device* find_device(std::string_view name) {
  for (const Device& device : devices()) {
    if (device.name == name) return &device;
  }
  return nullptr;
}

}  // namespace headway
