#include "sim/formats/node_draft.hpp"

#include "sim/cluster/device.hpp"
#include "sim/core/json_writer.hpp"
#include "sim/core/quantity.hpp"

namespace headway {

namespace {

// Latencies that no file states: half of NCCL's NVLink step; a PCIe switch; and what makes NCCL's
// network step of two NIC links and four PCIe hops (its tuning constants), as in topologies/.
constexpr const char* kNvlinkLatency = "0.3 us";
constexpr const char* kPcieLatency = "0.15 us";
constexpr const char* kSocketLatency = "0.3 us";
constexpr const char* kNicLatency = "1.05 us";
constexpr const char* kNotStated = "; latency: not in the file, NCCL's tuning constants";
// NCCL's topology search: bandwidth between sockets by vendor (facts: topo.h).
constexpr double kSocketIntel = 10e9, kSocketAmd = 16e9, kSocketArm = 6e9;

Bandwidth between_sockets(const NodeDraft& draft) {
  if (draft.socket) return *draft.socket;
  if (draft.cpu_vendor == "amd") return {kSocketAmd};
  return {draft.cpu_vendor == "arm" ? kSocketArm : kSocketIntel};
}

}  // namespace

Bandwidth nvlink_of(int compute_capability) { return {compute_capability >= 100 ? 50e9 : 25e9}; }

void set_profile(NodeDraft& draft, const std::string& profile) {
  draft.profile = profile;
  const Device* const device = find_device(profile);
  if (device != nullptr && draft.links > 0) {
    draft.link_bandwidth = nvlink_of(device->compute_capability) * draft.links;
  }
  if (device != nullptr && !draft.pcie) draft.pcie = device->pcie;
}

std::vector<std::string> NodeDraft::missing() const {
  std::vector<std::string> keys;
  if (profile.empty()) keys.emplace_back("profiles");
  if (fabric != "pcie" && !link_bandwidth) keys.emplace_back("node.gpu_fabric.bandwidth");
  if (!pcie_switches) keys.emplace_back("node.pcie.switches");
  if (!pcie) keys.emplace_back("node.pcie.bandwidth");
  if (cpu_vendor.empty()) keys.emplace_back("node.cpu.vendor");
  if (nics > 0 && !nic) keys.emplace_back("node.nics.bandwidth");
  return keys;
}

std::string NodeDraft::json() const {
  JsonWriter json;
  json.begin_object();
  json.field("name", "imported").field("title", "a server as " + format + " describes it");
  json.field("source", source);
  if (!profile.empty()) json.key("profiles").begin_array(true).value(profile).end_array();
  json.field("max_nodes", 1).field("max_reason", format + " describes one server");
  json.key("node").begin_object();
  json.field("source", source).field("gpus", gpus);
  json.key("gpu_fabric").begin_object();
  json.field("source", source + (fabric == "pcie" ? "" : kNotStated));
  json.field("generator", fabric);
  if (fabric != "pcie") {
    if (link_bandwidth) json.field("bandwidth", to_text(*link_bandwidth));
    json.field("latency", kNvlinkLatency).field("links", links);
  }
  json.end_object();
  json.key("pcie").begin_object().field("source", source + kNotStated);
  if (pcie_switches) json.field("switches", *pcie_switches);
  if (pcie) json.field("bandwidth", to_text(*pcie));
  json.field("latency", kPcieLatency).end_object();
  json.key("cpu").begin_object().field("source", source + kNotStated);
  if (!cpu_vendor.empty()) json.field("vendor", cpu_vendor);
  json.field("sockets", sockets);
  if (sockets > 1) {
    json.field("bandwidth", to_text(between_sockets(*this))).field("latency", kSocketLatency);
  }
  json.end_object();
  if (nics > 0) {
    json.key("nics").begin_object().field("source", source + kNotStated).field("count", nics);
    if (nic) json.field("bandwidth", to_text(*nic));
    json.field("latency", kNicLatency).end_object();
  }
  json.end_object().end_object();
  return json.text();
}

}  // namespace headway
