#include "sim/cost/fit.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

#include "sim/cost/attention_fit.hpp"
#include "sim/cost/compute_cost.hpp"
#include "sim/cost/gemm_fit.hpp"

namespace headway {

namespace {

// ---- sources
// ---------------------------------------------------------------------------------------

bool any_prefix(const std::string& text, const std::vector<std::string>& prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](const std::string& prefix) { return text.starts_with(prefix); });
}

std::optional<GemmRole> role_of(const std::string& layout) {
  if (layout == "TN") return GemmRole::kForward;
  if (layout == "NN") return GemmRole::kInputGradient;
  if (layout == "NT") return GemmRole::kWeightGradient;
  return std::nullopt;
}

std::vector<GemmSample> gemm_samples(const PointSet& points, const std::string& gpu,
                                     const std::vector<std::string>& sources,
                                     const std::vector<std::string>& types) {
  std::vector<GemmSample> samples;
  for (const GemmRow& row : points.gemm) {
    const auto role = role_of(row.layout);
    const auto regime = regime_of(row.source);
    if (row.gpu != gpu || !row.flag.empty() || !role || !regime) continue;
    if (!any_prefix(row.source, sources)) continue;
    if (std::find(types.begin(), types.end(), row.dtype) == types.end()) continue;
    samples.push_back({row.shape, *role, *regime, row.time_us * 1e-6, row.source});
  }
  return samples;
}

GemmDevice gemm_device(const Device& device, DataType type) {
  GemmDevice gemm;
  gemm.peak = device.dense_peak.at(type).per_second;
  gemm.memory_bandwidth = device.memory_bandwidth.bytes_per_second;
  gemm.multiprocessors = device.multiprocessors;
  gemm.input_bytes = static_cast<double>(size_of(type, 2).count) / 2;
  gemm.output_bytes = std::max(2.0, gemm.input_bytes);
  return gemm;
}

const Device& device_named(const std::string& name) {
  const Device* device = find_device(name);
  if (device == nullptr) throw InvalidInput(name, "", "no such device");
  return *device;
}

// Where the tile model's search starts: tiles near 80 % of peak.
GemmTable start_table() {
  GemmTable table;
  table.types = {DataType::kBf16, DataType::kFp16};
  table.model.per_kernel = Time::from_microseconds(3);
  table.model.per_wave = Time::from_microseconds(1.5);
  table.model.wave_softness = 0.2;
  table.model.memory_share = 0.8;
  return table;
}

// ---- collectives
// -----------------------------------------------------------------------------------

std::optional<CollectiveKind> kind_of(const std::string& operation) {
  if (operation == "all_reduce") return CollectiveKind::kAllReduce;
  if (operation == "all_gather") return CollectiveKind::kAllGather;
  if (operation == "reduce_scatter") return CollectiveKind::kReduceScatter;
  if (operation == "alltoall") return CollectiveKind::kAllToAll;
  return std::nullopt;
}

// Repeats within a curve and between NCCL's versions: a tenth.
constexpr double kCurveBand = 0.1;

std::vector<CollectiveCurve> collective_curves(const PointSet& points, const std::string& gpu,
                                               const std::string& source, Grade floor) {
  std::map<std::pair<CollectiveKind, int>, std::vector<CurvePoint>> curves;
  for (const CollectiveRow& row : points.collectives) {
    const auto kind = kind_of(row.operation);
    if (row.gpu != gpu || !row.source.starts_with(source) || !kind) continue;
    if (row.network != "none(intra)") continue;
    curves[{*kind, row.ranks}].push_back({row.bytes, row.time_us});
  }
  std::vector<CollectiveCurve> result;
  for (auto& [key, curve] : curves) {
    result.push_back({key.first, key.second, 1, Curve(std::move(curve)), floor, kCurveBand,
                      gpu + ", " + source + " in calibration/points/collectives.csv"});
  }
  return result;
}

// ---- A100
// ------------------------------------------------------------------------------------------

const std::string kA100 = "A100-SXM4-80GB";
const std::string kA100Reference = "aic-sglang0.5.10";

// Clocks under training's load against short bursts: calibrated on published training steps, 1.00
// to 1.10 within their spread; a loop at equilibrium (azure-aibg, 228-257 TFLOP/s against 249-262)
// agrees.
constexpr double kA100Sustained = 1.05;
constexpr double kA100SustainedBand = 0.04;
// Memory-bound kernels of a training step, over all sources of published steps: 0.65 to 0.85.
constexpr double kA100MemoryEfficiency = 0.80;
constexpr double kKernelUs = 2;
// FlashAttention-1 forward and backward over FlashAttention-2, causal, head dimension 128, from
// the papers' bar charts (Dao 2023, figures 4 to 6).
constexpr double kFlash1Forward = 115.0 / 185.0;
constexpr double kFlash1Backward = 95.0 / 150.0;
constexpr double kFlash1Band = 0.2;
// cuBLAS kernels for operands without 16-byte alignment; head sizes 108 and 150 of the BLOOM
// scaling runs and unpadded vocabularies take twice the time.
constexpr double kMisaligned = 2.0;

void sister_factors(const PointSet& points, GemmTable& table) {
  // Gradients were measured on the PCIe card only: their factors over its forward times carry over.
  const std::vector<GemmSample> card =
      gemm_samples(points, "A100-PCIe-80GB", {"simumax-a100pcie"}, {"bf16"});
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

std::vector<AttentionSample> attention_samples(const PointSet& points, const std::string& gpu,
                                               const std::string& implementation, bool sister) {
  std::vector<AttentionSample> samples;
  for (const AttentionRow& row : points.attention) {
    if (row.gpu != gpu || row.implementation != implementation || !row.flag.empty()) continue;
    if (row.source == "azure-aibg") continue;  // one point, of another regime
    const AttentionPass pass = row.kind == "fwd"   ? AttentionPass::kForward
                               : row.kind == "bwd" ? AttentionPass::kBackward
                                                   : AttentionPass::kBoth;
    samples.push_back({row.point, pass, sister});
  }
  return samples;
}

void a100_attention(const PointSet& points, Profile& profile) {
  std::vector<AttentionSample> samples = attention_samples(points, kA100, "FA2", false);
  for (const AttentionSample& sample :
       attention_samples(points, "A100-PCIe-80GB", "te/flash", true)) {
    samples.push_back(sample);
  }
  AttentionFit fit = fit_attention(samples, AttentionKernel::kFlash2,
                                   profile.device.multiprocessors, 150.0 / 185.0);
  for (AttentionRate* rate : {&fit.forward, &fit.backward}) {
    rate->sustained_factor = kA100Sustained;
    rate->source = "fa-readme-plot (FA2) and simumax-a100pcie in calibration/points/attention.csv";
    profile.attention.push_back(*rate);
    AttentionRate first = *rate;
    first.kernel = AttentionKernel::kFlash1;
    first.rate.per_second *= rate->backward ? kFlash1Backward : kFlash1Forward;
    first.points.clear();
    first.left_out = {};
    first.floor = Grade::kExtrapolated;
    first.band = kFlash1Band;
    first.source = "flash2's, by the ratio of FlashAttention-1 to 2 in Dao 2023, figures 4 to 6";
    profile.attention.push_back(first);
  }
}

Profile a100(const PointSet& points) {
  Profile profile;
  profile.name = "a100-sxm-80gb";
  profile.device = device_named(profile.name);
  profile.sources =
      "aiconfigurator, vidur, SimuMax, FlashAttention, vTrain (calibration/points/README.md)";
  const std::vector<GemmSample> samples =
      gemm_samples(points, kA100, {"aic-sglang", "aic-trtllm", "vidur"}, {"bf16", "fp16"});
  GemmTable start = start_table();
  start.sustained_factor = kA100Sustained;
  start.sustained_band = kA100SustainedBand;
  start.misaligned_factor = kMisaligned;
  start.source =
      "A100-SXM4-80GB, aic-sglang, levelled to it aic-trtllm and vidur, in "
      "calibration/points/gemm.csv; gradients by the ratios of A100-PCIe-80GB, simumax";
  profile.gemms.push_back(
      fit_gemm_table(samples, gemm_device(profile.device, DataType::kBf16), start, kA100Reference));
  sister_factors(points, profile.gemms.front());
  a100_attention(points, profile);
  profile.memory = {kA100MemoryEfficiency,
                    Time::from_microseconds(kKernelUs),
                    0.15,
                    Grade::kFitted,
                    {},
                    "published training steps on A100: 0.65 to 0.85 of 2.0 TB/s"};
  profile.collectives = collective_curves(points, kA100, "aic-nccl", Grade::kMeasured);
  profile.send = {Time::from_microseconds(17),
                  Time::from_microseconds(40),
                  0.83,
                  0.8,
                  0.2,
                  "A100-SXM4-80GB, vidur in calibration/points/p2p.csv; network share assumed"};
  return profile;
}

}  // namespace

std::vector<std::string> fitted_profiles() { return {"a100-sxm-80gb"}; }

Profile fit_profile(const std::string& name, const PointSet& points) {
  if (name == "a100-sxm-80gb") return a100(points);
  throw InvalidInput(name, "",
                     "no recipe for this profile; there are " + any_of(fitted_profiles()));
}

}  // namespace headway
