// AMD MI300X: no points at all; the H100's, carried over by ratios of data sheets and by the share
// of its peak that its libraries are known to reach.
#include "sim/cost/recipes/recipe.hpp"

namespace headway::recipes {

namespace {

// Large products reach about 620 of 1,307 TFLOP/s in bf16 and 990 of 2,610 in fp8 (public
// comparisons of hipBLASLt, end of 2024; from memory), where the H100's tiles reach 0.78 and 0.66
// of peak: so much longer than its shares of peak say.
constexpr double kHalfFactor = 0.78 * 1307 / 620;
constexpr double kFp8Factor = 0.66 * 2610 / 990;
constexpr double kFactorBand = 0.2;
// Memory-bound kernels: the geometric mean of "as the H100 in bytes per second" (1.69 of 5.3 TB/s)
// and "as the H100 in share" (0.505), as for the H200.
constexpr double kMemoryEfficiency = 0.40;
// Messages over one of seven links to the peer (64 of 448 GB/s); latencies as on the H100.
constexpr double kNearUs = 12, kNearShare = 64.0 / 448 * 0.8;
constexpr double kFarUs = 24, kFarShare = 0.8;
constexpr double kSendBand = 0.3;

}  // namespace

Profile mi300x(const PointSet& points) {
  Profile profile = h100(points);
  profile.name = "mi300x";
  profile.device = device_named(profile.name);
  for (GemmTable& table : profile.gemms) {
    const bool fp8 = table.types.front() == DataType::kFp8;
    table.points.clear();
    table.left_out = table.model_alone = {};
    table.sustained_factor = fp8 ? kFp8Factor : kHalfFactor;
    table.sustained_band = kFactorBand;
  }
  // Of its attention kernels FlashAttention-2's port is the one that frameworks call.
  std::erase_if(profile.attention, [](const AttentionRate& rate) {
    return rate.kernel != AttentionKernel::kFlash2 || !rate.implementation.empty();
  });
  for (AttentionRate& rate : profile.attention) {
    rate.points.clear();
    rate.left_out = {};
  }
  profile.collectives.clear();
  profile.memory.kernels.clear();
  profile.memory.efficiency = kMemoryEfficiency;
  profile.send = {Time::from_microseconds(kNearUs),
                  Time::from_microseconds(kFarUs),
                  kNearShare,
                  kFarShare,
                  kSendBand,
                  "one Infinity Fabric link of seven to each peer; latencies as on the H100"};
  mark_transferred(profile,
                   "no points of an MI300X: the H100's shares of peak, longer by what hipBLASLt "
                   "falls short of them; its attention rates; memory between the two devices");
  profile.collective_band = 0.4;
  return profile;
}

}  // namespace headway::recipes
