// NCCL's own model of what a collective takes by each of its algorithms and protocols, by which it
// chooses: base and hardware latencies, bandwidth caps and runtime corrections of
// src/graph/tuning.cc, version 2.30. It is a model for choosing, not a measurement; its constants
// stand in nccl_tuning.cpp with their names there.
#pragma once

#include <optional>
#include <string_view>

#include "sim/core/units.hpp"
#include "sim/model/operation.hpp"

namespace headway {

enum class NcclAlgorithm : std::uint8_t { kTree, kRing, kNvls, kNvlsTree, kPat };
enum class NcclProtocol : std::uint8_t { kLL, kLL128, kSimple };
std::string_view name(NcclAlgorithm algorithm);  // "ring"
std::string_view name(NcclProtocol protocol);    // "LL128"

enum class NcclCpu : std::uint8_t { kIntel, kAmd, kArm };

// Channels that NCCL's topology search found, and the speed of each inside a node and between
// nodes.
struct NcclGraph {
  int channels = 0;  // 0: there is no such graph
  double intra_gb_per_s = 0;
  double inter_gb_per_s = 0;
};

struct NcclSystem {
  int compute_capability = 80;
  int nodes = 1;
  int ranks = 8;
  NcclCpu cpu = NcclCpu::kIntel;
  bool nvlink = true;    // inside a node; else PCIe
  bool near_nic = true;  // the NIC is no farther than a PCIe switch (through NVLink from Hopper on)
  NcclGraph ring;        // of ring and tree alike
  NcclGraph nvls;        // of NVLS on one node, NVLSTree on several
};

// What NVLink and NICs of a node allow (the search of src/graph/search.cc, for all-to-all connected
// nodes): candidate speeds per channel by compute capability, as many channels as they carry.
// `nics`: those that the group's ranks of a node use; `nic_gb_per_s`: of one.
NcclSystem nccl_system(int compute_capability, int ranks, int nodes, bool nvswitch,
                       double nvlink_gb_per_s, int nics, double nic_gb_per_s, NcclCpu cpu);

struct NcclTuning {
  double latency_us = 0;
  double gb_per_s = 0;  // algorithm bandwidth
};
// Nothing where the algorithm cannot run the collective. REQUIRES: ranks >= 2.
std::optional<NcclTuning> nccl_tuning(const NcclSystem& system, CollectiveKind kind,
                                      NcclAlgorithm algorithm, NcclProtocol protocol);

// With the corrections for the message's size. `bytes`: the whole array.
struct NcclTime {
  NcclAlgorithm algorithm = NcclAlgorithm::kRing;
  NcclProtocol protocol = NcclProtocol::kSimple;
  double latency_us = 0;
  double transfer_us = 0;
  int channels = 0;
  double total_us() const { return latency_us + transfer_us; }
};
std::optional<NcclTime> nccl_time(const NcclSystem& system, CollectiveKind kind,
                                  NcclAlgorithm algorithm, NcclProtocol protocol, double bytes);

// The cheapest enabled one. REQUIRES: ranks >= 2; a collective of a ring (not all-to-all, send).
NcclTime nccl_choice(const NcclSystem& system, CollectiveKind kind, double bytes);

}  // namespace headway
