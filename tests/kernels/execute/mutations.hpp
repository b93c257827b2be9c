// Faults put into a Program on purpose, one at a time, and whether a check finds them: every
// distinct collective removed, every distinct pair of neighbours in a rank's issue order swapped. A
// fault is harmless by rule where the plan still ends, orders all operations on the same memory,
// and its results have the same value numbers (value_numbers.hpp). Every other one must be caught:
// it deadlocks, it gives other numbers, or it leaves two operations on the same memory in no order.
#pragma once

#include <string>
#include <vector>

#include "kernels/execute/executor.hpp"

namespace headway {

// The Program with all its real numbers in fp64, its order as it was: a fault in the order must not
// hide in the rounding of 16 or 32 bits.
Program in_fp64(Program program);

struct MutationCount {
  int removed = 0, swapped = 0;
  int deadlocked = 0, differed = 0, unordered = 0, harmless = 0;
  std::vector<std::string> missed;  // neither caught nor harmless
};

// `reference`: what the unchanged Program must give (sim/program/training_step: reference_job).
// With `try_harmless` also those are run, and counted as missed where a check finds them after all.
MutationCount count_mutations(const Program& program, const ExecutionResult& reference,
                              const ExecuteOptions& options, bool try_harmless);

}  // namespace headway
