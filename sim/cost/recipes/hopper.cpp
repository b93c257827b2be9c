// H100 and its sisters. GEMMs throttle under load in 16-bit types and not in fp8; memory-bound
// kernels reach no more than on an A100.
#include "sim/cost/recipes/recipe.hpp"

namespace headway::recipes {

namespace {

constexpr const char* kH100 = "H100-SXM5-80GB";
constexpr const char* kH200 = "H200-SXM-141GB";
constexpr const char* kReference = "aic-trtllm1.3.0rc20";

// 16-bit GEMMs under training's load at 700 W: 1.15 to 1.26 over published H100 steps; fp8 1.00 to
// 1.04 (azure-aibg's sustained fp8 equals the burst table within 1 %).
constexpr double kSustained = 1.20;
constexpr double kSustainedFp8 = 1.0;
constexpr double kSustainedBand = 0.05;
// Gradient factors: no points; A100-PCIe (1.00 and 1.04) and B200 (1.00 and 1.03) agree.
constexpr double kInputGradient = 1.0;
constexpr double kWeightGradient = 1.04;
// Memory-bound kernels of a training step: 1.7 TB/s, 0.47 to 0.56 of 3.35 TB/s over published
// steps.
constexpr double kMemoryEfficiency = 0.505;
constexpr double kMemoryBand = 0.2;
constexpr double kKernelUs = 2;
constexpr double kMisaligned = 2.0;  // as on A100; not measured
// Quantise kernels move 2.78 to 3.06 TB/s (fp8_quantise in elementwise.csv).
constexpr double kQuantise = 2.9e12;
// cuDNN backward reaches its forward rate over published steps (495 to 560 TFLOP/s against 520);
// FlashAttention-3's as FlashAttention-2's on A100.
constexpr double kCudnnBackward = 1.0;
constexpr double kFlash3Backward = 0.86;
constexpr double kFlash2BackwardStart = 0.86;
constexpr double kBackwardBand = 0.12;
// FlashAttention-1 (Triton) in llm-foundry's H100 steps: 200 and 180 TFLOP/s.
constexpr double kFlash1Forward = 200, kFlash1Backward = 180;
constexpr double kFlash1Band = 0.15;
// Messages: 8 us and 347 of 450 GB/s inside, 17 to 24 us between nodes (vidur, H100 in p2p.csv).
constexpr double kNearUs = 8, kNearShare = 0.77;
constexpr double kFarUs = 24, kFarShare = 0.8;
constexpr double kSendBand = 0.2;
// A 500 W limit for 700 W: power falls with the cube of the clock, which is (500/700)^(1/3) = 0.89.
constexpr double k500WattFactor = 1.12;
// Share of HBM3e that H200's memory-bound kernels reach: nobody measured; the geometric mean of "as
// H100 in bytes per second" (0.35) and "as H100 in share" (0.505).
constexpr double kH200MemoryEfficiency = 0.42;

GemmTable gemm_start(std::vector<DataType> types, double sustained, const std::string& source) {
  GemmTable start = start_table(std::move(types));
  start.sustained_factor = sustained;
  start.sustained_band = kSustainedBand;
  start.input_gradient_factor = kInputGradient;
  start.weight_gradient_factor = kWeightGradient;
  start.misaligned_factor = kMisaligned;
  start.source = source;
  return start;
}

void add_gemms(const PointSet& points, const std::string& gpu, Profile& profile) {
  const auto half = gemm_samples(points, gpu, {"aic-trtllm", "vidur"}, {"bf16", "fp16"});
  profile.gemms.push_back(fit_gemm_table(
      half, gemm_device(profile.device, DataType::kBf16),
      gemm_start({DataType::kBf16, DataType::kFp16}, kSustained,
                 gpu + ", aic-trtllm, levelled to it vidur, in calibration/points/gemm.csv; "
                       "gradients by the ratios of A100-PCIe-80GB and B200"),
      kReference));
  const auto fp8 =
      without_quantisation(gemm_samples(points, gpu, {"aic-trtllm"}, {"fp8_dyn"}), kQuantise);
  GemmTable start = gemm_start({DataType::kFp8}, kSustainedFp8,
                               gpu +
                                   ", aic-trtllm fp8_dyn less its quantise kernel, in "
                                   "calibration/points/gemm.csv");
  start.model = profile.gemms.front().model;
  profile.gemms.push_back(
      fit_gemm_table(fp8, gemm_device(profile.device, DataType::kFp8), start, kReference));
  const GemmTable first = profile.gemms.front();
  add_transferred_types(profile, first, {DataType::kTf32, DataType::kFp32});
}

void add_kernel(const PointSet& points, const std::string& implementation, AttentionKernel kernel,
                double backward_ratio, bool backward_measured, Profile& profile) {
  const auto samples = attention_samples(points, kH100, implementation, false);
  AttentionFit fit = fit_attention(samples, kernel, profile.device.multiprocessors, backward_ratio);
  fit.forward.source = fit.backward.source =
      "fa-readme-plot (" + implementation + ") in calibration/points/attention.csv";
  if (!backward_measured) {
    fit.backward.rate = fit.forward.rate * backward_ratio;
    fit.backward.points.clear();
    fit.backward.left_out = {};
    fit.backward.floor = Grade::kExtrapolated;
    fit.backward.band = kBackwardBand;
    fit.backward.source = "no points; forward's rate by a ratio (sim/cost/recipes/hopper.cpp)";
  }
  profile.attention.push_back(fit.forward);
  profile.attention.push_back(fit.backward);
}

void add_attention(const PointSet& points, Profile& profile) {
  add_kernel(points, "FA2", AttentionKernel::kFlash2, kFlash2BackwardStart, true, profile);
  for (const bool backward : {false, true}) {
    AttentionRate first = *profile.attention_rate(AttentionKernel::kFlash2, backward);
    first.kernel = AttentionKernel::kFlash1;
    first.rate.per_second = (backward ? kFlash1Backward : kFlash1Forward) * 1e12;
    first.points.clear();
    first.left_out = {};
    first.floor = Grade::kExtrapolated;
    first.band = kFlash1Band;
    first.source = "FlashAttention-1 in llm-foundry's published H100 steps, 185 to 200 TFLOP/s";
    profile.attention.push_back(first);
  }
  add_kernel(points, "FA3", AttentionKernel::kFlash3, kFlash3Backward, false, profile);
  add_kernel(points, "cuDNN", AttentionKernel::kCudnn, kCudnnBackward, false, profile);
}

void add_memory(const PointSet& points, Profile& profile) {
  MemoryModel& memory = profile.memory;
  memory.efficiency = kMemoryEfficiency;
  memory.per_kernel = Time::from_microseconds(kKernelUs);
  memory.band = kMemoryBand;
  memory.source = "published training steps on H100: 1.6 to 1.9 TB/s";
  memory.measured = fit_kernels(points.elementwise, kH100);
  add_kernel_rates(
      {
          {KernelKind::kLayerNormForward, false, DataType::kFp32, "layer_norm[huggingface]",
           "forward", ""},
          {KernelKind::kLayerNormBackward, false, DataType::kFp32, "layer_norm[huggingface]",
           "backward", ""},
          {KernelKind::kSwigluForward, false, DataType::kBf16, "megatron_swiglu[torch]", "forward",
           ""},
          {KernelKind::kSwigluBackward, false, DataType::kBf16, "megatron_swiglu[torch]", "full",
           "forward"},
          {KernelKind::kFusedCrossEntropyForward, true, DataType::kBf16,
           "megatron_cross_entropy[liger]", "forward", ""},
          {KernelKind::kFusedCrossEntropyBackward, true, DataType::kBf16,
           "megatron_cross_entropy[liger]", "full", "forward"},
          {KernelKind::kEmbeddingForward, true, DataType::kFp16, "embedding_lookup", "forward", ""},
      },
      memory);
}

SendModel send_model() {
  return {Time::from_microseconds(kNearUs),
          Time::from_microseconds(kFarUs),
          kNearShare,
          kFarShare,
          kSendBand,
          "H100-SXM5-80GB, vidur in calibration/points/p2p.csv; share of the NIC assumed"};
}

}  // namespace

Profile h100(const PointSet& points) {
  Profile profile;
  profile.name = "h100-sxm";
  profile.device = device_named(profile.name);
  profile.sources =
      "aiconfigurator, vidur, FlashAttention, Liger-Kernel (calibration/points/README.md)";
  add_gemms(points, kH100, profile);
  add_attention(points, profile);
  add_checked_attention(points, kH100, "trtllm-ctx-fmha", profile);
  add_memory(points, profile);
  profile.collectives = collective_curves(points, kH100, "aic-nccl", Grade::kMeasured);
  profile.send = send_model();
  return profile;
}

Profile h100_96gb(const PointSet& points) {
  Profile profile = h100(points);
  profile.name = "h100-96gb-500w";
  const double before = profile.device.memory_bandwidth.bytes_per_second;
  profile.device = device_named(profile.name);
  for (GemmTable& table : profile.gemms) {
    table.sustained_factor *= k500WattFactor;
    table.sustained_band *= 2;
  }
  for (AttentionRate& rate : profile.attention) rate.sustained_factor *= k500WattFactor;
  // Its memory is slower than the H100's, but the kernels reached only half of that one's: as many
  // bytes per second, as far as 0.8 of the data sheet allows.
  profile.memory.efficiency = std::min(
      0.8, profile.memory.efficiency * before / profile.device.memory_bandwidth.bytes_per_second);
  mark_transferred(profile,
                   "the H100-SXM's points; GEMMs and attention under load by the clock that 500 W "
                   "allow, the cube root of 500 / 700");
  return profile;
}

Profile h800(const PointSet& points) {
  Profile profile = h100(points);
  profile.name = "h800";
  profile.device = device_named(profile.name);
  profile.collectives.clear();  // its NVLink is another; NCCL's model prices it
  mark_transferred(profile, "the H100-SXM's points: the same chip with NVLink at 200 GB/s");
  return profile;
}

Profile h200(const PointSet& points) {
  Profile profile;
  profile.name = "h200";
  profile.device = device_named(profile.name);
  profile.sources = "aiconfigurator; attention of the H100 (calibration/points/README.md)";
  profile.note =
      "attention is the H100's (the same chip); memory-bound kernels lie between the H100's bytes "
      "per second and its share of the memory's bandwidth";
  add_gemms(points, kH200, profile);
  add_attention(points, profile);
  for (AttentionRate& rate : profile.attention) rate.floor = Grade::kExtrapolated;
  add_checked_attention(points, kH200, "trtllm-ctx-fmha", profile);
  add_memory(points, profile);
  profile.memory.measured = fit_kernels(points.elementwise, kH200);
  profile.memory.grade = Grade::kExtrapolated;
  for (KernelRate& rate : profile.memory.kernels) rate.grade = Grade::kExtrapolated;
  profile.memory.efficiency = kH200MemoryEfficiency;
  profile.collectives = collective_curves(points, kH200, "aic-nccl", Grade::kMeasured);
  profile.send = send_model();
  return profile;
}

}  // namespace headway::recipes
