// How far predictions lie from measurements: error = predicted / measured - 1. Figures over all
// runs and by every property of theirs; whether plans are ranked as measured; whether memory
// verdicts are right.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sim/core/units.hpp"
#include "sim/validate/measured_runs.hpp"

namespace headway {

// One run with what was predicted for it.
struct PredictedRun {
  std::string id, file, group;
  Reliability reliability = Reliability::kHigh;
  bool used_in_fit = false;
  std::optional<double> measured_s, predicted_s;
  double interval_low_s = 0, interval_high_s = 0;
  std::optional<double> measured_bytes, predicted_bytes;  // like kind with like
  bool out_of_memory = false;                             // measured
  bool fits = true;                                       // predicted
  std::string identity;                                   // equal for identical jobs
  std::map<std::string, std::string> decided;             // assumed values replaced, by job key
  std::map<std::string, std::string> properties;          // "gpu" -> "a100-sxm-80gb", "tp" -> "8"

  double error() const { return *predicted_s / *measured_s - 1; }
  bool inside_interval() const {
    return *measured_s >= interval_low_s && *measured_s <= interval_high_s;
  }
};

struct ErrorFigures {
  int count = 0;
  double mape = 0, signed_mean = 0, p95 = 0;
  std::string worst_id;
  double worst_error = 0;
  double within_interval = 0;
};
// Of the runs with a measured time. Figures of no runs are zero.
ErrorFigures error_figures(const std::vector<const PredictedRun*>& runs);

struct MemoryFigures {
  int count = 0;
  double mape = 0, signed_mean = 0;
  int right = 0, missed = 0, false_alarm = 0;  // out-of-memory verdicts
};
MemoryFigures memory_figures(const std::vector<const PredictedRun*>& runs);

// How well the plans of a group are ranked: whether the predicted best is the measured best (within
// noise), how much slower it is otherwise, and Kendall's tau of the two orders.
struct DecisionFigures {
  int groups = 0;
  double top1 = 0, mean_regret = 0, worst_regret = 0, kendall_tau = 0;
};
// Over groups of at least five runs with a time; times closer than `noise` (relative) count as
// equal.
DecisionFigures decision_figures(const std::vector<const PredictedRun*>& runs, double noise);

// The relative spread of identical jobs: the root mean square of deviations from their mean.
double repetition_noise(const std::vector<const PredictedRun*>& runs);

struct ErrorTable {
  ErrorFigures all;
  double noise = 0;
  std::map<std::string, std::map<std::string, ErrorFigures>> by;  // property -> value -> figures
  MemoryFigures memory;
  std::map<std::string, MemoryFigures> memory_by_source;
  std::map<std::string, DecisionFigures> decisions;  // by source
  ErrorFigures with_fit_rows;  // the same as `all`, rows used in the fit included
};
// `low`: whether runs of low reliability count.
ErrorTable tabulate(const std::vector<PredictedRun>& runs, bool low);

}  // namespace headway
