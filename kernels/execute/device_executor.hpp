// Runs a Program for real on one CUDA device: the host issues every rank's operations to the rank's
// own streams, ahead of the device, with an event wherever the Program orders two streams; what
// ranks exchange is copied on the device when the last member has come. Several ranks share the
// device, each with its own multiprocessors where the driver can do that. One thread issues for all
// ranks, so a run is as deterministic as its kernels; where no rank can go on, the cycle of waits
// is told, as by the CPU's executor.
#pragma once

#include "kernels/execute/executor.hpp"

namespace headway {

// Why this Program cannot run on a device, in words; empty where it can.
std::string not_on_device(const Program& program);

struct DeviceExecution {
  ExecutionResult result;
  int multiprocessors = 0;  // of each rank
  std::string note;         // how the ranks share the device, where that is not as asked for
};

// As execute(). Without `checked` the steps are timed by the host alone, from an idle device to an
// idle device, and one step more is run with every operation between two events: its times are the
// timeline's. `resident` is by how much the device's free memory fell. REQUIRES:
// check(program, ...) passes. Throws DeviceFailure where there is no device.
DeviceExecution execute_on_device(const Program& program, const ExecuteOptions& options = {});

}  // namespace headway
