// The timeline as a Chrome trace (JSON), to be opened in Perfetto: a process per rank class, a
// track per stream and one for the host, spans named by stage, micro-batch and operation, arrows
// from each message's sender to its receiver, a counter of the memory that the Program's buffers
// take.
#pragma once

#include <string>

#include "sim/simulate/simulated_step.hpp"

namespace headway {

// REQUIRES: a timeline with spans (Detail::kInstances or kTasks).
std::string trace_json(const SimulatedStep& step);

// gzip, as `--trace FILE.json.gz` writes it; the same bytes for the same text.
std::string gzip(const std::string& text);

}  // namespace headway
