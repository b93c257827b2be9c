// Small jobs played out, for the tests of reports.
#pragma once

#include <algorithm>
#include <string>
#include <utility>

#include "sim/cost/profile.hpp"
#include "sim/plan/job.hpp"
#include "sim/program/training_step.hpp"
#include "sim/report/step_report.hpp"
#include "sim/simulate/simulated_step.hpp"

namespace headway {

// Two stages of two tensor-parallel ranks, two replicas, eight micro-batches.
inline constexpr const char* kSmallJob = R"({
  "model": "gpt3-1.7b", "cluster": {"topology": "dgx-a100", "gpus": 8}, "sequence_length": 2048,
  "global_batch": 16, "software": {"framework": "megatron-2022"},
  "plan": {"tp": 2, "pp": 2, "micro_batch": 1}})";

inline Job job_of(const std::string& text) {
  Problems problems;
  JobReading reading = read_job(JsonNode::parse_text(text, "job.json"), {}, problems);
  problems.throw_if_any();
  return std::move(reading.job.value());
}

inline const Profile& a100() {
  static const Profile profile = read_profile("a100-sxm-80gb");
  return profile;
}

struct Played {
  Job job;
  SimulatedStep step;
  StepReport report;
};

inline Played play(const std::string& text, StepOptions options = {}) {
  options.critical_path = true;
  Job job = job_of(text);
  SimulatedStep step = simulate_step(job, a100(), options);
  StepReport report = report_step(job, a100(), step);
  return {std::move(job), std::move(step), std::move(report)};
}

// The small job, but the first stage sends its first output last of all: the last stage waits for
// it, and the first stage for the gradient that the last one would send back.
inline Played play_deadlock() {
  Job job = job_of(kSmallJob);
  SimulatedStep step;
  step.program = lower(job);
  RankKind& first = step.program.kinds.front();
  const auto send = std::find_if(first.order.begin(), first.order.end(), [&](const Issue& issue) {
    return issue.micro_batch == 0 &&
           first.passes[static_cast<std::size_t>(issue.pass)].name.starts_with("0SEND_F");
  });
  std::rotate(send, send + 1, first.order.end());
  step.lowered = lower_to_tasks({.program = step.program,
                                 .topology = job.topology,
                                 .profile = a100(),
                                 .software = job.software,
                                 .machine = {}});
  step.timeline = simulate(step.lowered.graph);
  StepReport report = report_step(job, a100(), step);
  return {std::move(job), std::move(step), std::move(report)};
}

}  // namespace headway
