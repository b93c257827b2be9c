// One core of the kind of machine that the CPU executor runs on: OpenBLAS multiplications and loops
// over arrays, measured alone on an otherwise idle core.
#include "sim/cost/recipes/recipe.hpp"

namespace headway::recipes {

namespace {

constexpr const char* kGpu = "host-cpu";
constexpr const char* kReference = "headway-host-2026-12";

// Loops over arrays beyond the caches: y += x moves 14.6 GB/s with both cores' traffic on the
// machine (33 GB/s in cache, 18 GB/s as a copy), of the 10 GB/s that a core's share is on paper.
constexpr double kMemoryEfficiency = 1.0;
constexpr double kMemoryBand = 0.5;
constexpr double kKernelUs = 0.3;
// Handing a buffer from one thread to another: a wake-up, and a copy.
constexpr double kWakeUs = 10;
constexpr double kCopyShare = 0.8;
constexpr double kSendBand = 0.5;

GemmTable table_of(const PointSet& points, const Device& device, DataType type,
                   std::vector<DataType> types) {
  GemmTable start = start_table(std::move(types));
  // A core has no tiles to fill, only vector registers: small blocks stand for them.
  start.model.tiles = {{64, 64, 0.9}, {16, 16, 0.8}, {64, 16, 0.8}};
  start.model.per_kernel = Time::from_microseconds(0.5);
  start.model.per_wave = Time::from_microseconds(0.1);
  start.source = "OpenBLAS on one core, calibration/points/gemm-host-cpu.csv";
  const auto samples = gemm_samples(points, kGpu, {kReference}, {std::string(name(type))});
  return fit_gemm_table(samples, gemm_device(device, type), start, kReference);
}

}  // namespace

Profile host_cpu(const PointSet& points) {
  Profile profile;
  profile.name = "host-cpu";
  profile.device = device_named(profile.name);
  profile.sources = "measured on one core of an AMD EPYC server (calibration/points/README.md)";
  profile.note = "memory-bound kernels and messages are estimates from array loops";
  // Narrower types are computed in fp32 and rounded.
  profile.gemms.push_back(table_of(
      points, profile.device, DataType::kFp32,
      {DataType::kFp32, DataType::kBf16, DataType::kFp16, DataType::kFp8, DataType::kFp4}));
  profile.gemms.push_back(table_of(points, profile.device, DataType::kFp64, {DataType::kFp64}));
  profile.memory = {kMemoryEfficiency,
                    Time::from_microseconds(kKernelUs),
                    kMemoryBand,
                    Grade::kExtrapolated,
                    {},
                    {},
                    "array loops on one core: 14.6 GB/s beyond the caches, 33 GB/s inside"};
  profile.collective_band = 0.5;
  profile.send = {Time::from_microseconds(kWakeUs),
                  Time::from_microseconds(kWakeUs),
                  kCopyShare,
                  kCopyShare,
                  kSendBand,
                  "an estimate: a thread's wake-up and a copy"};
  return profile;
}

}  // namespace headway::recipes
