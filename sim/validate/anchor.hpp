// One measured step of the user's own corrects the predictions of others: measured over predicted
// time by category. Where the run says how its time divides (breakdown_s), each category has its
// own factor, and what is left of the step's time one for all; where it says the time alone, all
// have the same. What is corrected is graded anchored.
#pragma once

#include "sim/plan/job.hpp"
#include "sim/simulate/price_book.hpp"
#include "sim/validate/measured_runs.hpp"

namespace headway {

// Throws InvalidInput where the run's job has problems or it states no time.
Correction anchored_by(const MeasuredRun& run);

// The software with the correction's factor on the host's times.
Software corrected(Software software, const Correction& correction);

}  // namespace headway
