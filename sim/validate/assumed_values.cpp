#include "sim/validate/assumed_values.hpp"

#include <algorithm>
#include <string>

#include "sim/price/memory.hpp"
#include "sim/program/training_step.hpp"

namespace headway {

namespace {

// The job's micro-batch on one device, without recomputation.
std::vector<JobOverride> alone(const Job& job) {
  return {
      {"plan.recompute", "none", ""}, {"plan.tp", "1", ""},
      {"plan.pp", "1", ""},           {"plan.schedule", "1f1b", ""},
      {"cluster.gpus", "1", ""},      {"global_batch", std::to_string(job.plan.micro_batch), ""}};
}

bool one_device_holds(const MeasuredRun& run, const Job& job, const Device& device) {
  Problems problems;
  const JobReading reading = read_job(run.job, alone(job), problems);
  if (!problems.empty() || !reading.job) return false;
  return report_memory(*reading.job, lower(*reading.job), device).fits;
}

}  // namespace

std::vector<JobOverride> decide_assumed(const MeasuredRun& run, const Job& job,
                                        const Device& device) {
  const bool assumed =
      std::find(run.assumed.begin(), run.assumed.end(), "recompute") != run.assumed.end();
  if (!assumed || job.plan.recompute != Recompute::kFull || !one_device_holds(run, job, device)) {
    return {};
  }
  return {{"plan.recompute", "selective", "assumed recompute"}};
}

}  // namespace headway
