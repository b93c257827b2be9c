// As executor.hpp, with every rank a process of one MPI world. A cycle of waits, and members of a
// group that meet in different collectives, are read off the plan before anything runs. A rank that
// throws or is refused memory tells all others why, and each ends with a message; one that stands
// still is noticed by a thread beside it, and by those who wait for it.
#pragma once

#include <functional>
#include <string>

#include "kernels/execute/executor.hpp"
#include "kernels/execute/mpi_world.hpp"

namespace headway {

// What a rank does when it cannot finish.
struct LastWords {
  // Called as soon as it knows why, by whichever thread does.
  std::function<void(const std::string& message)> tell;
  // Called after that by a thread beside the rank whose own thread stands still: ends the process.
  std::function<void()> end;
};

// The result, complete at rank 0; elsewhere the outcome and the rank's own message alone. Where it
// is kFailed others may not come any more: `world` is then abandoned, and the process should end.
// A rank stands still where an operation does not end for ExecuteOptions::patience. Throws
// InvalidInput where the Program's ranks are not as many as the world's. REQUIRES: check(program,
// ...) passes.
ExecutionResult execute_in_processes(const Program& program, const ExecuteOptions& options,
                                     MpiWorld& world, const LastWords& last_words);

}  // namespace headway
