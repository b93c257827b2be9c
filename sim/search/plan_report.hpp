// The answer of a plan search as people read it, and as JSON with the keys that scripts rely on.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "sim/search/plan_question.hpp"

namespace headway {

struct PlanReportOptions {
  SearchOptions search;          // as asked
  std::optional<double> tokens;  // to train on: days, GPU hours, $ and kWh
  // How the job's framework is told to run a plan: its arguments. Empty where that is not known.
  std::function<std::vector<std::string>(const Job&)> launch;
};

std::string plan_text(const PlanAnswer& answer, const PlanReportOptions& options);
std::string plan_json(const PlanAnswer& answer, const PlanReportOptions& options);

// What training on so many tokens takes.
struct TrainingRun {
  double days = 0, gpu_hours = 0;
  std::optional<double> dollars, kilowatt_hours;  // where the cluster has prices and watts
};
// REQUIRES: a step that ends.
TrainingRun training_run(const Job& job, const StepReport& step, double tokens);

// "tp 4 x pp 8 x dp 16, interleaved (vpp 5), micro-batch 1, recompute selective".
std::string plan_words(const Job& job);

}  // namespace headway
