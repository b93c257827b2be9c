#include "sim/cost/collective_cost.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "sim/cluster/cluster_description.hpp"
#include "sim/cluster/generators.hpp"

namespace headway {

namespace {

constexpr double kGiga = 1e9;
// Share of a PCIe link's data-sheet bandwidth that peer copies reach (nvbandwidth 24.6 of 31 GB/s,
// azure-aibg in calibration/points/p2p.csv).
constexpr double kPcieShare = 0.8;
// Curve of another group size on the same links: the same bytes on the wire; band of that transfer,
// from the spread of bus bandwidth between 2, 4 and 8 ranks in calibration/points/collectives.csv.
constexpr double kTransferredBand = 0.15;
// All-to-all: each peer's message is a send of its own; launched together, they overlap but for
// their posting (vultr-b200-poc, 16 ranks: 37 us at 1 KiB against 23 us for 8).
constexpr double kPostPerPeerUs = 1.5;
constexpr double kAllToAllBand = 0.3;
// Measured over modelled latency between nodes: NCCL's own constants are made for choosing. Small
// all-reduces of 16 ranks take 1.57 times as long on InfiniBand (vultr-b200-poc, 4 to 32 KiB),
// all-gathers 2.3 times on RoCE (gcp-toolkit, H200), more on the clouds' own transports.
constexpr double kNetworkLatency = 1.6;
// The model's band where bytes decide and where latency does, over the profile's: at 64 MiB and
// more it is within 10 % of the published InfiniBand and RoCE runs, at 4 KiB within 50 %.
constexpr double kTransferBandShare = 0.4;
constexpr double kLatencyBandShare = 2.0;

CollectivePrice nothing() {
  CollectivePrice price;
  price.algorithm = "none";
  price.protocol = "Simple";
  return price;
}

NcclCpu cpu_of(const std::string& vendor) {
  if (vendor == "amd") return NcclCpu::kAmd;
  return vendor == "arm" ? NcclCpu::kArm : NcclCpu::kIntel;
}

// Whether GPUs of a node meet over PCI Express alone: then nothing measured over NVLink holds.
bool over_pcie(const Topology& topology) {
  const GpuFabric* const fabric = find_gpu_fabric(topology.description().server.gpu_fabric);
  return fabric != nullptr && fabric->hub == NodeKind::kPcieSwitch;
}

std::int64_t rounded(double bytes) { return static_cast<std::int64_t>(std::llround(bytes)); }

// Beyond its largest message a curve goes on with the bandwidth between its last two points.
double time_on(const Curve& curve, double bytes) {
  const std::vector<CurvePoint>& points = curve.points();
  if (bytes <= curve.max_x() || points.size() < 2) return curve.at(bytes);
  const CurvePoint& last = points.back();
  const CurvePoint& before = points[points.size() - 2];
  const double per_byte = std::max(0.0, (last.y - before.y) / (last.x - before.x));
  return last.y + (bytes - last.x) * per_byte;
}

}  // namespace

double bus_bytes(CollectiveKind kind, double bytes, int ranks) {
  const double share = static_cast<double>(ranks - 1) / ranks;
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return 2 * share * bytes;
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllGather:
    case CollectiveKind::kAllToAll:
      return share * bytes;
    default:
      return bytes;
  }
}

CollectiveCost::CollectiveCost(const Profile& profile, const Topology& topology)
    : profile_(profile), topology_(topology) {}

NcclSystem CollectiveCost::system(const GroupPlacement& placement,
                                  double network_efficiency) const {
  const int gpus = std::max(1, topology_.gpus_per_node());
  // Ranks of a node use the NICs of their own rails.
  const int nics =
      std::max(1, (placement.ranks_per_node * topology_.nics_per_node() + gpus - 1) / gpus);
  double inside = topology_.nvlink_bandwidth().bytes_per_second / kGiga;
  const double pcie = profile_.device.pcie.bytes_per_second / kGiga * kPcieShare;
  const bool nvlink = inside > 0 && !over_pcie(topology_);
  if (!nvlink) inside = pcie;
  NcclSystem system =
      nccl_system(profile_.device.compute_capability, placement.ranks, placement.nodes,
                  topology_.has_nvswitch(), nvlink ? inside : 0, nics,
                  placement.nodes > 1 ? topology_.nic_bandwidth().bytes_per_second / kGiga : inside,
                  cpu_of(topology_.cpu_vendor()));
  if (placement.nodes > 1) {
    for (NcclGraph* graph : {&system.ring, &system.nvls}) {
      graph->intra_gb_per_s *= network_efficiency;
      graph->inter_gb_per_s *= network_efficiency;
    }
  }
  return system;
}

const CollectiveCurve* CollectiveCost::curve_for(CollectiveKind kind,
                                                 const GroupPlacement& placement) const {
  if (placement.nodes != 1) return nullptr;  // a curve over nodes holds for its own fabric only
  if (over_pcie(topology_) && profile_.device.nvlink.bytes_per_second > 0) return nullptr;
  const CollectiveCurve* best = nullptr;
  for (const CollectiveCurve& curve : profile_.collectives) {
    if (curve.kind != kind || curve.nodes != 1) continue;
    if (best == nullptr ||
        std::abs(curve.ranks - placement.ranks) < std::abs(best->ranks - placement.ranks)) {
      best = &curve;
    }
  }
  return best;
}

CollectivePrice CollectiveCost::price(const Collective& collective, const GroupPlacement& placement,
                                      double network_efficiency) const {
  const double bytes = static_cast<double>(size(collective).count);
  if (placement.ranks <= 1 || bytes <= 0) return nothing();
  if (collective.kind == CollectiveKind::kSend || collective.kind == CollectiveKind::kReceive) {
    return send(size(collective), placement.nodes == 1, network_efficiency);
  }
  if (collective.kind == CollectiveKind::kShift) {
    return shift(size(collective), placement, network_efficiency);
  }
  if (const CollectiveCurve* curve = curve_for(collective.kind, placement)) {
    return by_curve(*curve, collective.kind, bytes, placement.ranks);
  }
  if (collective.kind == CollectiveKind::kAllToAll) {
    const double even = bytes / placement.ranks * (placement.ranks - placement.ranks_per_node);
    const double remote =
        collective.network_elements < 0
            ? even
            : static_cast<double>(size_of(collective.type, collective.network_elements).count);
    return all_to_all(bytes, remote, placement, network_efficiency);
  }
  return by_model(collective.kind, bytes, placement, network_efficiency);
}

CollectivePrice CollectiveCost::by_curve(const CollectiveCurve& curve, CollectiveKind kind,
                                         double bytes, int ranks) const {
  // Of another group size: the array that puts as many bytes on the wire.
  const double equal = bytes * bus_bytes(kind, 1, ranks) / bus_bytes(kind, 1, curve.ranks);
  const double smallest = curve.time_us.at(curve.time_us.min_x());
  const double time_us = time_on(curve.time_us, equal);
  CollectivePrice price;
  price.latency = Time::from_microseconds(std::min(smallest, time_us));
  price.alone.time = Time::from_microseconds(time_us);
  price.alone.grade = curve.time_us.covers(equal) ? Grade::kMeasured : Grade::kFitted;
  price.alone.band = curve.band;
  if (curve.ranks != ranks) {
    price.alone.grade = std::max(price.alone.grade, Grade::kFitted);
    price.alone.band = std::max(curve.band, kTransferredBand);
  }
  price.alone.grade = std::max(price.alone.grade, curve.floor);
  if (const double factor = topology_.description().server.gpu_link_factor; factor != 1) {
    // Measured on other links: what is no latency goes as their bandwidth does.
    const Time moving = price.alone.time - price.latency;
    price.alone.time = price.latency + Time::from_seconds(moving.seconds() / factor);
    price.alone.grade = std::max(price.alone.grade, Grade::kExtrapolated);
  }
  price.wire_bytes = rounded(bus_bytes(kind, bytes, ranks));
  if (kind == CollectiveKind::kAllToAll || kind == CollectiveKind::kSend) {
    price.algorithm = "p2p";
    price.protocol = "Simple";
    return price;
  }
  GroupPlacement placement;
  placement.ranks = placement.ranks_per_node = ranks;
  const NcclTime choice = nccl_choice(system(placement, 1), kind, bytes);
  price.algorithm = name(choice.algorithm);
  price.protocol = name(choice.protocol);
  price.channels = choice.channels;
  return price;
}

CollectivePrice CollectiveCost::by_model(CollectiveKind kind, double bytes,
                                         const GroupPlacement& placement,
                                         double network_efficiency) const {
  const NcclTime choice = nccl_choice(system(placement, network_efficiency), kind, bytes);
  const double latency_us = choice.latency_us * (placement.nodes > 1 ? kNetworkLatency : 1);
  const double total_us = latency_us + choice.transfer_us;
  CollectivePrice price;
  price.latency = Time::from_microseconds(latency_us);
  price.alone.time = Time::from_microseconds(total_us);
  // NCCL's constants say nothing of other devices.
  price.alone.grade =
      profile_.device.compute_capability > 0 ? Grade::kFitted : Grade::kExtrapolated;
  const double latency_share = latency_us / total_us;
  price.alone.band = profile_.collective_band *
                     (kTransferBandShare * (1 - latency_share) + kLatencyBandShare * latency_share);
  double wire = bus_bytes(kind, bytes, placement.ranks);
  // A ring crosses between two nodes once per channel: a node's traffic is that of one rank, spread
  // over its NICs.
  if (placement.nodes > 1) wire /= placement.ranks_per_node;
  price.wire_bytes = rounded(wire);
  price.algorithm = name(choice.algorithm);
  price.protocol = name(choice.protocol);
  price.channels = choice.channels;
  return price;
}

CollectivePrice CollectiveCost::all_to_all(double bytes, double remote,
                                           const GroupPlacement& placement,
                                           double network_efficiency) const {
  const bool inside = placement.nodes == 1;
  const double each = bytes / placement.ranks;
  const double local = each * (placement.ranks_per_node - 1);
  const CollectivePrice near = send({rounded(local)}, true);
  const CollectivePrice far = send({rounded(remote)}, false, network_efficiency);
  CollectivePrice price = inside || near.alone.time > far.alone.time ? near : far;
  const Time posting = Time::from_microseconds(kPostPerPeerUs * (placement.ranks - 2));
  price.latency += posting;
  price.alone.time += posting;
  price.alone.band = std::max(price.alone.band, kAllToAllBand);
  price.wire_bytes = rounded(inside ? local : remote);
  return price;
}

// All members send at once, each over its own links; where the ring crosses nodes, its slowest hop
// is such a one. A node's traffic is that of one rank.
CollectivePrice CollectiveCost::shift(Bytes bytes, const GroupPlacement& placement,
                                      double network_efficiency) const {
  CollectivePrice price = send(bytes, placement.nodes == 1, network_efficiency);
  if (placement.nodes > 1) price.wire_bytes /= placement.ranks_per_node;
  price.algorithm = "ring";
  return price;
}

CollectivePrice CollectiveCost::send(Bytes bytes, bool same_node, double network_efficiency) const {
  const SendModel& model = profile_.send;
  if (bytes.count <= 0) return nothing();
  if (same_node) {
    GroupPlacement pair;
    pair.ranks = pair.ranks_per_node = 2;
    if (const CollectiveCurve* curve = curve_for(CollectiveKind::kSend, pair)) {
      return by_curve(*curve, CollectiveKind::kSend, static_cast<double>(bytes.count), 2);
    }
  }
  Bandwidth bandwidth;
  if (same_node) {
    bandwidth = topology_.nvlink_bandwidth();
    if (bandwidth.bytes_per_second <= 0) bandwidth = profile_.device.pcie;
    bandwidth = bandwidth * model.same_node_share;
  } else {
    bandwidth = topology_.nic_bandwidth() * (model.network_share * network_efficiency);
  }
  CollectivePrice price;
  price.latency = same_node ? model.same_node_latency : model.network_latency;
  price.alone = {price.latency + bytes / bandwidth, Grade::kFitted, model.band};
  price.wire_bytes = bytes.count;
  price.algorithm = "p2p";
  price.protocol = "Simple";
  price.channels = 1;
  return price;
}

}  // namespace headway
