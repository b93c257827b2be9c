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
constexpr int kEvaluations = 6000;
constexpr double kStep = 0.3;
// Launch and prologue of a kernel; the smallest measured kernels are far longer, so it is not
// fitted.
constexpr double kPerKernelUs = 5;
constexpr double kMostTail = 4;
// What a parameter that its samples do not decide stays near: a pull of this strength per unit.
constexpr double kPull = 0.02;

// What is fitted; logarithms of rates and factors.
enum Parameter : std::size_t {
  kRate,
  kBackwardOverForward,
  kHalfCausal,
  kHalfFull,
  kCausal,
  kTail,
  kTailBackward,
  kHead64,
  kHead160,
  kHead160Backward,
  kHead256,
  kSister,
  kParameters
};
using Parameters = std::vector<double>;

struct Decoded {
  AttentionRate forward, backward;
  double sister = 1;
};

Decoded decode(const Parameters& x, AttentionKernel kernel) {
  Decoded decoded;
  AttentionRate& forward = decoded.forward;
  forward.kernel = kernel;
  forward.rate.per_second = std::exp(x[kRate]) * 1e12;
  forward.per_kernel = Time::from_microseconds(kPerKernelUs);
  forward.half_sequence = std::exp(x[kHalfCausal]);
  forward.half_sequence_full = std::exp(x[kHalfFull]);
  forward.causal_factor = std::exp(x[kCausal]);
  forward.tail_waves = std::clamp(x[kTail], 0.0, kMostTail);
  // 160: the mean of 192 and 128, the heads of multi-head latent attention.
  forward.head_factor = {{64, std::exp(x[kHead64])},
                         {128, 1.0},
                         {160, std::exp(x[kHead160])},
                         {256, std::exp(x[kHead256])}};
  decoded.backward = forward;
  decoded.backward.backward = true;
  decoded.backward.rate.per_second = std::exp(x[kRate] + x[kBackwardOverForward]) * 1e12;
  decoded.backward.tail_waves = std::clamp(x[kTailBackward], 0.0, kMostTail);
  decoded.backward.head_factor[160] = std::exp(x[kHead160Backward]);
  decoded.sister = std::exp(x[kSister]);
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

Parameters start_of(const std::vector<AttentionSample>& samples, AttentionKernel kernel,
                    double backward_ratio) {
  double fastest = 0;
  for (const AttentionSample& sample : samples) {
    double flops = 0;
    for (const bool backward : {false, true}) {
      if (sample.pass == (backward ? AttentionPass::kForward : AttentionPass::kBackward)) continue;
      flops += executed_flops(shape_of(sample.point, backward, kernel)).count;
    }
    fastest = std::max(fastest, flops / sample.point.time.seconds());
  }
  Parameters start(kParameters, 0.0);
  start[kRate] = std::log(fastest * 1e-12);
  start[kBackwardOverForward] = std::log(backward_ratio);
  start[kHalfCausal] = std::log(300.0);
  start[kHalfFull] = std::log(50.0);
  start[kTail] = start[kTailBackward] = 0.2;
  start[kHead64] = std::log(0.9);
  return start;
}

// The parameters that the samples tell; the others are held where they start.
std::vector<std::size_t> free_parameters(const std::vector<AttentionSample>& samples) {
  const auto any = [&](auto holds) { return std::any_of(samples.begin(), samples.end(), holds); };
  const auto with_head = [&](std::int64_t least, std::int64_t most) {
    return any([=](const AttentionSample& s) {
      const std::int64_t mean = (s.point.head_dim + s.point.head_dim_v) / 2;
      return mean >= least && mean <= most;
    });
  };
  const bool causal = any([](const AttentionSample& s) { return s.point.causal; });
  const bool full = any([](const AttentionSample& s) { return !s.point.causal; });
  const bool forward =
      any([](const AttentionSample& s) { return s.pass == AttentionPass::kForward; });
  const bool backward =
      any([](const AttentionSample& s) { return s.pass != AttentionPass::kForward; });
  std::vector<std::size_t> free = {kRate, kTail};
  const auto free_if = [&](bool told, Parameter parameter) {
    if (told) free.push_back(parameter);
  };
  free_if(forward && backward, kBackwardOverForward);
  free_if(backward, kTailBackward);
  free_if(causal, kHalfCausal);
  free_if(full, kHalfFull);
  free_if(causal && full, kCausal);
  free_if(with_head(1, 96), kHead64);
  free_if(with_head(129, 192), kHead160);
  free_if(with_head(129, 192) && backward, kHead160Backward);
  free_if(with_head(193, 512), kHead256);
  free_if(any([](const AttentionSample& s) { return s.sister; }), kSister);
  return free;
}

struct Question {
  AttentionKernel kernel = AttentionKernel::kFlash2;
  int multiprocessors = 1;
  double backward_ratio = 1;
  std::optional<FlopRate> fastest;
};

Parameters solve(const std::vector<AttentionSample>& samples, const Question& question) {
  const auto& [kernel, multiprocessors, backward_ratio, fastest] = question;
  const Parameters start = start_of(samples, kernel, backward_ratio);
  const std::vector<std::size_t> free = free_parameters(samples);
  const auto expanded = [&, fastest = fastest](const std::vector<double>& part) {
    Parameters x = start;
    for (std::size_t i = 0; i < free.size(); ++i) x[free[i]] = part[i];
    if (fastest) x[kRate] = std::min(x[kRate], std::log(fastest->per_second * 1e-12));
    return x;
  };
  const auto loss = [&, kernel = kernel,
                     multiprocessors = multiprocessors](const std::vector<double>& part) {
    const Decoded decoded = decode(expanded(part), kernel);
    double sum = 0;
    for (const AttentionSample& sample : samples) {
      const Parts parts = predicted(decoded, sample, multiprocessors);
      sum += std::abs(std::log((parts.forward + parts.backward) / sample.point.time.seconds()));
    }
    for (std::size_t i = 0; i < free.size(); ++i) {
      if (free[i] != kRate) sum += kPull * std::abs(part[i] - start[free[i]]);
    }
    return sum;
  };
  std::vector<double> first;
  for (const std::size_t each : free) first.push_back(start[each]);
  return expanded(nelder_mead(loss, first, kStep, kEvaluations));
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
                           int multiprocessors, double backward_ratio,
                           std::optional<FlopRate> fastest) {
  const Question question{kernel, multiprocessors, backward_ratio, fastest};
  AttentionFit fit;
  const Decoded decoded = decode(solve(samples, question), kernel);
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
    const Decoded partial = decode(solve(others, question), kernel);
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
