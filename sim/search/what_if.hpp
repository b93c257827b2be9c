// A job for every combination of values of some of its fields, each simulated: a table of what
// would change it. Any field of the job can be varied, the machine's links among them. Rows stand
// in the order of the values, the last field fastest.
//
//   plan.micro_batch=1,2,4                            these values
//   cluster.links.nic.bandwidth=100..800 Gbit/s       every doubling from the one to the other
//   cluster.links.nic.bandwidth=200,400 Gbit/s        a unit behind the last value is of all
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/plan/job.hpp"
#include "sim/report/step_report.hpp"

namespace headway {

struct Variation {
  std::string key;                  // "plan.micro_batch"
  std::vector<std::string> values;  // JSON text or words
};

// Adds a problem of "--vary" where the text is no variation.
std::optional<Variation> parse_variation(const std::string& text, Problems& problems);

struct WhatIfRow {
  std::vector<std::string> values;   // by variation
  std::optional<StepReport> report;  // nothing where the job is not possible
  std::string why_not;
};

struct WhatIf {
  std::vector<std::string> keys;
  std::vector<WhatIfRow> rows;
};

// A combination that is no legal job is a row that says why. Throws InvalidInput where no
// combination is a legal job, with what is wrong with the first. The same on any number of threads.
WhatIf vary(const JsonNode& job, const std::vector<JobOverride>& overrides,
            const std::vector<Variation>& variations, int threads);

std::string what_if_text(const WhatIf& table);
std::string what_if_csv(const WhatIf& table);  // with a line of titles
std::string what_if_json(const WhatIf& table);

}  // namespace headway
