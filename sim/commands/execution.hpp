// A job's Program run for real by headway-execute-cpu or headway-execute-cuda: what is asked of it,
// and what it measured.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/core/json_reader.hpp"
#include "sim/engine/timeline.hpp"
#include "sim/plan/job.hpp"
#include "sim/program/program.hpp"

namespace headway {

struct ExecutionRequest {
  std::int64_t steps = 1, warm_up = 0, seed = 1;
  bool check = false;  // compare with the same steps on one rank
  bool mpi = false;    // ranks as processes
  std::string backend = "cpu";
};

struct Execution {
  std::string outcome;  // "finished", "deadlock", "failed"
  std::vector<std::string> messages, deadlock;
  std::vector<double> losses;
  std::vector<Time> durations;  // by step
  std::optional<JsonNode> check;
  std::vector<Bytes> peak;      // by rank, as the Program declares sizes
  std::vector<Bytes> resident;  // by process, as the system counts them
  Timeline timeline;            // of the step of median duration
};

// Nothing where this process is one of several that an mpirun has started, and not the first: that
// one has the answer. Throws MachineFailure where the executor gives none.
std::optional<Execution> execute_job(const Job& job, const Program& program,
                                     const ExecutionRequest& request);

// What a Program runs on and a machine is calibrated for. Whether the machine has it is found when
// it is used.
std::vector<std::string> backends();
// Throws InvalidInput for what a backend does not do: ranks of a device are no processes.
void require_possible(const ExecutionRequest& request);

// Whether an mpirun has started this process, as one of several.
bool under_mpirun();

}  // namespace headway
