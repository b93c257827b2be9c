#include "sim/cost/gemm_cost.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

namespace headway {

namespace {

// Ways of cutting the depth among blocks that cuBLAS tries (split-k).
constexpr std::array<std::int64_t, 4> kSplits = {1, 2, 4, 8};
// The partial sums of a split are written and added by a second pass over the output.
constexpr double kSplitPassBytes = 8;  // fp32, written and read
// Blocks cut the depth in steps of this many elements; less is no work for a split.
constexpr std::int64_t kLeastDepth = 256;

// Blocks walk the depth in steps of 32 elements: 80 costs as much as 96.
constexpr std::int64_t kDepthStep = 32;

// A point of another role or regime is this many octaves farther away.
constexpr float kRoleDistance = 0.7F;
constexpr float kRegimeDistance = 0.6F;

// Nearer than this (octaves), neighbours decide: "measured". Farther, the model does.
constexpr double kMeasuredDistance = 0.6;
constexpr double kFittedDistance = 2.5;
constexpr double kRepeatBand = 0.03;         // a measured shape, repeated
constexpr double kExtrapolatedWidening = 2;  // of the model's band, beyond its points
constexpr double kUnknownBand = 0.3;         // of a table that states no errors

Neighbours::Place place_of(const GemmShape& shape, GemmRole role, Regime regime) {
  const float side =
      kRoleDistance * static_cast<float>(role) + (regime == Regime::kBurst ? 0.F : kRegimeDistance);
  return {static_cast<float>(std::log2(static_cast<double>(shape.rows))),
          static_cast<float>(std::log2(static_cast<double>(shape.columns))),
          static_cast<float>(std::log2(static_cast<double>(shape.depth))), side};
}

double ceil_div(std::int64_t a, std::int64_t b) { return static_cast<double>((a + b - 1) / b); }

}  // namespace

double model_seconds(const GemmModel& model, const GemmDevice& device, const GemmShape& shape,
                     std::int64_t batch) {
  const double rows = static_cast<double>(shape.rows);
  const double columns = static_cast<double>(shape.columns);
  const double depth = static_cast<double>(shape.depth);
  const double stepped =
      static_cast<double>((shape.depth + kDepthStep - 1) / kDepthStep * kDepthStep);
  const double count = static_cast<double>(batch);
  const double processors = device.multiprocessors;
  const double per_processor = device.peak / processors;
  double compute = std::numeric_limits<double>::infinity();
  for (const GemmTile& tile : model.tiles) {
    const double blocks =
        count * ceil_div(shape.rows, tile.rows) * ceil_div(shape.columns, tile.columns);
    const double tile_flops = 2.0 * tile.rows * tile.columns;
    for (const std::int64_t split : kSplits) {
      if (split > 1 && shape.depth < split * kLeastDepth) break;
      const double cut = static_cast<double>(split);
      const double ratio = blocks * cut / processors;
      const double waves =
          std::max(1.0, model.wave_softness * ratio + (1 - model.wave_softness) * std::ceil(ratio));
      double seconds = waves * (model.per_wave.seconds() +
                                tile_flops * stepped / cut / (tile.efficiency * per_processor));
      if (split > 1) {
        seconds += count * rows * columns * kSplitPassBytes * cut /
                   (model.memory_share * device.memory_bandwidth);
      }
      compute = std::min(compute, seconds);
    }
  }
  const double bytes = count * ((rows + columns) * depth * device.input_bytes +
                                rows * columns * device.output_bytes);
  const double memory = bytes / (model.memory_share * device.memory_bandwidth);
  const double compute2 = compute * compute;
  const double memory2 = memory * memory;
  return model.per_kernel.seconds() + std::sqrt(std::sqrt(compute2 * compute2 + memory2 * memory2));
}

bool misaligned(const GemmShape& shape) {
  return shape.rows % 8 != 0 || shape.columns % 8 != 0 || shape.depth % 8 != 0;
}

GemmCost::GemmCost(const GemmTable& table, const GemmDevice& device)
    : table_(table), device_(device) {
  std::vector<Neighbours::Sample> samples;
  samples.reserve(table.points.size());
  for (const GemmPoint& point : table.points) {
    const double plain = plain_seconds(point.shape, point.role, point.regime);
    samples.push_back(
        {place_of(point.shape, point.role, point.regime), std::log(point.time.seconds() / plain)});
  }
  neighbours_ = Neighbours(std::move(samples), table.reach, table.power);
  for (std::size_t role = 0; role < kRoles; ++role) {
    for (std::size_t regime = 0; regime < kRegimes; ++regime) {
      witnesses_[role][regime] = witness(static_cast<GemmRole>(role), static_cast<Regime>(regime));
    }
  }
}

GemmCost::Witness GemmCost::witness(GemmRole role, Regime regime) const {
  const auto has = [&](GemmRole wanted, Regime in) {
    return std::any_of(table_.points.begin(), table_.points.end(), [&](const GemmPoint& point) {
      return point.role == wanted && point.regime == in;
    });
  };
  if (has(role, regime)) return {role, regime};
  if (has(role, Regime::kBurst)) return {role, Regime::kBurst};
  if (has(GemmRole::kForward, regime)) return {GemmRole::kForward, regime};
  return {GemmRole::kForward, Regime::kBurst};
}

double GemmCost::factor(GemmRole role, Regime regime) const {
  double factor = regime == Regime::kBurst ? 1 : table_.sustained_factor;
  if (role == GemmRole::kInputGradient) factor *= table_.input_gradient_factor;
  if (role == GemmRole::kWeightGradient) factor *= table_.weight_gradient_factor;
  return factor;
}

double GemmCost::plain_seconds(const GemmShape& shape, GemmRole role, Regime regime,
                               std::int64_t batch) const {
  double seconds = model_seconds(table_.model, device_, shape, batch) * factor(role, regime);
  if (misaligned(shape)) seconds *= table_.misaligned_factor;
  return seconds;
}

Price GemmCost::price(const GemmShape& shape, GemmRole role, Regime regime,
                      std::int64_t batch) const {
  const double plain = plain_seconds(shape, role, regime, batch);
  const Witness& by = witnesses_[static_cast<std::size_t>(role)][static_cast<std::size_t>(regime)];
  // A batch is measured nowhere: the points correct single multiplications only.
  const Neighbours::Correction correction =
      batch == 1 && !misaligned(shape) ? neighbours_.at(place_of(shape, by.role, by.regime))
                                       : Neighbours::Correction{};
  const double near_band = table_.left_out.count > 0 ? table_.left_out.p90 : kUnknownBand;
  const double far_band = table_.model_alone.count > 0 ? table_.model_alone.p90 : kUnknownBand;
  Price price{Time::from_seconds(plain * std::exp(correction.residual)), Grade::kMeasured,
              kRepeatBand};
  if (correction.distance > kFittedDistance) {
    price.grade = batch == 1 ? Grade::kExtrapolated : Grade::kFitted;
    price.band = far_band * (batch == 1 ? kExtrapolatedWidening : 1);
  } else if (correction.distance > kMeasuredDistance) {
    price.grade = Grade::kFitted;
    price.band = far_band;
  } else if (correction.distance > 0) {
    price.band = near_band;
  }
  if (by.role != role) price.grade = std::max(price.grade, Grade::kFitted);
  price.grade = std::max(price.grade, table_.floor);
  if (table_.floor == Grade::kExtrapolated) price.band = std::max(price.band, kUnknownBand);
  if (regime != by.regime) price.band += table_.sustained_band;
  return price;
}

}  // namespace headway
