// What a step needs of a device's memory, stage by stage and line by line, without a clock:
// frameworks allocate when the host issues, so the peak stands in issue order
// (sim/program/lifetime). Around the Program's own buffers stand the framework's: CUDA context,
// cuBLAS workspace, NCCL's communicators; and PyTorch's caching allocator rounds and keeps what it
// was given.
#pragma once

#include <string>
#include <vector>

#include "sim/cluster/device.hpp"
#include "sim/core/units.hpp"
#include "sim/plan/job.hpp"
#include "sim/program/lifetime.hpp"
#include "sim/program/program.hpp"

namespace headway {

// One pipeline rank at its peak. The lines add up to `peak`.
struct StageMemory {
  Bytes parameters;
  Bytes gradients;
  Bytes optimizer;
  Bytes activations;  // and inputs
  Bytes buffers;      // communication: the Program's, and the communicators'
  Bytes workspace;    // of the libraries
  Bytes context;      // CUDA's
  Bytes peak;
  Bytes allocated;      // as torch.cuda.max_memory_allocated counts: rounded blocks and workspace
  Bytes communicators;  // NCCL's part of `buffers`
  Bytes host;           // the most that lives in the host's memory
  int kind = 0;         // Program::kinds
  IssuePosition peak_at;
};

struct MemoryReport {
  Bytes capacity;
  // Of the stage whose peak is highest.
  Bytes peak;                          // sum of its lines
  Bytes allocated;                     // rounded blocks and workspace
  Bytes reserved;                      // segments that PyTorch's allocator holds for them
  Bytes device;                        // reserved, context and communicators: what nvidia-smi shows
  std::vector<StageMemory> per_stage;  // by pipeline coordinate
  int fullest_stage = 0;
  Bytes host_capacity;  // a GPU's share of its server's memory; 0: not known, or nothing offloaded
  Bytes host;           // of the stage that needs most there
  bool fits = true;
  std::string why;  // where it does not fit: which stage, by how much, its largest line, when
};

struct MemoryOptions {
  Bytes capacity{};
  Bytes context{};
  Bytes workspace{};
  Bytes host_capacity{};  // 0: not judged
  // Channels of a communicator: 8 GPUs of an NVSwitch node and one 400 Gbit/s NIC each (facts 4.3).
  int communicator_channels = 16;
};

// `reserved` plays the allocator on the fullest stage from the step's start through the issue of
// its peak; fragmentation that later issues might add is left out.
MemoryReport report_memory(const Program& program, const MemoryOptions& options);
// With capacity, context and workspace of the device and the job's software.
MemoryReport report_memory(const Job& job, const Program& program, const Device& device);

// Device memory of the communicators that a rank of this kind opens: one per process group family
// that it communicates in, and one for its messages along each axis.
Bytes communicator_bytes(const Program& program, const RankKind& kind, int channels);

// Where a peak stands, as people say it: "0F17, mlp.up of layer.forward[3]".
std::string describe(const Program& program, const RankKind& kind, IssuePosition position);

}  // namespace headway
