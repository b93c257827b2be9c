#include "sim/search/machine_change.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>
#include <utility>

#include "sim/cluster/cluster_description.hpp"
#include "sim/cluster/generators.hpp"

namespace headway {

namespace {

struct ResourceWords {
  Resource resource;
  std::string_view name, words;
};
constexpr ResourceWords kResources[] = {
    {Resource::kMatrixRate, "gemm", "matrix multiplication rate"},
    {Resource::kMemoryBandwidth, "memory_bandwidth", "memory bandwidth"},
    {Resource::kNvlink, "nvlink", "bandwidth between GPUs of a node"},
    {Resource::kNic, "nic", "NIC bandwidth"},
    {Resource::kHost, "host", "speed of the host"},
    {Resource::kMemory, "memory", "device memory"},
};

Time faster(Time time, double factor) { return Time::from_seconds(time.seconds() / factor); }

void scale_matrix_rate(Profile& profile, double factor) {
  for (auto& [type, rate] : profile.device.dense_peak) rate = rate * factor;
  for (GemmTable& table : profile.gemms) {
    for (GemmPoint& point : table.points) point.time = faster(point.time, factor);
  }
  for (AttentionRate& rate : profile.attention) {
    rate.rate = rate.rate * factor;
    for (AttentionPoint& point : rate.points) point.time = faster(point.time, factor);
  }
}

void scale_memory_bandwidth(Profile& profile, double factor) {
  profile.device.memory_bandwidth = profile.device.memory_bandwidth * factor;
  for (KernelRate& kernel : profile.memory.kernels) kernel.rate = kernel.rate * factor;
}

// The job on the same cluster with every link of a kind changed.
void scale_links(Job& job, const std::string& kind, double factor) {
  ClusterDescription cluster = job.topology.description();
  if (cluster.graph) {
    for (GraphDescription::Link& link : cluster.graph->links) {
      if (link.kind == kind) link.link.bandwidth = link.link.bandwidth * factor;
    }
  }
  ServerDescription& server = cluster.server;
  LinkDescription& link = kind == kNicLink ? server.nic
                          : kind == kPcie  ? server.pcie
                                           : server.gpu_link;
  link.bandwidth = link.bandwidth * factor;
  if (kind != kNicLink) server.gpu_link_factor *= factor;
  job.topology = Topology(std::move(cluster), job.topology.gpus());
}

bool scale_host(Software& software, double factor) {
  Time* const times[] = {&software.host_per_kernel_forward, &software.host_per_kernel_backward,
                         &software.host_per_micro_batch, &software.host_per_step};
  bool any = false;
  for (Time* const time : times) {
    any = any || *time > Time::zero();
    *time = faster(*time, factor);
  }
  return any;
}

}  // namespace

const std::vector<Resource>& resources() {
  static const std::vector<Resource> all = [] {
    std::vector<Resource> list;
    for (const ResourceWords& each : kResources) list.push_back(each.resource);
    return list;
  }();
  return all;
}

std::string_view name(Resource resource) {
  return kResources[static_cast<std::size_t>(resource)].name;
}
std::string_view words(Resource resource) {
  return kResources[static_cast<std::size_t>(resource)].words;
}

std::optional<Machine> with_factor(const Job& job, const Profile& profile, Resource resource,
                                   double factor) {
  Machine machine{job, profile};
  switch (resource) {
    case Resource::kMatrixRate:
      scale_matrix_rate(machine.profile, factor);
      break;
    case Resource::kMemoryBandwidth:
      scale_memory_bandwidth(machine.profile, factor);
      break;
    case Resource::kNvlink: {
      const GpuFabric* const fabric = find_gpu_fabric(job.topology.description().server.gpu_fabric);
      if (job.topology.gpus_per_node() < 2 || job.gpus() < 2) return std::nullopt;
      scale_links(machine.job, fabric == nullptr ? std::string(kNvlink) : fabric->link_kind,
                  factor);
      break;
    }
    case Resource::kNic:
      if (job.topology.nodes() < 2 || job.topology.nic_bandwidth().bytes_per_second <= 0)
        return std::nullopt;
      scale_links(machine.job, kNicLink, factor);
      break;
    case Resource::kHost:
      if (!scale_host(machine.job.software, factor)) return std::nullopt;
      break;
    case Resource::kMemory:
      machine.profile.device.memory = Bytes{static_cast<std::int64_t>(
          std::llround(static_cast<double>(machine.profile.device.memory.count) * factor))};
      break;
  }
  return machine;
}

}  // namespace headway
