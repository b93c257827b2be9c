#include "sim/cost/nccl_tuning.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <span>

namespace headway {

namespace {

template <std::size_t N>
using Row = std::array<double, N>;

constexpr std::size_t kProtocols = 3;  // LL, LL128, Simple

// NCCL 2.30 src/graph/tuning.cc: baseLatencies, hwLatencies (us), by protocol.
constexpr Row<kProtocols> kTreeBase = {6.8, 14.0, 8.4};
constexpr Row<kProtocols> kRingBase = {6.6, 14.0, 8.4};
constexpr double kPatBase = 8;
constexpr Row<kProtocols> kTreeNvlink = {0.6, 1.25, 4.0};
constexpr Row<kProtocols> kRingNvlink = {0.6, 1.9, 3.4};
constexpr Row<kProtocols> kTreePci = {1.0, 1.9, 4.0};
constexpr Row<kProtocols> kRingPci = {1.0, 2.5, 5.7};
constexpr Row<kProtocols> kTreeNet = {5.0, 8.5, 14.0};
constexpr Row<kProtocols> kRingNet = {2.7, 4.0, 14.0};
constexpr double kNvlsNvlink = 25;
constexpr double kNvlsNet = 18;
constexpr double kNvlsTreeNet = 20.9;
constexpr double kPatNet = 14;
constexpr double kPatPerRank = 2.8;
constexpr double kPatNetDivisor = 3.5;

// Bandwidth caps (GB/s), by generation (Volta, Ampere, Hopper, Blackwell) and 1, 2, more nodes.
using Caps = std::array<Row<3>, 4>;
constexpr Caps kLlMax = {{{39.0, 39.0, 20.4}, {87.7, 22.5, 19.0}, {141, 45, 35}, {282, 90, 70}}};
constexpr Caps kRingLl128 = {{{20, 20, 20}, {20, 20, 20}, {36.7, 36.7, 36.7}, {40, 40, 40}}};
constexpr Caps kTreeLl128 = {{{20, 20, 20}, {20, 20, 20}, {36.7, 36.7, 29.0}, {55.6, 31.67, 20.0}}};
constexpr Caps kTreeMax = {
    {{26.5, 18.5, 10.0}, {24.0, 23.6, 17.8}, {38.7, 41.4, 36.0}, {70.0, 42.8, 24.0}}};
constexpr Caps kNvlsTreeMax = {
    {{26.5, 18.5, 10.0}, {24.0, 23.6, 17.8}, {0, 57.7, 45.5}, {0, 96.0, 80.0}}};
constexpr Row<4> kNvlsEfficiency = {0, 0, 0.85, 0.74};

// Shares of the bus bandwidth that protocols reach (tuning.cc, ncclTopoTuneModel).
constexpr double kLl128Share = 0.92;
constexpr double kRingLlShare = 0.5;
constexpr double kTreeLlDivisor = 3.8;
constexpr double kTreeLl128OneNode = 7.0 / 9.0;
constexpr double kTreeLl128Nodes = 120.0 / 128.0;
constexpr double kPatShare = 0.75;

// Network overhead of a step (us): NCCL_NET_OVERHEAD's default; three times that for Simple.
constexpr double kNetOverheadIntel = 1;
constexpr double kNetOverheadAmd = 2;
constexpr double kSimpleNetOverhead = 3;

// treeCorrectionFactor: tree all-reduces by log2(bytes / 64).
constexpr std::array<Row<23>, kProtocols> kTreeCorrection = {
    {{1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1, 1},
     {1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1, 1},
     {.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5, .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9}}};
// Ring Simple all-reduces over several nodes: from this many bytes per channel and rank on.
constexpr double kRingSimpleBytes = 64;
constexpr double kRingSimpleLatency = 1.4;
constexpr double kRingSimpleLatencyVolta = 1.9;

// Candidate speeds of a channel (GB/s): speedArrayIntra, speedArrayInter of src/graph/search.cc.
constexpr std::array kIntra80 = {40., 30., 20., 18., 15., 12., 10., 9., 7., 6., 5., 4., 3.};
constexpr std::array kInter80 = {48., 30., 28., 24., 20., 18., 15., 12.,  10., 9.,
                                 7.,  6.,  5.,  4.,  3.,  2.4, 1.2, 0.24, 0.12};
constexpr std::array kIntra90 = {60., 50., 40., 30., 24., 20., 15., 12., 11., 6., 3.};
constexpr std::array kInter90 = {48., 45., 42., 40., 30., 24., 22.,  20., 17.5,
                                 15., 12., 6.,  3.,  2.4, 1.2, 0.24, 0.12};
constexpr std::array kIntra100 = {90., 80., 70., 60., 50., 45., 40., 30., 24., 20., 19., 18.};
constexpr std::array kInter100 = {96., 86.,  80., 48., 45.1, 42., 40., 30., 24.,  22.,
                                  20., 17.5, 15., 12., 6.,   3.,  2.4, 1.2, 0.24, 0.12};
// Speed that NCCL gives one NVLink (GB/s), and links of a GPU: topo.h. Data sheets say 25, 25, 50.
constexpr double kShare80 = 20.0 / 25.0;
constexpr double kShare90 = 20.6 / 25.0;
constexpr double kShare100 = 40.1 / 50.0;
constexpr int kMaxChannels = 32;
// A fast channel is split in two of half the speed (search.cc: bwIntra >= 25).
constexpr double kSplitSpeed = 25;
// Channels of NVLS by generation: one head per GPU; speeds as found on 8 GPUs (facts: oracles).
constexpr double kNvlsIntra90 = 50, kNvlsInter90 = 60;
constexpr double kNvlsIntra100 = 80, kNvlsInter100 = 90;

std::size_t generation(int compute_capability) {
  if (compute_capability >= 100) return 3;
  if (compute_capability >= 90) return 2;
  return compute_capability >= 80 ? 1 : 0;
}

std::size_t nodes_index(int nodes) { return nodes <= 1 ? 0 : nodes == 2 ? 1 : 2; }

int steps_of(CollectiveKind kind, int ranks) {
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return 2 * (ranks - 1);
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllGather:
      return ranks - 1;
    default:
      return ranks;
  }
}

bool gathers(CollectiveKind kind) {
  return kind == CollectiveKind::kAllGather || kind == CollectiveKind::kReduceScatter;
}

int per_node(const NcclSystem& system) {
  return std::max(1, (system.ranks + system.nodes - 1) / system.nodes);
}

double log2_floor(int n) { return std::floor(std::log2(static_cast<double>(n))); }

// llMaxBw is indexed by the GPU on one node, by the CPU's vendor over several.
double ll_max(const NcclSystem& system) {
  const std::size_t first = system.nodes == 1             ? generation(system.compute_capability)
                            : system.cpu == NcclCpu::kAmd ? 1
                                                          : 0;
  return kLlMax[first][nodes_index(system.nodes)];
}

double bus_bandwidth(const NcclSystem& system) {
  const double speed = system.nodes <= 2 ? system.ring.intra_gb_per_s : system.ring.inter_gb_per_s;
  return system.ring.channels * speed;
}

std::optional<NcclTuning> ring(const NcclSystem& system, CollectiveKind kind,
                               NcclProtocol protocol) {
  const auto index = static_cast<std::size_t>(protocol);
  const double channels = system.ring.channels;
  double bus = bus_bandwidth(system);
  if (protocol == NcclProtocol::kLL) bus = std::min(ll_max(system), kRingLlShare * bus);
  if (protocol == NcclProtocol::kLL128) {
    const double cap = kRingLl128[generation(system.compute_capability)][nodes_index(system.nodes)];
    bus = std::min(kLl128Share * bus, channels * cap);
  }
  const int steps = steps_of(kind, system.ranks);
  NcclTuning tuning;
  tuning.gb_per_s = bus * system.ranks / steps;
  double intra = system.nvlink ? kRingNvlink[index] : kRingPci[index];
  double inter = per_node(system) == 1 ? kTreeNet[index] : kRingNet[index];
  double overhead = 0;
  if (system.nodes > 1) {
    overhead = system.cpu == NcclCpu::kAmd ? kNetOverheadAmd : kNetOverheadIntel;
    if (protocol == NcclProtocol::kSimple) overhead *= kSimpleNetOverhead;
  }
  intra = std::max(intra, overhead);
  double crossings = 0;
  if (system.nodes > 1) {
    if (kind == CollectiveKind::kAllReduce)
      crossings = 2 * (system.nodes - 1);
    else
      crossings = system.nodes - 1;
  }
  tuning.latency_us = kRingBase[index] + (steps - crossings) * intra + crossings * inter;
  return tuning;
}

std::optional<NcclTuning> tree(const NcclSystem& system, CollectiveKind kind,
                               NcclProtocol protocol) {
  if (kind != CollectiveKind::kAllReduce) return std::nullopt;
  const auto index = static_cast<std::size_t>(protocol);
  const std::size_t gpu = generation(system.compute_capability);
  const std::size_t nodes = nodes_index(system.nodes);
  const double channels = system.ring.channels;
  double bus = std::min(kLl128Share * bus_bandwidth(system), channels * kTreeMax[gpu][nodes]);
  if (protocol == NcclProtocol::kLL) bus = std::min(bus / kTreeLlDivisor, ll_max(system));
  if (protocol == NcclProtocol::kLL128) {
    bus = std::min(bus * (system.nodes == 1 ? kTreeLl128OneNode : kTreeLl128Nodes),
                   channels * kTreeLl128[gpu][nodes]);
  }
  const double intra = system.nvlink ? kTreeNvlink[index] : kTreePci[index];
  NcclTuning tuning;
  tuning.gb_per_s = 0.5 * bus;
  tuning.latency_us = kTreeBase[index] + 2 * ((per_node(system) - 1) * intra +
                                              log2_floor(system.nodes) * kTreeNet[index]);
  return tuning;
}

// NVLS: the switch reduces and multicasts; NVLSTree: trees between nodes over it.
std::optional<NcclTuning> nvls(const NcclSystem& system, CollectiveKind kind, bool with_tree) {
  const std::size_t gpu = generation(system.compute_capability);
  if (system.nvls.channels < 2 || kNvlsEfficiency[gpu] <= 0) return std::nullopt;
  if (with_tree != (system.nodes > 1)) return std::nullopt;  // NVLS over nodes needs SHARP
  if (kind != CollectiveKind::kAllReduce && (with_tree || !gathers(kind))) return std::nullopt;
  const double channels = system.nvls.channels;
  const double local = per_node(system);
  double intra = system.nvls.intra_gb_per_s * kNvlsEfficiency[gpu] * (channels - 1) / channels;
  intra *= kind == CollectiveKind::kAllReduce ? 2 : (local - 1) / local;
  double inter = system.nvls.inter_gb_per_s;
  if (with_tree && system.nodes <= 2) inter *= 2;
  double speed = std::min(intra, inter);
  if (with_tree) speed = std::min(speed, kNvlsTreeMax[gpu][nodes_index(system.nodes)]);
  NcclTuning tuning;
  tuning.gb_per_s = channels * speed;
  if (kind == CollectiveKind::kAllReduce) {
    tuning.gb_per_s *= static_cast<double>(system.ranks) / steps_of(kind, system.ranks);
  }
  tuning.latency_us = kNvlsNvlink;
  if (with_tree)
    tuning.latency_us += 2 * log2_floor(system.nodes) * kNvlsTreeNet;
  else if (system.nodes > 1)
    tuning.latency_us += kNvlsNet;
  return tuning;
}

// PAT: parallel aggregated trees, for one GPU per node.
std::optional<NcclTuning> pat(const NcclSystem& system, CollectiveKind kind) {
  if (!gathers(kind) || per_node(system) != 1 || system.nodes < 2) return std::nullopt;
  NcclTuning tuning;
  tuning.gb_per_s = kPatShare * bus_bandwidth(system);
  tuning.latency_us =
      kPatBase + log2_floor(system.nodes) * kPatNet / kPatNetDivisor + kPatPerRank * system.ranks;
  return tuning;
}

bool enabled(const NcclSystem& system, NcclProtocol protocol) {
  if (protocol != NcclProtocol::kLL128) return true;
  return system.compute_capability >= 70 && system.nvlink && (system.nodes == 1 || system.near_nic);
}

// What the links carry: `inside` GB/s within a node, and over several nodes `nics` of `nic` GB/s,
// each of which takes whole channels only.
struct Limits {
  double inside = 0;
  int nics = 0;
  double nic = 0;
};

// The fastest candidate: most channels x speed that the links carry; of equals the fewer, faster
// channels, as the search meets them first.
NcclGraph best_graph(std::span<const double> candidates, const Limits& limits) {
  NcclGraph best;
  double best_total = 0;
  for (const double speed : candidates) {
    double channels = limits.inside > 0 ? std::floor(limits.inside / speed + 1e-9) : kMaxChannels;
    if (limits.nics > 0) {
      channels = std::min(channels, limits.nics * std::floor(limits.nic / speed + 1e-9));
    }
    channels = std::min<double>(channels, kMaxChannels);
    if (channels * speed > best_total * 1.0001) {
      best_total = channels * speed;
      best = {static_cast<int>(channels), speed, speed};
    }
  }
  return best;
}

double nvlink_share(int compute_capability) {
  if (compute_capability >= 100) return kShare100;
  return compute_capability >= 90 ? kShare90 : kShare80;
}

NcclGraph search(int compute_capability, const Limits& limits) {
  const bool several_nodes = limits.nics > 0;
  if (compute_capability >= 100) {
    return several_nodes ? best_graph(kInter100, limits) : best_graph(kIntra100, limits);
  }
  if (compute_capability >= 90) {
    return several_nodes ? best_graph(kInter90, limits) : best_graph(kIntra90, limits);
  }
  return several_nodes ? best_graph(kInter80, limits) : best_graph(kIntra80, limits);
}

}  // namespace

std::string_view name(NcclAlgorithm algorithm) {
  constexpr std::array<std::string_view, 5> kNames = {"tree", "ring", "nvls", "nvls_tree", "pat"};
  return kNames[static_cast<std::size_t>(algorithm)];
}

std::string_view name(NcclProtocol protocol) {
  constexpr std::array<std::string_view, 3> kNames = {"LL", "LL128", "Simple"};
  return kNames[static_cast<std::size_t>(protocol)];
}

NcclSystem nccl_system(int compute_capability, int ranks, int nodes, bool nvswitch,
                       double nvlink_gb_per_s, int nics, double nic_gb_per_s, NcclCpu cpu) {
  NcclSystem system;
  system.compute_capability = compute_capability;
  system.ranks = ranks;
  system.nodes = nodes;
  system.cpu = cpu;
  system.nvlink = nvlink_gb_per_s > 0;
  const double nvlink = nvlink_gb_per_s * nvlink_share(compute_capability);
  const double inside = nvlink > 0 ? nvlink : nic_gb_per_s;
  if (nodes == 1) {
    system.ring = search(compute_capability, {inside, 0, 0});
    if (system.ring.channels == 0) system.ring = {1, inside, inside};
    if (system.ring.intra_gb_per_s >= kSplitSpeed) {
      system.ring.channels *= 2;
      system.ring.intra_gb_per_s /= 2;
      system.ring.inter_gb_per_s /= 2;
    }
  } else {
    // One rank of a node passes nothing on inside it.
    const bool one_each = per_node(system) == 1;
    system.ring = search(compute_capability, {one_each ? 0 : inside, nics, nic_gb_per_s});
    if (system.ring.channels == 0) {
      // Slower than any candidate: one channel at the NIC's speed.
      system.ring = {1, nic_gb_per_s, nic_gb_per_s};
    }
  }
  if (nvswitch && compute_capability >= 90 && per_node(system) > 2) {
    const bool blackwell = compute_capability >= 100;
    system.nvls = {per_node(system), blackwell ? kNvlsIntra100 : kNvlsIntra90,
                   blackwell ? kNvlsInter100 : kNvlsInter90};
    if (nodes > 1) {
      // Blackwell's switches are far ahead of its NICs: the intra part keeps its own speed
      // (vultr-b200-poc: 718 GB/s of bus bandwidth on two nodes).
      system.nvls = {system.ring.channels, blackwell ? kNvlsIntra100 : system.ring.intra_gb_per_s,
                     system.ring.inter_gb_per_s};
    }
  }
  return system;
}

std::optional<NcclTuning> nccl_tuning(const NcclSystem& system, CollectiveKind kind,
                                      NcclAlgorithm algorithm, NcclProtocol protocol) {
  assert(system.ranks >= 2);
  const bool simple = protocol == NcclProtocol::kSimple;
  switch (algorithm) {
    case NcclAlgorithm::kRing:
      return ring(system, kind, protocol);
    case NcclAlgorithm::kTree:
      return tree(system, kind, protocol);
    case NcclAlgorithm::kNvls:
      return simple ? nvls(system, kind, false) : std::nullopt;
    case NcclAlgorithm::kNvlsTree:
      return simple ? nvls(system, kind, true) : std::nullopt;
    case NcclAlgorithm::kPat:
      return simple ? pat(system, kind) : std::nullopt;
  }
  return std::nullopt;
}

std::optional<NcclTime> nccl_time(const NcclSystem& system, CollectiveKind kind,
                                  NcclAlgorithm algorithm, NcclProtocol protocol, double bytes) {
  const auto tuning = nccl_tuning(system, kind, algorithm, protocol);
  if (!tuning || tuning->gb_per_s <= 0) return std::nullopt;
  double bandwidth = tuning->gb_per_s;
  double latency = tuning->latency_us;
  const bool all_reduce = kind == CollectiveKind::kAllReduce;
  const bool corrected_tree =
      algorithm == NcclAlgorithm::kTree ||
      (algorithm == NcclAlgorithm::kNvlsTree && system.compute_capability >= 100);
  if (all_reduce && corrected_tree && bytes >= 64) {
    const auto index = static_cast<std::size_t>(std::log2(bytes / 64));
    const auto& row = kTreeCorrection[static_cast<std::size_t>(protocol)];
    if (index < row.size()) bandwidth *= row[index];
  }
  const int channels = algorithm == NcclAlgorithm::kNvls || algorithm == NcclAlgorithm::kNvlsTree
                           ? system.nvls.channels
                           : system.ring.channels;
  if (all_reduce && algorithm == NcclAlgorithm::kRing && protocol == NcclProtocol::kSimple &&
      system.nodes > 1 && bytes / (channels * system.ranks) >= kRingSimpleBytes) {
    latency *= system.compute_capability < 80 ? kRingSimpleLatencyVolta : kRingSimpleLatency;
  }
  return NcclTime{algorithm, protocol, latency, bytes / (1000 * bandwidth), channels};
}

NcclTime nccl_choice(const NcclSystem& system, CollectiveKind kind, double bytes) {
  constexpr std::array kAlgorithms = {NcclAlgorithm::kTree, NcclAlgorithm::kRing,
                                      NcclAlgorithm::kNvls, NcclAlgorithm::kNvlsTree,
                                      NcclAlgorithm::kPat};
  constexpr std::array kOrder = {NcclProtocol::kLL, NcclProtocol::kLL128, NcclProtocol::kSimple};
  std::optional<NcclTime> best;
  for (const NcclAlgorithm algorithm : kAlgorithms) {
    for (const NcclProtocol protocol : kOrder) {
      if (!enabled(system, protocol)) continue;
      const auto time = nccl_time(system, kind, algorithm, protocol, bytes);
      if (time && (!best || time->total_us() < best->total_us())) best = time;
    }
  }
  assert(best);
  return *best;
}

}  // namespace headway
