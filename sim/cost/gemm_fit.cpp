#include "sim/cost/gemm_fit.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "sim/cost/nelder_mead.hpp"

namespace headway {

namespace {

constexpr int kFolds = 5;
constexpr int kEvaluations = 1500;
constexpr double kStep = 0.15;
// Below this many samples a regime or role tells no factor of its own.
constexpr std::size_t kEnoughForFactor = 8;
// Grid of the neighbours' weights.
constexpr std::array kReaches = {0.8, 1.2, 1.8, 2.5, 4.0};
constexpr std::array kPowers = {2.0, 3.0, 4.0};
// Efficiencies and shares stay below this: no kernel beats the peak.
constexpr double kMostEfficiency = 0.98;

double bounded(double value, double least, double most) { return std::clamp(value, least, most); }

// The parameters behind a model: an efficiency for each tile shape (both orientations share it),
// then the other numbers.
GemmModel decode(const std::vector<double>& x, const GemmModel& like) {
  GemmModel model;
  std::size_t at = 0;
  for (const GemmTile& tile : like.tiles) {
    if (tile.rows < tile.columns) continue;
    const double efficiency = bounded(std::exp(x[at++]), 0.05, kMostEfficiency);
    model.tiles.push_back({tile.rows, tile.columns, efficiency});
    if (tile.rows != tile.columns) model.tiles.push_back({tile.columns, tile.rows, efficiency});
  }
  model.per_kernel = Time::from_microseconds(std::exp(bounded(x[at++], -3, 5)));
  model.per_wave = Time::from_microseconds(std::exp(bounded(x[at++], -5, 3)));
  model.wave_softness = bounded(x[at++], 0, 1);
  model.memory_share = bounded(std::exp(x[at++]), 0.1, 1.2);
  return model;
}

std::vector<double> encode(const GemmModel& model) {
  std::vector<double> x;
  for (const GemmTile& tile : model.tiles) {
    if (tile.rows >= tile.columns) x.push_back(std::log(tile.efficiency));
  }
  x.push_back(std::log(std::max(0.1, model.per_kernel.microseconds())));
  x.push_back(std::log(std::max(0.01, model.per_wave.microseconds())));
  x.push_back(model.wave_softness);
  x.push_back(std::log(model.memory_share));
  return x;
}

std::vector<GemmPoint> points_of(const std::vector<GemmSample>& samples) {
  std::vector<GemmPoint> points;
  for (const GemmSample& sample : samples) {
    points.push_back(
        {sample.shape, sample.role, sample.regime, Time::from_seconds(sample.seconds)});
  }
  return points;
}

// The median of log(measured / model) over the samples that `pick` takes; nothing where too few.
template <typename Pick>
std::optional<double> median_residual(const std::vector<GemmSample>& samples,
                                      const GemmModel& model, const GemmDevice& device, Pick pick) {
  std::vector<double> residuals;
  for (const GemmSample& sample : samples) {
    if (!pick(sample)) continue;
    residuals.push_back(std::log(sample.seconds / model_seconds(model, device, sample.shape)));
  }
  if (residuals.size() < kEnoughForFactor) return std::nullopt;
  return median(std::move(residuals));
}

void fit_factors(const std::vector<GemmSample>& samples, const GemmDevice& device,
                 GemmTable& table) {
  const auto factor = [&](Regime regime, GemmRole role) {
    return median_residual(samples, table.model, device, [&](const GemmSample& sample) {
      return sample.role == role && sample.regime == regime;
    });
  };
  const double burst = factor(Regime::kBurst, GemmRole::kForward).value_or(0);
  const auto forward = factor(Regime::kSustained, GemmRole::kForward);
  if (forward) table.sustained_factor = std::exp(*forward - burst);
  // Gradients are compared with forward multiplications of their own regime.
  const Regime regime = forward ? Regime::kSustained : Regime::kBurst;
  const double base = forward.value_or(burst);
  if (const auto input = factor(regime, GemmRole::kInputGradient)) {
    table.input_gradient_factor = std::exp(*input - base);
  }
  if (const auto weight = factor(regime, GemmRole::kWeightGradient)) {
    table.weight_gradient_factor = std::exp(*weight - base);
  }
}

}  // namespace

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

FitError summarize(std::vector<double> errors) {
  FitError summary;
  summary.count = static_cast<int>(errors.size());
  if (errors.empty()) return summary;
  for (double& error : errors) error = std::abs(error);
  std::sort(errors.begin(), errors.end());
  const auto at = [&](double share) {
    return errors[std::min(errors.size() - 1,
                           static_cast<std::size_t>(share * static_cast<double>(errors.size())))];
  };
  summary.median = at(0.5);
  summary.p90 = at(0.9);
  summary.worst = errors.back();
  return summary;
}

GemmModel fit_gemm_model(const std::vector<GemmSample>& samples, const GemmDevice& device,
                         const GemmModel& start, int evaluations) {
  const auto loss = [&](const std::vector<double>& x) {
    const GemmModel model = decode(x, start);
    double sum = 0;
    for (const GemmSample& sample : samples) {
      sum += std::abs(std::log(sample.seconds / model_seconds(model, device, sample.shape)));
    }
    return sum;
  };
  return decode(nelder_mead(loss, encode(start), kStep, evaluations), start);
}

std::vector<GemmSample> level_sources(std::vector<GemmSample> samples, const GemmModel& model,
                                      const GemmDevice& device, const std::string& reference) {
  const auto of_source = [&](const std::string& source) {
    return median_residual(samples, model, device, [&](const GemmSample& sample) {
      return sample.source == source && sample.role == GemmRole::kForward;
    });
  };
  const double level = of_source(reference).value_or(0);
  std::map<std::string, double> scale;
  for (const GemmSample& sample : samples) {
    // Sustained sources are levelled by the sustained factor, not here.
    if (sample.regime != Regime::kBurst || scale.contains(sample.source)) continue;
    scale[sample.source] = std::exp(level - of_source(sample.source).value_or(level));
  }
  std::map<std::tuple<GemmShape, GemmRole, Regime>, std::pair<double, int>> merged;
  for (const GemmSample& sample : samples) {
    const auto found = scale.find(sample.source);
    const double seconds = sample.seconds * (found == scale.end() ? 1 : found->second);
    auto& [sum, count] = merged[{sample.shape, sample.role, sample.regime}];
    sum += std::log(seconds);
    ++count;
  }
  std::vector<GemmSample> levelled;
  for (const auto& [key, value] : merged) {
    const auto& [shape, role, regime] = key;
    levelled.push_back({shape, role, regime, std::exp(value.first / value.second), reference});
  }
  return levelled;
}

LeftOutErrors cross_validate(const std::vector<GemmSample>& samples, const GemmTable& table,
                             const GemmDevice& device, bool refit) {
  std::map<std::pair<std::int64_t, std::int64_t>, int> fold_of;
  for (const GemmSample& sample : samples) fold_of[{sample.shape.columns, sample.shape.depth}];
  int next = 0;
  for (auto& [pair, fold] : fold_of) fold = next++ % kFolds;
  LeftOutErrors result;
  result.errors.assign(samples.size(), 0);
  std::vector<double> plain(samples.size(), 0);
  for (int fold = 0; fold < kFolds; ++fold) {
    const auto left_out = [&](const GemmSample& sample) {
      return fold_of[{sample.shape.columns, sample.shape.depth}] == fold;
    };
    std::vector<GemmSample> others;
    for (const GemmSample& sample : samples) {
      if (!left_out(sample)) others.push_back(sample);
    }
    GemmTable partial = table;
    partial.points = points_of(others);
    if (refit) {
      std::vector<GemmSample> burst;
      for (const GemmSample& sample : others) {
        if (sample.regime == Regime::kBurst && sample.role == GemmRole::kForward) {
          burst.push_back(sample);
        }
      }
      partial.model = fit_gemm_model(burst, device, table.model, kEvaluations / 3);
      fit_factors(others, device, partial);
    }
    const GemmCost cost(partial, device);
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const GemmSample& sample = samples[i];
      if (!left_out(sample)) continue;
      const Price price = cost.price(sample.shape, sample.role, sample.regime);
      result.errors[i] = price.time.seconds() / sample.seconds - 1;
      plain[i] = cost.plain_seconds(sample.shape, sample.role, sample.regime) / sample.seconds - 1;
    }
  }
  result.corrected = summarize(result.errors);
  result.model_alone = summarize(plain);
  return result;
}

GemmTable fit_gemm_table(const std::vector<GemmSample>& samples, const GemmDevice& device,
                         GemmTable start, const std::string& reference) {
  std::vector<GemmSample> first;
  for (const GemmSample& sample : samples) {
    if (sample.source == reference && sample.role == GemmRole::kForward) first.push_back(sample);
  }
  GemmTable table = std::move(start);
  table.model = fit_gemm_model(first, device, table.model, kEvaluations);
  const std::vector<GemmSample> levelled = level_sources(samples, table.model, device, reference);
  fit_factors(levelled, device, table);
  table.points = points_of(levelled);
  double best = 1e9;
  GemmTable chosen = table;
  for (const double reach : kReaches) {
    for (const double power : kPowers) {
      table.reach = reach;
      table.power = power;
      const FitError error = cross_validate(levelled, table, device, false).corrected;
      // The tail counts too: plans are lost to the shapes that are badly priced.
      const double value = error.median + 0.3 * error.p90;
      if (value < best) {
        best = value;
        chosen = table;
      }
    }
  }
  const LeftOutErrors errors = cross_validate(levelled, chosen, device, true);
  chosen.left_out = errors.corrected;
  chosen.model_alone = errors.model_alone;
  return chosen;
}

}  // namespace headway
