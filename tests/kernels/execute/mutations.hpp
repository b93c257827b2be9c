// Faults put into a Program on purpose, one at a time, and whether a check finds them: every
// distinct collective removed, every distinct pair of neighbours in a rank's issue order swapped. A
// fault that no check finds must be harmless by rule: neither operation reaches the other in the
// dependency graph, they share no group, and every buffer they share is only read or only
// accumulated into.
#pragma once

#include <string>
#include <vector>

#include "kernels/execute/executor.hpp"

namespace headway {

struct MutationCount {
  int removed = 0, removed_caught = 0, removed_harmless = 0;
  int swapped = 0, deadlocked = 0, differed = 0, unordered = 0, harmless = 0;
  std::vector<std::string> missed;  // neither caught nor harmless
};

// `reference`: what the unchanged Program must give (sim/program/training_step: reference_job).
// With `try_harmless` also those are run, and counted as missed where a check finds them after all.
MutationCount count_mutations(const Program& program, const ExecutionResult& reference,
                              const ExecuteOptions& options, bool try_harmless);

}  // namespace headway
