#include <algorithm>
#include <map>
#include <utility>

#include "sim/cost/compute_cost.hpp"
#include "sim/cost/recipes/recipe.hpp"

namespace headway::recipes {

namespace {

// Repeats within a curve and between NCCL's versions: a tenth.
constexpr double kCurveBand = 0.1;
// Of a kernel's rate measured in isolation, inside a training step.
constexpr double kRateBand = 0.2;
// Tile shapes that cuBLAS chooses from, in the orientation with more rows.
const std::vector<GemmTile> kTiles = {
    {256, 128, 0.7}, {128, 128, 0.7}, {128, 64, 0.7}, {64, 64, 0.7}, {256, 64, 0.7}};
constexpr double kQuantiseBytes = 3;  // bf16 read, fp8 written

const MeasuredKernel* measured(const MemoryModel& memory, const std::string& operation,
                               const std::string& pass) {
  for (const MeasuredKernel& kernel : memory.measured) {
    if (kernel.operation == operation && kernel.pass == pass) return &kernel;
  }
  return nullptr;
}

}  // namespace

std::optional<GemmRole> role_of(const std::string& layout) {
  if (layout == "TN") return GemmRole::kForward;
  if (layout == "NN") return GemmRole::kInputGradient;
  if (layout == "NT") return GemmRole::kWeightGradient;
  return std::nullopt;
}

std::optional<CollectiveKind> collective_kind_of(const std::string& operation) {
  if (operation == "all_reduce") return CollectiveKind::kAllReduce;
  if (operation == "all_gather") return CollectiveKind::kAllGather;
  if (operation == "reduce_scatter") return CollectiveKind::kReduceScatter;
  if (operation == "alltoall") return CollectiveKind::kAllToAll;
  return std::nullopt;
}

std::optional<AttentionKernel> attention_kernel_of(const std::string& implementation) {
  if (implementation == "FA1") return AttentionKernel::kFlash1;
  if (implementation == "FA2") return AttentionKernel::kFlash2;
  if (implementation == "FA3") return AttentionKernel::kFlash3;
  // Transformer Engine calls cuDNN's where it can.
  if (implementation == "cuDNN" || implementation == "te/flash") return AttentionKernel::kCudnn;
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
    const bool wanted = std::any_of(sources.begin(), sources.end(), [&](const std::string& source) {
      return row.source.starts_with(source);
    });
    if (!wanted || std::find(types.begin(), types.end(), row.dtype) == types.end()) continue;
    samples.push_back({row.shape, *role, *regime, row.time_us * 1e-6, row.source});
  }
  return samples;
}

std::vector<GemmSample> without_quantisation(std::vector<GemmSample> samples,
                                             double bytes_per_second) {
  for (GemmSample& sample : samples) {
    const double elements =
        static_cast<double>(sample.shape.rows) * static_cast<double>(sample.shape.depth);
    const double quantise = elements * kQuantiseBytes / bytes_per_second;
    // Never more than half: the two kernels overlap a little where both are short.
    sample.seconds = std::max(0.5 * sample.seconds, sample.seconds - quantise);
  }
  return samples;
}

GemmDevice gemm_device(const Device& device, DataType type) {
  GemmDevice gemm;
  gemm.peak = device.dense_peak.at(type).per_second;
  gemm.memory_bandwidth = device.memory_bandwidth.bytes_per_second;
  gemm.multiprocessors = device.multiprocessors;
  gemm.input_bytes = static_cast<double>(size_of(type, 2).count) / 2;
  gemm.output_bytes = gemm.input_bytes;
  return gemm;
}

const Device& device_named(const std::string& name) {
  const Device* device = find_device(name);
  if (device == nullptr) throw InvalidInput(name, "", "no such device");
  return *device;
}

GemmTable start_table(std::vector<DataType> types) {
  GemmTable table;
  table.types = std::move(types);
  table.model.tiles = kTiles;
  table.model.per_kernel = Time::from_microseconds(3);
  table.model.per_wave = Time::from_microseconds(1.5);
  table.model.wave_softness = 0.2;
  table.model.memory_share = 0.8;
  return table;
}

void add_transferred_types(Profile& profile, const GemmTable& from,
                           const std::vector<DataType>& types) {
  for (const DataType type : types) {
    if (!profile.device.dense_peak.contains(type)) continue;
    GemmTable table = from;
    table.types = {type};
    table.points.clear();
    table.left_out = table.model_alone = {};
    table.floor = Grade::kExtrapolated;
    table.source = "no points of " + std::string(name(type)) + "; the tiles' shares of peak of " +
                   std::string(name(from.types.front()));
    profile.gemms.push_back(std::move(table));
  }
}

void mark_transferred(Profile& profile, const std::string& how) {
  profile.note = how;
  for (GemmTable& table : profile.gemms) {
    table.floor = Grade::kExtrapolated;
    table.source = how + "; " + table.source;
  }
  for (AttentionRate& rate : profile.attention) {
    rate.floor = Grade::kExtrapolated;
    rate.source = how + "; " + rate.source;
  }
  profile.memory.grade = Grade::kExtrapolated;
  profile.memory.measured.clear();
  profile.memory.source = how + "; " + profile.memory.source;
  for (KernelRate& rate : profile.memory.kernels) rate.grade = Grade::kExtrapolated;
  for (CollectiveCurve& curve : profile.collectives) {
    curve.floor = Grade::kExtrapolated;
    curve.source = how + "; " + curve.source;
  }
  profile.send.source = how + "; " + profile.send.source;
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

void add_checked_attention(const PointSet& points, const std::string& gpu,
                           const std::string& implementation, Profile& profile) {
  const auto samples = attention_samples(points, gpu, implementation, false);
  if (samples.empty()) return;
  AttentionFit fit =
      fit_attention(samples, AttentionKernel::kCudnn, profile.device.multiprocessors, 1);
  std::erase_if(profile.attention, [&](const AttentionRate& rate) {
    return rate.implementation == implementation;  // a sister's
  });
  fit.forward.implementation = implementation;
  fit.forward.source = gpu + ", " + implementation + " in calibration/points/attention.csv";
  profile.attention.push_back(fit.forward);
}

std::vector<CollectiveCurve> collective_curves(const PointSet& points, const std::string& gpu,
                                               const std::string& source, Grade floor) {
  std::map<std::pair<CollectiveKind, int>, std::vector<CurvePoint>> curves;
  for (const CollectiveRow& row : points.collectives) {
    const auto kind = collective_kind_of(row.operation);
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

void add_kernel_rates(const std::vector<RateSource>& sources, MemoryModel& memory) {
  constexpr std::int64_t kElements = 1 << 20;
  for (const RateSource& source : sources) {
    const MeasuredKernel* whole = measured(memory, source.operation, source.pass);
    if (whole == nullptr) continue;
    double slope = whole->picoseconds_per_element;
    std::string text = source.operation + " " + source.pass;
    if (!source.less.empty()) {
      const MeasuredKernel* part = measured(memory, source.operation, source.less);
      if (part == nullptr) continue;
      slope -= part->picoseconds_per_element;
      text += " less " + source.less;
    }
    Kernel kernel;
    kernel.kind = source.kind;
    kernel.fused = source.fused;
    kernel.rows = kElements;
    kernel.columns = 1;
    kernel.type = kernel.output = source.type;
    const double bytes = static_cast<double>(bytes_moved(kernel).count) / kElements;
    memory.kernels.push_back(
        {source.kind, source.fused, Bandwidth{bytes / (slope * 1e-12)}, kRateBand, Grade::kFitted,
         text + " (" + whole->source + ") in calibration/points/elementwise.csv"});
  }
}

}  // namespace headway::recipes
