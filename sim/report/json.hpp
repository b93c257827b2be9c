// A result as JSON: the keys that scripts rely on, in a fixed order. A schedule that deadlocks has
// no times; it has `deadlock`, who waits for whom, in their place.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/plan/job.hpp"
#include "sim/report/step_report.hpp"

namespace headway {

// Wall-clock figures, only where they were asked for: they differ from run to run.
struct WallClock {
  double library_s = 0;  // from resolved job to result
  double process_s = 0;  // the whole process so far
};

// What a command adds to its result: a key and JSON text.
struct AddedField {
  std::string key, json;
};

std::string result_json(const Job& job, const StepReport& report,
                        const std::optional<WallClock>& wall_clock,
                        const std::vector<AddedField>& added = {});

}  // namespace headway
