// Whether what a plan says of data parallelism and of the host's memory fits: groups that share out
// the state of a model, kinds that go with a pipeline, what may be offloaded together.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/plan/plan_legality.hpp"

namespace headway {

// Adds a problem for what does not fit, a rule for what is not built, a note for what has no
// effect; resolves the plan's `shard`. `dp`: nothing where it is not known.
void check_data_parallelism(PlanReading& reading, const PlanContext& context, JobSection& section,
                            std::optional<std::int64_t> dp, std::vector<std::string>& notes);

}  // namespace headway
