// The profile of the machine that the program runs on, from what its own microbenchmarks measured
// (kernels/microbenchmarks, JSON of Google Benchmark): matrix multiplications and attention by
// measured neighbours, memory-bound kernels by a rate each, collectives and messages between two
// ranks by curves. Every operation also costs what the executor needs to issue it, because on a CPU
// the core that computes is the one that issues.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "sim/cost/attention_fit.hpp"
#include "sim/cost/gemm_fit.hpp"
#include "sim/cost/profile.hpp"

namespace headway {

struct HostMeasurements {
  struct KernelTime {
    Kernel kernel;
    double seconds = 0;
  };
  // By how ranks are run: "threads", "mpi".
  struct Transport {
    double issue_s = 0;                                             // of one operation
    std::map<CollectiveKind, std::vector<CurvePoint>> collectives;  // two ranks; kSend: a message
  };
  std::map<DataType, std::vector<GemmSample>> gemms;
  std::vector<AttentionSample> attention;
  std::vector<KernelTime> kernels;
  std::map<std::string, Transport> transports;
  double launch_s = 0;  // of a device: an empty kernel behind another; 0 where it was not measured
};

// Reads the files' benchmarks by name; the ones that price nothing (memory_copy, overlap, ...) and
// the ones that could not be measured are passed over. Throws InvalidInput for a file that is no such JSON and for a name that is not
// understood.
HostMeasurements read_host_measurements(const std::vector<std::string>& files);

// By kind: the median rate over the large sizes, or over all where none is large.
std::vector<KernelRate> kernel_rates(const std::vector<HostMeasurements::KernelTime>& times,
                                     const std::string& source);

// Throws InvalidInput where something is missing that every step needs, naming the benchmark.
Profile fit_host(const HostMeasurements& measured, const std::string& transport,
                 const std::string& source);

}  // namespace headway
