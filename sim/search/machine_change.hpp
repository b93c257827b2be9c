// The same job on a machine that has more, or less, of one resource: what a tenth more of it would
// buy, and how a choice holds where a figure turns out lower than assumed. The change is made where
// the resource is described (profile, topology, software), so it is priced and simulated as any
// other machine is.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "sim/cost/profile.hpp"
#include "sim/plan/job.hpp"

namespace headway {

enum class Resource : std::uint8_t {
  kMatrixRate,       // of GEMMs and attention: peaks, and the times of all measured points
  kMemoryBandwidth,  // of memory-bound kernels; the memory-bound part of GEMMs is in their points
  kNvlink,           // between GPUs of a node
  kNic,              // of each NIC
  kHost,             // speed of the host threads that launch
  kMemory,           // capacity of the device
};
// Each once, in this order.
const std::vector<Resource>& resources();
std::string_view name(Resource resource);   // "nic", the key of a result
std::string_view words(Resource resource);  // "NIC bandwidth"

struct Machine {
  Job job;
  Profile profile;
};

// With `factor` times as much of it (above 0). Nothing where the machine has none of it: one node
// needs no NICs, a CUDA graph no host.
std::optional<Machine> with_factor(const Job& job, const Profile& profile, Resource resource,
                                   double factor);

}  // namespace headway
