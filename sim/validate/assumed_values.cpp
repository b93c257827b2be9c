#include "sim/validate/assumed_values.hpp"

#include <algorithm>

#include "sim/price/memory.hpp"
#include "sim/program/training_step.hpp"

namespace headway {

namespace {

// The job on one device, one sequence at a time, without recomputation.
std::vector<JobOverride> alone() {
  return {{"plan.recompute", "none", ""}, {"plan.tp", "1", ""},          {"plan.pp", "1", ""},
          {"plan.micro_batch", "1", ""},  {"plan.schedule", "1f1b", ""}, {"cluster.gpus", "1", ""},
          {"global_batch", "1", ""}};
}

bool one_device_holds(const MeasuredRun& run, const Device& device) {
  Problems problems;
  const JobReading reading = read_job(run.job, alone(), problems);
  if (!problems.empty() || !reading.job) return false;
  return report_memory(*reading.job, lower(*reading.job), device).fits;
}

}  // namespace

std::vector<JobOverride> decide_assumed(const MeasuredRun& run, const Job& job,
                                        const Device& device) {
  const bool assumed =
      std::find(run.assumed.begin(), run.assumed.end(), "recompute") != run.assumed.end();
  if (!assumed || job.plan.recompute != Recompute::kFull || !one_device_holds(run, device)) {
    return {};
  }
  return {{"plan.recompute", "none", "assumed recompute"}};
}

}  // namespace headway
