// What headway-execute-cpu writes: outcome, numbers of each step, check, memory and the measured
// timeline. Its reader is `headway execute`.
#pragma once

#include <optional>
#include <string>

#include "kernels/execute/executor.hpp"
#include "kernels/execute/reference_check.hpp"

namespace headway {

// {"outcome": "finished", "messages": [..], "deadlock": [..], "steps": [{"loss", "duration_ps"}],
//  "peak_bytes": [..], "resident_bytes": [..], "check": {..}, "timeline": {..}}
std::string execution_json(const ExecutionResult& result, const std::optional<CheckReport>& check);

}  // namespace headway
