// B200, the one device with sustained forward and gradient GEMMs of its own, and its sisters.
#include "sim/cost/recipes/recipe.hpp"

namespace headway::recipes {

namespace {

constexpr const char* kB200 = "B200-SXM";
constexpr const char* kReference = "aic-trtllm1.3.0rc20";

// fp8 GEMMs under training's load: 1.1 to 1.25 over three published B200 steps.
constexpr double kSustainedFp8 = 1.2;
constexpr double kSustainedBand = 0.05;
// Where a sister has no sustained points: the B200's 1.38, which its own points tell.
constexpr double kSustained = 1.38;
constexpr double kInputGradient = 1.0;
constexpr double kWeightGradient = 1.03;
constexpr double kMisaligned = 2.0;
// Quantise kernels move 4.2 to 6.4 TB/s (fp8_quantise in elementwise.csv).
constexpr double kQuantise = 4.5e12;
// Memory-bound kernels: 0.5 to 0.7 of 8 TB/s over published steps.
constexpr double kMemoryEfficiency = 0.6;
constexpr double kMemoryBand = 0.25;
constexpr double kKernelUs = 2;
constexpr double kCudnnBackwardStart = 930.0 / 1150.0;
// Messages: 9.5 us and 663 of 900 GB/s inside, 15 us and 19.6 GB/s a direction of a two-node ring
// of 16 (vultr-b200-poc in p2p.csv), whose fabric was slower than 400 Gbit/s.
constexpr double kNearUs = 9.5, kNearShare = 0.74;
constexpr double kFarUs = 15, kFarShare = 0.8;
constexpr double kSendBand = 0.2;

GemmTable half_start(const std::string& source) {
  GemmTable start = start_table({DataType::kBf16, DataType::kFp16});
  start.sustained_factor = kSustained;
  start.sustained_band = kSustainedBand;
  start.input_gradient_factor = kInputGradient;
  start.weight_gradient_factor = kWeightGradient;
  start.misaligned_factor = kMisaligned;
  start.source = source;
  return start;
}

void add_fp8(const PointSet& points, const GemmTable& half, Profile& profile) {
  const auto samples =
      without_quantisation(gemm_samples(points, kB200, {"aic-trtllm"}, {"fp8_dyn"}), kQuantise);
  GemmTable start = half;
  start.types = {DataType::kFp8};
  start.points.clear();
  start.sustained_factor = kSustainedFp8;
  start.source =
      "B200, aic-trtllm fp8_dyn less its quantise kernel, in calibration/points/gemm.csv";
  profile.gemms.push_back(
      fit_gemm_table(samples, gemm_device(profile.device, DataType::kFp8), start, kReference));
}

void add_attention(const PointSet& points, Profile& profile) {
  const int processors = profile.device.multiprocessors;
  AttentionFit cudnn = fit_attention(attention_samples(points, kB200, "te/flash", false),
                                     AttentionKernel::kCudnn, processors, kCudnnBackwardStart);
  cudnn.forward.source = cudnn.backward.source =
      "simumax-b200 (Transformer Engine's kernel) in calibration/points/attention.csv";
  profile.attention.push_back(cudnn.forward);
  profile.attention.push_back(cudnn.backward);
  AttentionFit flash2 = fit_attention(attention_samples(points, kB200, "FA2", false),
                                      AttentionKernel::kFlash2, processors, 0.8);
  flash2.forward.source = flash2.backward.source =
      "fa-issue1589 (FA2, not causal) in calibration/points/attention.csv";
  profile.attention.push_back(flash2.forward);
  profile.attention.push_back(flash2.backward);
}

// The table of a sister with few points of its own: the B200's search continued on them.
GemmTable sister_table(const PointSet& points, const std::string& gpu, const Profile& sister,
                       const GemmTable& b200) {
  GemmTable start = b200;
  start.points.clear();
  start.source = gpu +
                 ", aic-trtllm in calibration/points/gemm.csv; under load and gradients by "
                 "the B200's factors";
  return fit_gemm_table(gemm_samples(points, gpu, {"aic-trtllm"}, {"bf16"}),
                        gemm_device(sister.device, DataType::kBf16), start, kReference);
}

Profile sister_of(const Profile& from, const PointSet& points, const std::string& name,
                  const std::string& gpu) {
  Profile profile = from;
  profile.name = name;
  profile.device = device_named(name);
  mark_transferred(profile, "the B200's points, all but bf16 forward multiplications");
  profile.gemms.front() = sister_table(points, gpu, profile, from.gemms.front());
  return profile;
}

}  // namespace

Profile b200(const PointSet& points) {
  Profile profile;
  profile.name = "b200";
  profile.device = device_named(profile.name);
  profile.sources = "aiconfigurator, SimuMax, FlashAttention issues (calibration/points/README.md)";
  const auto samples =
      gemm_samples(points, kB200, {"aic-trtllm", "simumax-b200"}, {"bf16", "fp16"});
  profile.gemms.push_back(
      fit_gemm_table(samples, gemm_device(profile.device, DataType::kBf16),
                     half_start("B200, burst aic-trtllm, sustained with gradients simumax-b200, in "
                                "calibration/points/gemm.csv"),
                     kReference));
  const GemmTable half = profile.gemms.front();
  add_fp8(points, half, profile);
  add_transferred_types(profile, GemmTable(profile.gemms.back()), {DataType::kFp4});
  add_transferred_types(profile, half, {DataType::kTf32, DataType::kFp32});
  add_attention(points, profile);
  add_checked_attention(points, kB200, "trtllm-ctx-fmha", profile);
  profile.memory = {kMemoryEfficiency,
                    Time::from_microseconds(kKernelUs),
                    kMemoryBand,
                    Grade::kExtrapolated,
                    {},
                    fit_kernels(points.elementwise, kB200),
                    "three published B200 steps: 0.5 to 0.7 of the data sheet"};
  profile.collectives = collective_curves(points, kB200, "aic-nccl", Grade::kMeasured);
  profile.send = {
      Time::from_microseconds(kNearUs),
      Time::from_microseconds(kFarUs),
      kNearShare,
      kFarShare,
      kSendBand,
      "B200-SXM, vultr-b200-poc in calibration/points/p2p.csv; share of the NIC assumed"};
  return profile;
}

Profile b300(const PointSet& points) { return sister_of(b200(points), points, "b300", "B300-SXM"); }

Profile gb200(const PointSet& points) {
  Profile profile = sister_of(b200(points), points, "gb200", "GB200");
  const auto own = collective_curves(points, "GB200", "aic-nccl", Grade::kMeasured);
  if (!own.empty()) profile.collectives = own;
  add_checked_attention(points, "GB200", "trtllm-ctx-fmha", profile);
  profile.note += "; collectives of 2 and 4 GPUs its own";
  return profile;
}

Profile gb300(const PointSet& points) {
  Profile profile = sister_of(gb200(points), points, "gb300", "GB300");
  profile.note =
      "the GB200's collectives and the B200's points, all but bf16 forward multiplications";
  return profile;
}

}  // namespace headway::recipes
