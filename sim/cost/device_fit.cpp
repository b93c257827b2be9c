#include "sim/cost/device_fit.hpp"

#include <algorithm>

#include "sim/core/json_reader.hpp"
#include "sim/cost/recipes/recipe.hpp"

namespace headway {
namespace {

constexpr const char* kTransport = "device";
constexpr const char* kReference = "headway-measure-cuda";
constexpr int kMeasuredRanks = 2;
// Fewer than these do not tell a model anew (points_fit.cpp).
constexpr std::size_t kEnoughForModel = 40, kEnoughForRate = 8;
// Of curves and rates measured on the very device.
constexpr double kCurveBand = 0.1, kRateBand = 0.1;

void fit_gemms(const HostMeasurements& measured, const std::string& source, Profile& profile) {
  for (const auto& [type, samples] : measured.gemms) {
    if (samples.size() < kEnoughForModel) continue;
    const auto table =
        std::find_if(profile.gemms.begin(), profile.gemms.end(), [type = type](const auto& each) {
          return std::find(each.types.begin(), each.types.end(), type) != each.types.end();
        });
    if (table == profile.gemms.end()) continue;
    std::vector<GemmSample> named = samples;
    for (GemmSample& sample : named) sample.source = kReference;
    GemmTable start = *table;
    start.points.clear();
    start.floor = Grade::kMeasured;
    start.source = source;
    *table = fit_gemm_table(named, recipes::gemm_device(profile.device, type), start, kReference);
  }
}

// The device has one fused kernel, whatever a job calls it.
void fit_attention_rates(const HostMeasurements& measured, const std::string& source,
                         Profile& profile) {
  if (measured.attention.size() < kEnoughForRate) return;
  const AttentionFit fit = fit_attention(measured.attention, AttentionKernel::kFlash2,
                                         profile.device.multiprocessors, 1);
  profile.attention.clear();
  for (const AttentionKernel kernel : {AttentionKernel::kFlash1, AttentionKernel::kFlash2,
                                       AttentionKernel::kFlash3, AttentionKernel::kCudnn}) {
    for (AttentionRate rate : {fit.forward, fit.backward}) {
      rate.kernel = kernel;
      rate.source = source;
      profile.attention.push_back(std::move(rate));
    }
  }
}

void take_kernels(const HostMeasurements& measured, const std::string& source, Profile& profile) {
  MemoryModel& memory = profile.memory;
  if (measured.launch_s > 0) memory.per_kernel = Time::from_seconds(measured.launch_s);
  if (measured.kernels.empty()) return;
  memory.measured.clear();  // of other kernels than ours
  memory.kernels = kernel_rates(measured.kernels, source);
  memory.band = kRateBand;
  memory.source = source;
  for (KernelRate& rate : memory.kernels) {
    rate.band = kRateBand;
    // Kernels without a rate of their own move bytes as a copy does.
    if (rate.kind != KernelKind::kCopy) continue;
    memory.efficiency = std::min(
        1.0, rate.rate.bytes_per_second / profile.device.memory_bandwidth.bytes_per_second);
  }
}

void take_collectives(const HostMeasurements& measured, const std::string& source,
                      Profile& profile) {
  const auto between = measured.transports.find(kTransport);
  if (between == measured.transports.end()) return;
  for (const auto& [kind, points] : between->second.collectives) {
    std::vector<CurvePoint> curve = points;
    std::sort(curve.begin(), curve.end(),
              [](const CurvePoint& a, const CurvePoint& b) { return a.x < b.x; });
    std::erase_if(profile.collectives, [&, kind = kind](const CollectiveCurve& each) {
      return each.kind == kind && each.ranks == kMeasuredRanks && each.nodes == 1;
    });
    profile.collectives.push_back({kind, kMeasuredRanks, 1, Curve(std::move(curve)),
                                   Grade::kMeasured, kCurveBand,
                                   source + ", copies on one device that the ranks share"});
  }
}

}  // namespace

Profile fit_device(const HostMeasurements& measured, const Profile& base,
                   const std::string& source) {
  const bool enough = !measured.kernels.empty() ||
                      std::any_of(measured.gemms.begin(), measured.gemms.end(), [](const auto& of) {
                        return of.second.size() >= kEnoughForModel;
                      });
  if (!enough) {
    throw InvalidInput("measurements", "",
                       "neither kernels nor " + std::to_string(kEnoughForModel) +
                           " multiplications of a type; calibrate measures them all");
  }
  Profile profile = base;
  profile.sources = source + "; what was not measured: " + base.sources;
  fit_gemms(measured, source, profile);
  fit_attention_rates(measured, source, profile);
  take_kernels(measured, source, profile);
  take_collectives(measured, source, profile);
  return profile;
}

std::string device_of_measurements(const std::string& file) {
  const JsonNode document = JsonNode::parse_file(file);
  const auto context = document.is_object() ? document.find("context") : std::nullopt;
  const auto device = context && context->is_object() ? context->find("device") : std::nullopt;
  if (!device || !device->is_string()) {
    throw InvalidInput(file, "/context/device", "missing; expected the name of a CUDA device");
  }
  return device->string();
}

}  // namespace headway
