#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>
#include <utility>

#include "sim/cost/attention_fit.hpp"
#include "sim/cost/compute_cost.hpp"
#include "sim/cost/fit.hpp"
#include "sim/cost/gemm_fit.hpp"
#include "sim/cost/kernel_fit.hpp"
#include "sim/cost/recipes/recipe.hpp"

namespace headway {

namespace {

// Fewer multiplications than this do not tell the tile model anew: they only correct it nearby.
constexpr std::size_t kEnoughForModel = 40;
// Fewer attention points than this do not tell a kernel's rates.
constexpr std::size_t kEnoughForRate = 8;
constexpr std::size_t kEnoughForCurve = 3;
constexpr double kCurveBand = 0.1;  // as of the shipped curves
constexpr double kMicro = 1e-6;

class Fitter {
 public:
  Fitter(const PointSet& points, const Profile& base) : points_(points), profile_(base) {}

  PointsFit run() {
    fit_gemms();
    fit_attention_kernels();
    fit_memory_bound();
    fit_collectives();
    if (!points_.sends.empty()) ignore("messages are not fitted", points_.sends.size());
    if (!points_.experts.empty()) ignore("expert kernels are not fitted", points_.experts.size());
    if (result_.used == 0) {
      throw InvalidInput("fit", "",
                         "none of the points can be fitted for " + profile_.device.name +
                             "; expected points of it (column gpu)");
    }
    result_.profile = std::move(profile_);
    return std::move(result_);
  }

 private:
  void ignore(const std::string& why, std::size_t count = 1) {
    result_.ignored[why] += static_cast<int>(count);
  }

  // Whether a row is of the device and unmarked; `ignored` says why not.
  template <typename Row>
  bool usable(const Row& row) {
    const auto device = device_of_gpu(row.gpu);
    if (device != profile_.device.name) {
      ignore("of " + row.gpu);
      return false;
    }
    if (!row.flag.empty() || row.source.starts_with("aic-vllm")) {
      ignore("marked as unfit");
      return false;
    }
    ++result_.used;
    return true;
  }

  static Regime trained(Regime regime) {
    return regime == Regime::kInFramework ? Regime::kSustained : regime;
  }

  void fit_gemms() {
    std::map<DataType, std::vector<GemmSample>> by_type;
    for (const GemmRow& row : points_.gemm) {
      const auto role = recipes::role_of(row.layout);
      const auto type = data_type_named(row.dtype);
      const GemmTable* table = type ? profile_.gemm_table(*type) : nullptr;
      if (device_of_gpu(row.gpu) == profile_.device.name && (!role || table == nullptr)) {
        ignore(role ? "multiplications of " + row.dtype : "layout " + row.layout);
        continue;
      }
      if (!usable(row)) continue;
      const Regime regime = trained(regime_of(row.source).value_or(Regime::kBurst));
      by_type[table->types.front()].push_back(
          {row.shape, *role, regime, row.time_us * kMicro, row.source});
    }
    for (auto& [type, samples] : by_type) fit_gemm(type, std::move(samples));
  }

  void fit_gemm(DataType type, std::vector<GemmSample> samples) {
    const auto table = std::find_if(
        profile_.gemms.begin(), profile_.gemms.end(),
        [&, type = type](const GemmTable& each) { return each.types.front() == type; });
    const GemmDevice device = recipes::gemm_device(profile_.device, type);
    const std::string reference = most_common_source(samples);
    if (samples.size() < kEnoughForModel) {
      add_gemm_points(samples, *table);
      return;
    }
    GemmTable start = *table;
    start.points.clear();
    start.floor = Grade::kMeasured;
    start.source = "fitted to " + std::to_string(samples.size()) + " points, levelled to " +
                   (reference.empty() ? "the forward ones" : reference);
    *table = fit_gemm_table(samples, device, start, reference);
    const std::vector<GemmSample> levelled =
        level_sources(samples, table->model, device, reference);
    const LeftOutErrors errors = cross_validate(levelled, *table, device, true);
    std::map<Regime, std::vector<double>> by_regime;
    for (std::size_t i = 0; i < levelled.size(); ++i) {
      by_regime[levelled[i].regime].push_back(errors.errors[i]);
    }
    for (auto& [regime, some] : by_regime) {
      result_.left_out.push_back({"gemm " + std::string(name(type)), std::string(name(regime)),
                                  summarize(std::move(some))});
    }
  }

  // The source of most forward multiplications.
  static std::string most_common_source(const std::vector<GemmSample>& samples) {
    std::map<std::string, int> counts;
    for (const GemmSample& sample : samples) {
      if (sample.role == GemmRole::kForward) ++counts[sample.source];
    }
    const auto most =
        std::max_element(counts.begin(), counts.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    return most == counts.end() ? "" : most->first;
  }

  // New points beside those of the table; at the same place they replace them.
  static void add_gemm_points(const std::vector<GemmSample>& samples, GemmTable& table) {
    for (const GemmSample& sample : samples) {
      std::erase_if(table.points, [&](const GemmPoint& point) {
        return point.shape == sample.shape && point.role == sample.role &&
               point.regime == sample.regime;
      });
      table.points.push_back(
          {sample.shape, sample.role, sample.regime, Time::from_seconds(sample.seconds)});
    }
    table.source += "; " + std::to_string(samples.size()) + " points added";
  }

  void fit_attention_kernels() {
    std::map<std::string, std::vector<AttentionSample>> by_implementation;
    for (const AttentionRow& row : points_.attention) {
      if (!usable(row)) continue;
      const AttentionPass pass = row.kind == "fwd"   ? AttentionPass::kForward
                                 : row.kind == "bwd" ? AttentionPass::kBackward
                                                     : AttentionPass::kBoth;
      by_implementation[row.implementation].push_back({row.point, pass, false});
    }
    for (const auto& [implementation, samples] : by_implementation) {
      if (samples.size() < kEnoughForRate) {
        ignore("fewer than " + std::to_string(kEnoughForRate) + " points of " + implementation,
               samples.size());
        continue;
      }
      fit_attention_kernel(implementation, samples);
    }
  }

  void fit_attention_kernel(const std::string& implementation,
                            const std::vector<AttentionSample>& samples) {
    const auto kernel = recipes::attention_kernel_of(implementation);
    const auto measured = [&](AttentionPass pass) {
      return std::any_of(samples.begin(), samples.end(), [&](const AttentionSample& sample) {
        return sample.pass == pass || sample.pass == AttentionPass::kBoth;
      });
    };
    const AttentionKernel called = kernel.value_or(AttentionKernel::kCudnn);
    const AttentionRate* forward = profile_.attention_rate(called, false);
    const AttentionRate* backward = profile_.attention_rate(called, true);
    const double ratio = forward != nullptr && backward != nullptr
                             ? backward->rate.per_second / forward->rate.per_second
                             : 1;
    AttentionFit fit = fit_attention(samples, called, profile_.device.multiprocessors, ratio);
    result_.left_out.push_back({"attention " + implementation, "burst", fit.left_out});
    for (AttentionRate* rate : {&fit.forward, &fit.backward}) {
      if (!measured(rate->backward ? AttentionPass::kBackward : AttentionPass::kForward)) continue;
      rate->implementation = kernel ? "" : implementation;
      rate->source = "fitted to " + std::to_string(samples.size()) + " points";
      const auto old = std::find_if(
          profile_.attention.begin(), profile_.attention.end(), [&](const AttentionRate& each) {
            return each.kernel == rate->kernel && each.backward == rate->backward &&
                   each.implementation == rate->implementation;
          });
      if (old == profile_.attention.end()) {
        profile_.attention.push_back(*rate);
      } else {
        rate->sustained_factor = old->sustained_factor;
        *old = *rate;
      }
    }
  }

  void fit_memory_bound() {
    std::set<std::string> gpus;
    for (const ElementwiseRow& row : points_.elementwise) {
      if (usable(row)) gpus.insert(row.gpu);
    }
    std::vector<MeasuredKernel>& measured = profile_.memory.measured;
    for (const std::string& gpu : gpus) {
      for (const MeasuredKernel& kernel : fit_kernels(points_.elementwise, gpu)) {
        result_.left_out.push_back(
            {kernel.operation + " " + kernel.pass, "burst", kernel.left_out});
        std::erase_if(measured, [&](const MeasuredKernel& each) {
          return each.operation == kernel.operation && each.pass == kernel.pass &&
                 each.type == kernel.type;
        });
        measured.push_back(kernel);
      }
    }
  }

  void fit_collectives() {
    std::map<std::pair<CollectiveKind, int>, std::vector<CurvePoint>> curves;
    for (const CollectiveRow& row : points_.collectives) {
      const auto kind = recipes::collective_kind_of(row.operation);
      if (!kind || row.network != "none(intra)") {
        ignore(kind ? "collectives over a network" : "operation " + row.operation);
        continue;
      }
      if (usable(row)) curves[{*kind, row.ranks}].push_back({row.bytes, row.time_us});
    }
    for (auto& [key, points] : curves) {
      const auto& [kind, ranks] = key;
      if (points.size() < kEnoughForCurve) {
        ignore("curves of fewer than " + std::to_string(kEnoughForCurve) + " sizes", points.size());
        continue;
      }
      result_.left_out.push_back(
          {std::string(name(kind)) + " of " + std::to_string(ranks), "burst", left_out_of(points)});
      std::erase_if(profile_.collectives, [&, kind = kind, ranks = ranks](const auto& curve) {
        return curve.kind == kind && curve.ranks == ranks && curve.nodes == 1;
      });
      const std::string source = std::to_string(points.size()) + " points";
      profile_.collectives.push_back(
          {kind, ranks, 1, Curve(std::move(points)), Grade::kMeasured, kCurveBand, source});
    }
  }

  // Errors of the curve through the other sizes at each size between its ends.
  static FitError left_out_of(const std::vector<CurvePoint>& points) {
    const auto [least, most] =
        std::minmax_element(points.begin(), points.end(),
                            [](const CurvePoint& a, const CurvePoint& b) { return a.x < b.x; });
    std::vector<double> errors;
    for (const CurvePoint& point : points) {
      if (point.x <= least->x || point.x >= most->x) continue;
      std::vector<CurvePoint> others;
      for (const CurvePoint& each : points) {
        if (each.x != point.x) others.push_back(each);
      }
      errors.push_back(Curve(std::move(others)).at(point.x) / point.y - 1);
    }
    return summarize(std::move(errors));
  }

  const PointSet& points_;
  Profile profile_;
  PointsFit result_;
};

}  // namespace

PointsFit fit_points(const PointSet& points, const Profile& base) {
  return Fitter(points, base).run();
}

std::string left_out_text(const std::vector<LeftOut>& left_out) {
  char line[160];
  std::snprintf(line, sizeof line, "%-44s %-12s %6s %10s %10s %11s\n", "points left out", "regime",
                "count", "median", "p90", "worst");
  std::string text = line;
  for (const LeftOut& each : left_out) {
    if (each.errors.count == 0) continue;
    std::snprintf(line, sizeof line, "%-44s %-12s %6d %8.1f %% %8.1f %% %9.1f %%\n",
                  each.what.c_str(), each.regime.c_str(), each.errors.count,
                  100 * each.errors.median, 100 * each.errors.p90, 100 * each.errors.worst);
    text += line;
  }
  return text;
}

}  // namespace headway
