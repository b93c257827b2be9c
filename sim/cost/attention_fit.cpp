#include "sim/cost/attention_fit.hpp"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "sim/cost/attention_cost.hpp"
#include "sim/cost/gemm_fit.hpp"
#include "sim/cost/nelder_mead.hpp"

namespace headway {

namespace {

constexpr int kFolds = 5;
constexpr int kEvaluations = 3000;
constexpr double kStep = 0.3;
// Launch and prologue of a kernel; the smallest measured kernels are far longer, so it is not
// fitted.
constexpr double kPerKernelUs = 5;
// What a parameter that its samples do not decide stays near: a pull of this strength per unit.
constexpr double kPull = 0.02;

using Parameters = std::vector<double>;

struct Decoded {
  AttentionRate forward, backward;
  double sister = 1;
};

Decoded decode(const Parameters& x, AttentionKernel kernel) {
  Decoded decoded;
  AttentionRate& forward = decoded.forward;
  forward.kernel = kernel;
  forward.rate.per_second = std::exp(x[0]) * 1e12;
  forward.per_kernel = Time::from_microseconds(kPerKernelUs);
  forward.half_sequence = std::exp(x[2]);
  forward.half_sequence_full = std::exp(x[3]);
  forward.causal_factor = std::exp(x[4]);
  forward.tail_waves = std::clamp(x[5], 0.0, 4.0);
  forward.head_factor = {{64, std::exp(x[6])}, {128, 1.0}, {256, std::exp(x[7])}};
  decoded.backward = forward;
  decoded.backward.backward = true;
  decoded.backward.rate.per_second = std::exp(x[0] + x[1]) * 1e12;
  decoded.sister = std::exp(x[8]);
  return decoded;
}

Attention shape_of(const AttentionPoint& point, bool backward, AttentionKernel kernel) {
  Attention attention;
  attention.backward = backward;
  attention.kernel = kernel;
  attention.batch = point.batch;
  attention.heads = point.heads;
  attention.kv_heads = point.kv_heads;
  attention.sequence_q = attention.sequence_kv = point.sequence;
  attention.head_dim = point.head_dim;
  attention.head_dim_v = point.head_dim_v;
  attention.causal = point.causal;
  return attention;
}

struct Parts {
  double forward = 0, backward = 0;
};

Parts predicted(const Decoded& decoded, const AttentionSample& sample, int multiprocessors) {
  const AttentionKernel kernel = decoded.forward.kernel;
  const double scale = sample.sister ? decoded.sister : 1;
  Parts parts;
  if (sample.pass != AttentionPass::kBackward) {
    parts.forward = scale * model_seconds(decoded.forward, multiprocessors,
                                          shape_of(sample.point, false, kernel));
  }
  if (sample.pass != AttentionPass::kForward) {
    parts.backward = scale * model_seconds(decoded.backward, multiprocessors,
                                           shape_of(sample.point, true, kernel));
  }
  return parts;
}

Parameters solve(const std::vector<AttentionSample>& samples, AttentionKernel kernel,
                 int multiprocessors, double backward_ratio) {
  double fastest = 1e12;
  for (const AttentionSample& sample : samples) {
    Attention shape = shape_of(sample.point, sample.pass == AttentionPass::kBackward, kernel);
    double flops = executed_flops(shape).count;
    if (sample.pass == AttentionPass::kBoth) {
      shape.backward = true;
      flops += executed_flops(shape).count;
    }
    fastest = std::max(fastest, flops / sample.point.time.seconds());
  }
  const Parameters start = {std::log(fastest * 1e-12),
                            std::log(backward_ratio),
                            std::log(300.0),
                            std::log(50.0),
                            0,
                            0.2,
                            std::log(0.9),
                            0,
                            0};
  const auto loss = [&](const Parameters& x) {
    const Decoded decoded = decode(x, kernel);
    double sum = 0;
    for (const AttentionSample& sample : samples) {
      const Parts parts = predicted(decoded, sample, multiprocessors);
      sum += std::abs(std::log((parts.forward + parts.backward) / sample.point.time.seconds()));
    }
    for (std::size_t i = 1; i < x.size(); ++i) sum += kPull * std::abs(x[i] - start[i]);
    return sum;
  };
  return nelder_mead(loss, start, kStep, kEvaluations);
}

// Measured points of one direction; of a sum, each direction gets the share that the model gives
// it.
void add_points(const std::vector<AttentionSample>& samples, const Decoded& decoded,
                int multiprocessors, AttentionRate& forward, AttentionRate& backward) {
  for (const AttentionSample& sample : samples) {
    const Parts parts = predicted(decoded, sample, multiprocessors);
    const double scale = (sample.sister ? 1 / decoded.sister : 1) * sample.point.time.seconds() /
                         (parts.forward + parts.backward);
    AttentionPoint point = sample.point;
    if (parts.forward > 0) {
      point.time = Time::from_seconds(parts.forward * scale);
      forward.points.push_back(point);
    }
    if (parts.backward > 0) {
      point.time = Time::from_seconds(parts.backward * scale);
      backward.points.push_back(point);
    }
  }
}

auto shape_key(const AttentionSample& sample) {
  const AttentionPoint& point = sample.point;
  return std::tuple(point.sequence, point.batch, point.heads, point.kv_heads, point.head_dim,
                    point.causal);
}

}  // namespace

AttentionFit fit_attention(const std::vector<AttentionSample>& samples, AttentionKernel kernel,
                           int multiprocessors, double backward_ratio) {
  AttentionFit fit;
  const Decoded decoded = decode(solve(samples, kernel, multiprocessors, backward_ratio), kernel);
  fit.forward = decoded.forward;
  fit.backward = decoded.backward;
  add_points(samples, decoded, multiprocessors, fit.forward, fit.backward);

  std::map<decltype(shape_key(samples[0])), int> fold_of;
  for (const AttentionSample& sample : samples) fold_of[shape_key(sample)];
  int next = 0;
  for (auto& [key, fold] : fold_of) fold = next++ % kFolds;
  fit.errors.assign(samples.size(), 0);
  for (int fold = 0; fold < kFolds; ++fold) {
    std::vector<AttentionSample> others;
    for (const AttentionSample& sample : samples) {
      if (fold_of[shape_key(sample)] != fold) others.push_back(sample);
    }
    if (others.empty() || others.size() == samples.size()) continue;
    const Decoded partial = decode(solve(others, kernel, multiprocessors, backward_ratio), kernel);
    AttentionRate forward = partial.forward;
    AttentionRate backward = partial.backward;
    add_points(others, partial, multiprocessors, forward, backward);
    const AttentionCost forward_cost(forward, multiprocessors);
    const AttentionCost backward_cost(backward, multiprocessors);
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const AttentionSample& sample = samples[i];
      if (fold_of[shape_key(sample)] != fold) continue;
      double seconds = 0;
      if (sample.pass != AttentionPass::kBackward) {
        const Attention shape = shape_of(sample.point, false, kernel);
        seconds += forward_cost.price(shape, Regime::kBurst).time.seconds();
      }
      if (sample.pass != AttentionPass::kForward) {
        const Attention shape = shape_of(sample.point, true, kernel);
        seconds += backward_cost.price(shape, Regime::kBurst).time.seconds();
      }
      if (sample.sister) seconds *= partial.sister;
      fit.errors[i] = seconds / sample.point.time.seconds() - 1;
    }
  }
  fit.left_out = summarize(fit.errors);
  fit.forward.left_out = fit.backward.left_out = fit.left_out;
  fit.forward.band = fit.backward.band = fit.left_out.p90;
  return fit;
}

}  // namespace headway
