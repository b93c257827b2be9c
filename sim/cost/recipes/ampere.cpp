// A100: the best measured training device but for gradients, which only the PCIe card tells. V100:
// no points at all.
#include <cmath>
#include <map>

#include "sim/cost/recipes/recipe.hpp"

namespace headway::recipes {

namespace {

constexpr const char* kGpu = "A100-SXM4-80GB";
constexpr const char* kCard = "A100-PCIe-80GB";
constexpr const char* kReference = "aic-sglang0.5.10";

// Clocks under training's load against short bursts: 1.00 to 1.10 over published training steps; a
// loop at equilibrium agrees (azure-aibg 228-257 TFLOP/s against 249-262 in bursts).
constexpr double kSustained = 1.05;
constexpr double kSustainedBand = 0.04;
// Memory-bound kernels of a training step, over the published steps' sources: 0.65 to 0.85 of the
// data sheet's bandwidth, and 2 us a kernel.
constexpr double kMemoryEfficiency = 0.80;
constexpr double kMemoryBand = 0.15;
constexpr double kKernelUs = 2;
// FlashAttention-1, causal, head dimension 128, and the same at 1k and 16k tokens (bar charts of
// Dao 2023, figures 4 to 6): TFLOP/s. FlashAttention-2 gains on it with the sequence.
constexpr double kFlash1Forward = 115;
constexpr double kFlash1Backward = 95;
constexpr double kFlash1Band = 0.2;
constexpr double kFlash2BackwardStart = 150.0 / 185.0;
// "50-73 % of the theoretical maximum" (Dao 2023, abstract): the most that its forward pass
// reaches.
constexpr double kFlash2Fastest = 0.73;
// cuBLAS kernels for operands without 16-byte alignment: head sizes 108 and 150 of the BLOOM
// scaling runs and unpadded vocabularies take about twice the time.
constexpr double kMisaligned = 2.0;
// Messages inside a node: 17 us and 250 of 300 GB/s (vidur, A100-SXM4 in p2p.csv); between nodes
// 24 to 46 us there, on a fabric slower than any here, so the share of the NIC is assumed.
constexpr double kNearUs = 17, kNearShare = 0.83;
constexpr double kFarUs = 40, kFarShare = 0.8;
constexpr double kSendBand = 0.2;

// Gradients were measured on the PCIe card only: their factors over its own forward times carry
// over.
void take_gradient_factors(const PointSet& points, GemmTable& table) {
  const auto card = gemm_samples(points, kCard, {"simumax-a100pcie"}, {"bf16"});
  const GemmDevice device = gemm_device(device_named("a100-pcie-80gb"), DataType::kBf16);
  std::map<GemmRole, std::vector<double>> residuals;
  for (const GemmSample& sample : card) {
    residuals[sample.role].push_back(
        std::log(sample.seconds / model_seconds(table.model, device, sample.shape)));
  }
  const double forward = median(residuals[GemmRole::kForward]);
  table.input_gradient_factor = std::exp(median(residuals[GemmRole::kInputGradient]) - forward);
  table.weight_gradient_factor = std::exp(median(residuals[GemmRole::kWeightGradient]) - forward);
}

void add_attention(const PointSet& points, Profile& profile) {
  std::vector<AttentionSample> samples = attention_samples(points, kGpu, "FA2", false);
  for (const AttentionSample& sample : attention_samples(points, kCard, "te/flash", true)) {
    samples.push_back(sample);
  }
  AttentionFit fit = fit_attention(samples, AttentionKernel::kFlash2,
                                   profile.device.multiprocessors, kFlash2BackwardStart,
                                   profile.device.dense_peak.at(DataType::kBf16) * kFlash2Fastest);
  for (AttentionRate* rate : {&fit.forward, &fit.backward}) {
    rate->sustained_factor = kSustained;
    rate->source = "fa-readme-plot (FA2) and simumax-a100pcie in calibration/points/attention.csv";
    profile.attention.push_back(*rate);
    // cuDNN has no fused kernel of its own worth calling on Ampere: Transformer Engine calls this.
    AttentionRate cudnn = *rate;
    cudnn.kernel = AttentionKernel::kCudnn;
    cudnn.source = "FlashAttention-2, which Transformer Engine calls on Ampere; " + cudnn.source;
    profile.attention.push_back(cudnn);
    AttentionRate first = *rate;
    first.kernel = AttentionKernel::kFlash1;
    first.rate.per_second = (rate->backward ? kFlash1Backward : kFlash1Forward) * 1e12;
    first.half_sequence = first.half_sequence_full = 0;
    first.causal_factor = 1;
    first.points.clear();
    first.left_out = {};
    first.floor = Grade::kExtrapolated;
    first.band = kFlash1Band;
    first.source = "bar charts of Dao 2023, figures 4 to 6";
    profile.attention.push_back(first);
  }
  add_checked_attention(points, kGpu, "trtllm-ctx-fmha", profile);
}

void add_memory(const PointSet& points, Profile& profile) {
  MemoryModel& memory = profile.memory;
  memory.efficiency = kMemoryEfficiency;
  memory.per_kernel = Time::from_microseconds(kKernelUs);
  memory.band = kMemoryBand;
  memory.source = "published training steps on A100: 0.65 to 0.85 of the data sheet";
  memory.measured = fit_kernels(points.elementwise, kGpu);
  add_kernel_rates(
      {
          {KernelKind::kRmsNormForward, false, DataType::kBf16, "rms_norm[huggingface]", "forward",
           ""},
          {KernelKind::kRmsNormBackward, false, DataType::kBf16, "rms_norm[huggingface]",
           "backward", ""},
          {KernelKind::kRotaryForward, false, DataType::kBf16, "rope[huggingface]", "full",
           "backward"},
          {KernelKind::kLayerNormForward, false, DataType::kFp32, "layer_norm[huggingface]",
           "forward", ""},
          {KernelKind::kLayerNormBackward, false, DataType::kFp32, "layer_norm[huggingface]",
           "full", "forward"},
          {KernelKind::kFusedCrossEntropyForward, true, DataType::kBf16, "cross_entropy[liger]",
           "forward", ""},
          {KernelKind::kFusedCrossEntropyBackward, true, DataType::kBf16, "cross_entropy[liger]",
           "full", "forward"},
          {KernelKind::kEmbeddingForward, true, DataType::kFp16, "embedding_lookup", "forward", ""},
      },
      memory);
}

}  // namespace

Profile a100_80gb(const PointSet& points) {
  Profile profile;
  profile.name = "a100-sxm-80gb";
  profile.device = device_named(profile.name);
  profile.sources =
      "aiconfigurator, vidur, SimuMax, FlashAttention, Liger-Kernel (calibration/points/README.md)";
  GemmTable start = start_table({DataType::kBf16, DataType::kFp16});
  start.sustained_factor = kSustained;
  start.sustained_band = kSustainedBand;
  start.misaligned_factor = kMisaligned;
  start.source =
      "A100-SXM4-80GB, aic-sglang, levelled to it aic-trtllm and vidur, in "
      "calibration/points/gemm.csv; gradients by the ratios of A100-PCIe-80GB, simumax";
  const auto samples =
      gemm_samples(points, kGpu, {"aic-sglang", "aic-trtllm", "vidur"}, {"bf16", "fp16"});
  profile.gemms.push_back(
      fit_gemm_table(samples, gemm_device(profile.device, DataType::kBf16), start, kReference));
  take_gradient_factors(points, profile.gemms.front());
  const GemmTable half = profile.gemms.front();
  add_transferred_types(profile, half, {DataType::kTf32, DataType::kFp32});
  add_attention(points, profile);
  add_memory(points, profile);
  profile.collectives = collective_curves(points, kGpu, "aic-nccl", Grade::kMeasured);
  profile.send = {Time::from_microseconds(kNearUs),
                  Time::from_microseconds(kFarUs),
                  kNearShare,
                  kFarShare,
                  kSendBand,
                  "A100-SXM4-80GB, vidur in calibration/points/p2p.csv; share of the NIC assumed"};
  return profile;
}

Profile a100_40gb(const PointSet& points) {
  Profile profile = a100_80gb(points);
  const double before = profile.device.memory_bandwidth.bytes_per_second;
  profile.name = "a100-sxm-40gb";
  profile.device = device_named(profile.name);
  const double ratio = profile.device.memory_bandwidth.bytes_per_second / before;
  // The chip is the same; only what waits for memory is slower.
  for (KernelRate& rate : profile.memory.kernels) rate.rate = rate.rate * ratio;
  mark_transferred(profile,
                   "the A100-SXM4-80GB's points, memory-bound kernels by the ratio of memory "
                   "bandwidths 1.555 / 2.039 TB/s");
  // A compute-bound multiplication does not tell the two cards apart.
  for (GemmTable& table : profile.gemms) {
    if (!table.points.empty()) table.floor = Grade::kFitted;
  }
  for (AttentionRate& rate : profile.attention) {
    if (!rate.points.empty()) rate.floor = Grade::kFitted;
  }
  for (CollectiveCurve& curve : profile.collectives) curve.floor = Grade::kFitted;
  return profile;
}

Profile v100(const PointSet& points, const std::string& name) {
  const Profile source = a100_80gb(points);
  Profile profile;
  profile.name = name;
  profile.device = device_named(name);
  profile.sources = source.sources;
  GemmTable table = source.gemms.front();
  table.types = {DataType::kFp16};
  table.points.clear();
  table.left_out = table.model_alone = {};
  profile.gemms.push_back(table);
  add_transferred_types(profile, table, {DataType::kFp32});
  profile.memory = source.memory;
  profile.memory.kernels.clear();
  profile.send = source.send;
  mark_transferred(profile,
                   "no points of a V100: the A100's shares of peak (125 TFLOP/s fp16, 0.9 TB/s, "
                   "NVLink 150 GB/s); no fused attention kernel runs on it");
  profile.collective_band = 0.35;
  return profile;
}

}  // namespace headway::recipes
