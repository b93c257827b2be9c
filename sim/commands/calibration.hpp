// This machine's own profile: the microbenchmarks beside the program are run, their files kept, and
// a profile fitted to them.
#pragma once

#include <string>

#include "sim/commands/command.hpp"
#include "sim/cost/profile.hpp"

namespace headway {

struct CalibrationRequest {
  bool quick = false;
  std::string transport;     // how ranks talk: "threads", "mpi"; empty: mpi where there is one
  std::string measurements;  // the folder that keeps the files
};

// Of the machine as a backend uses it: "cpu" or "cuda". Tells each benchmark on `line.err` as it
// begins. Throws MachineFailure where one is not built or fails.
Profile calibrate(const std::string& backend, const CalibrationRequest& request,
                  const CommandLine& line);

// A name for this machine, from its processor and cores: "amd-epyc-2-cores".
std::string machine_name();

}  // namespace headway
