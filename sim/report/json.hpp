// A result as JSON: the keys that scripts rely on, in a fixed order.
#pragma once

#include <optional>
#include <string>

#include "sim/plan/job.hpp"
#include "sim/report/step_report.hpp"

namespace headway {

// Wall-clock figures, only where they were asked for: they differ from run to run.
struct WallClock {
  double library_s = 0;  // from resolved job to result
  double process_s = 0;  // the whole process so far
};

std::string result_json(const Job& job, const StepReport& report,
                        const std::optional<WallClock>& wall_clock);

}  // namespace headway
