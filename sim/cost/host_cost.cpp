#include "sim/cost/host_cost.hpp"

#include <algorithm>

#include "sim/core/error.hpp"
#include "sim/cost/compute_cost.hpp"

namespace headway {

namespace {

// Share of the nominal memory bandwidth that the optimizer's loops reach on the host: 10 billion
// parameters of 28 bytes in 2.57 s on two Xeon 8168 of 256 GB/s together (arXiv 2101.06840, table
// 4: CPU-Adam; from memory).
constexpr double kHostEfficiency = 0.43;
// Links and hosts differ by how processes are bound to cores and memory: 1.3 times for a whole step
// (DeepSpeed's offload tutorial, --bind_cores_to_rank).
constexpr double kHostBand = 0.3;

bool is_copy(const Kernel& kernel) {
  return kernel.kind == KernelKind::kToHost || kernel.kind == KernelKind::kToDevice;
}

}  // namespace

HostCost::HostCost(const Topology& topology)
    : host_(topology.host_memory()), topology_(topology.name()) {}

bool HostCost::prices(const Operation& operation) {
  const auto* kernel = std::get_if<Kernel>(&operation);
  return kernel != nullptr && (kernel->on_host || is_copy(*kernel));
}

Price HostCost::price(const Operation& operation) const {
  if (!host_) {
    throw InvalidInput("topology " + topology_, "/node/host_memory",
                       "missing; expected the memory of the node's CPUs, which what is offloaded "
                       "needs");
  }
  const auto& kernel = std::get<Kernel>(operation);
  Price price{Time::zero(), Grade::kExtrapolated, kHostBand};
  if (is_copy(kernel)) {
    const Bytes moved = size_of(kernel.type, kernel.rows * kernel.columns);
    const double rate = std::min(host_->link.bytes_per_second, host_->bandwidth.bytes_per_second);
    price.time = host_->latency + Time::from_seconds(static_cast<double>(moved.count) / rate);
  } else {
    const auto moved = static_cast<double>(bytes_moved(kernel).count);
    price.time = Time::from_seconds(moved / (kHostEfficiency * host_->bandwidth.bytes_per_second));
  }
  return price;
}

}  // namespace headway
