// Fits the rates of a fused attention kernel, forward and backward together, as many sources
// measure only their sum.
#pragma once

#include <optional>
#include <vector>

#include "sim/cost/profile.hpp"

namespace headway {

enum class AttentionPass : std::uint8_t { kForward, kBackward, kBoth };
struct AttentionSample {
  AttentionPoint point;
  AttentionPass pass = AttentionPass::kForward;
  // Measured on a sister of the device: its times are all longer by one factor, which is fitted.
  bool sister = false;
};

struct AttentionFit {
  AttentionRate forward, backward;
  FitError left_out;           // on left-out shapes, of whatever pass was measured
  std::vector<double> errors;  // in order of the samples
};

// `backward_ratio`: rate backward over forward, where no sample tells it. `fastest`: the most that
// the kernel reaches forward at any shape, where its authors say so; samples of short sequences
// alone do not tell it.
AttentionFit fit_attention(const std::vector<AttentionSample>& samples, AttentionKernel kernel,
                           int multiprocessors, double backward_ratio,
                           std::optional<FlopRate> fastest = std::nullopt);

}  // namespace headway
