// Starts ranks as processes, by OpenMPI's mpirun, and sees all of them end. Knows nothing of MPI
// itself, so that it is built everywhere.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace headway {

// Whether an mpirun has started this process, as one of several.
bool started_by_mpirun();

// What one rank says last is told on standard error in this form, whole and at once, where a
// launcher is listening. Safe in signal handlers.
void tell_launcher(int rank, std::string_view message);

// Lets the rank tell as much when it is asked to end (SIGTERM).
void tell_launcher_when_stopped(int rank);

struct LaunchedRanks {
  int exit_code = 0;
  std::vector<std::string> messages;  // by rank; empty where it said nothing
};

// Runs `command` as so many ranks on this machine, each on a core of its own where there are
// enough; standard error of the ranks is ours, but for what they tell. No process outlives the
// call, nor this process if it is killed. Throws MachineFailure where there is no mpirun.
LaunchedRanks launch_ranks(int ranks, const std::vector<std::string>& command);

// Keeps this process to the n-th core of those it may use. Does nothing where there are fewer.
void keep_to_core(int n);

}  // namespace headway
