// Why a step takes as long as it does, in words, and what more of each resource would buy: the step
// simulated again on a machine that has a tenth more of it. What a tenth more memory buys is what
// it lets a plan leave out: the best choice of recomputation and micro-batch that then fits,
// against the best that fits now.
#pragma once

#include <string>
#include <vector>

#include "sim/plan/job.hpp"
#include "sim/report/step_report.hpp"
#include "sim/search/machine_change.hpp"

namespace headway {

// How much more of each resource is asked about.
inline constexpr double kMoreOfAResource = 1.1;

struct ResourceGain {
  Resource resource = Resource::kMatrixRate;
  // The step now and with more of the resource; for memory, of the best choices that fit.
  Time before, after;
  std::string how;  // memory: the choice that becomes possible

  // The share of the step that is saved.
  double share() const {
    return before > Time::zero() ? 1 - after.seconds() / before.seconds() : 0;
  }
};

struct Explanation {
  Job job;
  StepReport report = {};
  std::vector<ResourceGain> gains = {};          // largest first
  std::vector<std::string> without_effect = {};  // resources that the job does not use
};

// Throws InvalidInput with every problem of the job; the schedule must not deadlock.
Explanation explain(const JsonNode& job, const std::vector<JobOverride>& overrides, int threads);

std::string explanation_text(const Explanation& explanation);
std::string explanation_json(const Explanation& explanation);

}  // namespace headway
