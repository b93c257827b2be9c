#include "sim/cost/attention_cost.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace headway {

namespace {

constexpr std::int64_t kBlockRows =
    128;  // query rows of a thread block (FlashAttention-2, section 3.3)
constexpr double kBackwardFlops = 2.5;  // five matrix products against two
constexpr double kReach = 1.0;          // as GemmTable::reach, power
constexpr double kPower = 3.0;
constexpr double kMeasuredDistance = 0.6;
constexpr double kFarDistance = 2.5;
constexpr double kRepeatBand = 0.03;

double head_factor(const std::map<int, double>& factors, double head_dim) {
  if (factors.empty()) return 1;
  const auto above = factors.lower_bound(static_cast<int>(std::ceil(head_dim)));
  if (above == factors.end()) return factors.rbegin()->second;
  if (above == factors.begin() || above->first <= head_dim) return above->second;
  const auto below = std::prev(above);
  const double part = (head_dim - below->first) / (above->first - below->first);
  return below->second + part * (above->second - below->second);
}

Neighbours::Place place_of(const Attention& attention) {
  const auto heads = static_cast<double>(attention.batch * attention.heads);
  const double head_dim = 0.5 * static_cast<double>(attention.head_dim + attention.head_dim_v);
  return {static_cast<float>(std::log2(static_cast<double>(attention.sequence_q))),
          static_cast<float>(std::log2(heads)), static_cast<float>(2 * std::log2(head_dim)),
          attention.causal ? 0.F : 2.F};
}

Attention shape_of(const AttentionPoint& point, const AttentionRate& rate) {
  Attention attention;
  attention.backward = rate.backward;
  attention.batch = point.batch;
  attention.heads = point.heads;
  attention.kv_heads = point.kv_heads;
  attention.sequence_q = attention.sequence_kv = point.sequence;
  attention.head_dim = point.head_dim;
  attention.head_dim_v = point.head_dim_v;
  attention.causal = point.causal;
  attention.kernel = rate.kernel;
  return attention;
}

}  // namespace

Flops executed_flops(const Attention& attention) {
  double flops = 2.0 * static_cast<double>(attention.batch * attention.heads) *
                 static_cast<double>(attention.sequence_q) * keys_met(attention) *
                 static_cast<double>(attention.head_dim + attention.head_dim_v);
  if (attention.causal) flops *= 0.5;
  if (attention.backward) flops *= kBackwardFlops;
  return {flops};
}

double model_seconds(const AttentionRate& rate, int multiprocessors, const Attention& attention) {
  const double head_dim = 0.5 * static_cast<double>(attention.head_dim + attention.head_dim_v);
  const double sequence = keys_met(attention);
  const double half = attention.causal ? rate.half_sequence : rate.half_sequence_full;
  const double blocks = static_cast<double>(attention.batch * attention.heads *
                                            ((attention.sequence_q + kBlockRows - 1) / kBlockRows));
  const double waves = blocks / multiprocessors;
  const double effective = rate.rate.per_second * head_factor(rate.head_factor, head_dim) *
                           (attention.causal ? rate.causal_factor : 1) * sequence /
                           (sequence + half);
  return rate.per_kernel.seconds() +
         executed_flops(attention).count / effective * (1 + rate.tail_waves / waves);
}

AttentionCost::AttentionCost(const AttentionRate& rate, int multiprocessors)
    : rate_(rate), multiprocessors_(multiprocessors) {
  std::vector<Neighbours::Sample> samples;
  for (const AttentionPoint& point : rate.points) {
    const Attention attention = shape_of(point, rate);
    samples.push_back(
        {place_of(attention),
         std::log(point.time.seconds() / model_seconds(rate, multiprocessors_, attention))});
  }
  neighbours_ = Neighbours(std::move(samples), kReach, kPower);
}

// Of packed sequences: as many sequences of their mean document as have their tokens. Nobody has
// measured how far documents of many lengths in one kernel stay behind that.
Price AttentionCost::packed_price(Attention attention, Regime regime) const {
  const double documents = static_cast<double>(attention.batch * attention.sequence_q) /
                           static_cast<double>(attention.document);
  attention.batch = std::max<std::int64_t>(std::llround(documents), 1);
  attention.sequence_q = attention.sequence_kv = attention.document;
  attention.document = 0;
  Price result = price(attention, regime);
  result.time =
      Time::from_seconds(result.time.seconds() * documents / static_cast<double>(attention.batch));
  result.grade = Grade::kExtrapolated;
  return result;
}

Price AttentionCost::price(const Attention& attention, Regime regime) const {
  if (attention.document > 0) return packed_price(attention, regime);
  const Neighbours::Correction correction = neighbours_.at(place_of(attention));
  double seconds =
      model_seconds(rate_, multiprocessors_, attention) * std::exp(correction.residual);
  if (regime != Regime::kBurst) seconds *= rate_.sustained_factor;
  Price price{Time::from_seconds(seconds), Grade::kFitted, rate_.band};
  if (correction.distance <= kMeasuredDistance) price.grade = Grade::kMeasured;
  if (correction.distance <= 0) price.band = std::min(price.band, kRepeatBand);
  if (!rate_.points.empty() && correction.distance > kFarDistance) {
    price.grade = Grade::kExtrapolated;
    price.band *= 2;
  }
  // No window has been measured: what its blocks at the far edge compute in vain is not known.
  if (attention.window > 0) {
    price.grade = Grade::kExtrapolated;
    price.band *= 2;
  }
  price.grade = std::max(price.grade, rate_.floor);
  return price;
}

}  // namespace headway
