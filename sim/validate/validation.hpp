// Simulates measured runs and holds the result against the measurement. A run that this version
// cannot simulate is skipped with its reason, never priced anyhow.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "sim/validate/error_table.hpp"
#include "sim/validate/measured_runs.hpp"

namespace headway {

struct SkippedRun {
  std::string id, file, why;
};

struct Validation {
  std::vector<PredictedRun> runs;  // in the order given
  std::vector<SkippedRun> skipped;
  ErrorTable table;
};

struct ValidationOptions {
  int threads = 1;
  bool low = false;                        // count runs of low reliability too
  std::optional<MeasuredRun> anchor = {};  // a measured step that corrects all predictions
  // Called from one thread at a time with how many runs are done.
  std::function<void(std::size_t done, std::size_t all)> progress;
};

// The same answer on any number of threads.
Validation validate(const std::vector<MeasuredRun>& runs, const ValidationOptions& options);

// The keys of `validate --json`.
std::string validation_json(const Validation& validation);

// The tables that people read.
std::string validation_text(const Validation& validation);

}  // namespace headway
