// Options that replace values of a job file: "plan.tp" -> "8". The file and the options become one
// document, and what is wrong in it is then said of the option or of the file it came from.
#pragma once

#include <vector>

#include "sim/core/json_reader.hpp"
#include "sim/plan/job.hpp"

namespace headway {

// The job with the options' values in place. An option whose path leads through a value that is no
// object (a key of a preset's model) adds a problem and is left out.
JsonNode with_overrides(const JsonNode& job, const std::vector<JobOverride>& overrides,
                        Problems& problems);

// A problem found in with_overrides(job, ...), at the place where its writer can mend it.
Problem at_origin(const Problem& problem, const JsonNode& job,
                  const std::vector<JobOverride>& overrides);

// `node` with the values of `defaults` for the keys it does not have. Both are objects.
JsonNode with_defaults(const JsonNode& node, const JsonNode& defaults);

}  // namespace headway
