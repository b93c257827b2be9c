// A result as people read it, in ten seconds: step time with its interval, throughput, where the
// time goes, memory per stage, what limits it.
#pragma once

#include <string>

#include "sim/plan/job.hpp"
#include "sim/report/step_report.hpp"

namespace headway {

std::string summary(const Job& job, const StepReport& report);

}  // namespace headway
