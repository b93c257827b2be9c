#include "sim/formats/nccl_topology.hpp"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>

#include "sim/core/error.hpp"
#include "sim/core/quantity.hpp"
#include "sim/formats/xml.hpp"

namespace headway {

namespace {

// PCI classes: 3D controllers and displays, network and InfiniBand controllers, NVSwitches.
constexpr const char* kGpuClass = "0x0302";
constexpr const char* kDisplayClass = "0x0300";
constexpr const char* kNetworkClass = "0x02";
constexpr const char* kSwitchClass = "0x0680";

struct Gpu {
  std::string bus_id;
  int compute_capability = 0;          // 0: not stated
  int root = 0;                        // the bridge below the CPU that it hangs under
  std::map<std::string, int> to_gpus;  // NVLinks, by the other's bus id
  int to_switches = 0;
  double pcie = 0;  // bytes per second; 0: not stated
};
struct Nic {
  std::string name;
  int root = 0;
  double speed = 0;  // bytes per second; 0: not stated
};
struct Server {
  std::vector<Gpu> gpus;
  std::vector<Nic> nics;
  std::set<std::string> hosts;
  std::string vendor;
  int model = 0;
  int cpus = 0;  // that GPUs hang under
  int roots = 0;
  std::set<int> bridges;  // roots that are bridges: a GPU alone in its slot has none
};

int number(const std::optional<std::string>& text) {
  return text ? static_cast<int>(std::strtol(text->c_str(), nullptr, 0)) : 0;
}

// "16.0 GT/s PCIe" by so many lanes: 128 of 130 bits carry data from 8 GT/s on, 8 of 10 before.
double pcie_rate(const XmlElement& pci) {
  const double transfers = std::strtod(pci.attribute("link_speed").value_or("").c_str(), nullptr);
  const double lanes = number(pci.attribute("link_width"));
  return transfers * 1e9 * lanes / 8 * (transfers >= 8 ? 128.0 / 130 : 0.8);
}

std::string vendor_of(const XmlElement& cpu) {
  const std::string arch = cpu.attribute("arch").value_or("");
  const std::string vendor = cpu.attribute("vendor").value_or("");
  if (arch == "arm64") return "arm";
  if (vendor == "AuthenticAMD" || vendor == "AMD") return "amd";
  return vendor == "GenuineIntel" ? "intel" : "";
}

bool starts(const std::optional<std::string>& text, const char* begin) {
  return text && text->starts_with(begin);
}

void read_gpu(const XmlElement& pci, const XmlElement* element, int root, Server& server) {
  Gpu gpu;
  gpu.bus_id = pci.attribute("busid").value_or("");
  gpu.root = root;
  gpu.pcie = pcie_rate(pci);
  if (element != nullptr) {
    gpu.compute_capability = number(element->attribute("sm"));
    for (const XmlElement& link : element->children) {
      if (link.name != "nvlink") continue;
      const int count = std::max(1, number(link.attribute("count")));
      if (starts(link.attribute("tclass"), kSwitchClass)) {
        gpu.to_switches += count;
      } else {
        gpu.to_gpus[link.attribute("target").value_or("")] += count;
      }
    }
  }
  server.gpus.push_back(std::move(gpu));
}

void read_nic(const XmlElement& nic, int root, Server& server) {
  for (const XmlElement& net : nic.children) {
    if (net.name != "net") continue;
    const double megabits = number(net.attribute("speed"));
    server.nics.push_back(
        {net.attribute("name").value_or("net"), root, megabits > 0 ? megabits * 1e6 / 8 : 0});
  }
}

void read_pci(const XmlElement& pci, int root, Server& server) {
  bool leaf = true;
  for (const XmlElement& child : pci.children) {
    leaf = false;
    if (child.name == "pci") {
      server.bridges.insert(root);
      read_pci(child, root, server);
    } else if (child.name == "gpu") {
      read_gpu(pci, &child, root, server);
    } else if (child.name == "nic") {
      read_nic(child, root, server);
    }
  }
  const auto kind = pci.attribute("class");
  if (!leaf) return;
  if (starts(kind, kGpuClass) || starts(kind, kDisplayClass)) read_gpu(pci, nullptr, root, server);
  if (starts(kind, kNetworkClass)) {
    server.nics.push_back({pci.attribute("busid").value_or("net"), root, 0});
  }
}

Server read_server(const XmlElement& system) {
  Server server;
  for (const XmlElement& cpu : system.children) {
    if (cpu.name != "cpu") continue;
    if (const auto host = cpu.attribute("host_hash")) server.hosts.insert(*host);
    if (server.vendor.empty()) server.vendor = vendor_of(cpu);
    server.model = std::max(server.model, number(cpu.attribute("modelid")));
    const std::size_t before = server.gpus.size();
    for (const XmlElement& child : cpu.children) {
      const int root = server.roots++;
      if (child.name == "pci") read_pci(child, root, server);
      if (child.name == "nic") read_nic(child, root, server);
    }
    if (server.gpus.size() > before) ++server.cpus;
  }
  return server;
}

// The generator that joins GPUs as these are joined; empty: none.
std::string fabric_of(const std::vector<Gpu>& gpus) {
  const auto all = [&](auto holds) { return std::all_of(gpus.begin(), gpus.end(), holds); };
  const Gpu& first = gpus.front();
  const auto links = [](const Gpu& gpu) {
    int sum = gpu.to_switches;
    for (const auto& [other, count] : gpu.to_gpus) sum += count;
    return sum;
  };
  if (all([&](const Gpu& gpu) { return links(gpu) == 0; })) return "pcie";
  if (!all([&](const Gpu& gpu) { return links(gpu) == links(first); })) return "";
  if (all([](const Gpu& gpu) { return gpu.to_gpus.empty(); })) return "nvswitch";
  if (!all([](const Gpu& gpu) { return gpu.to_switches == 0; })) return "";
  const int each = first.to_gpus.begin()->second;
  const bool to_all = all([&](const Gpu& gpu) {
    return gpu.to_gpus.size() == gpus.size() - 1 &&
           std::all_of(gpu.to_gpus.begin(), gpu.to_gpus.end(),
                       [&](const auto& link) { return link.second == each; });
  });
  if (to_all) return "all-to-all";
  constexpr std::size_t kCubeGpus = 8, kCubePeers = 4;
  const bool cube = gpus.size() == kCubeGpus && links(first) == 6 &&
                    all([](const Gpu& gpu) { return gpu.to_gpus.size() == kCubePeers; });
  return cube ? "hybrid-cube-mesh" : "";
}

// NCCL's topology search (topo.h): Intel by generation; others by vendor alone.
std::optional<Bandwidth> between_sockets(const Server& server) {
  constexpr int kSapphireRapids = 143, kEmeraldRapids = 207, kSkylake = 85;
  if (server.vendor != "intel") return std::nullopt;
  if (server.model >= kEmeraldRapids) return Bandwidth{40e9};
  if (server.model >= kSapphireRapids) return Bandwidth{22e9};
  return Bandwidth{server.model >= kSkylake ? 10e9 : 6e9};
}

const char* device_of(int compute_capability) {
  switch (compute_capability) {
    case 70:
      return "v100-sxm2-32gb";
    case 80:
      return "a100-sxm-80gb";
    case 90:
      return "h100-sxm";
    case 100:
      return "b200";
    case 103:
      return "b300";
    default:
      return "";
  }
}

// Those that share a bridge with a GPU, where there are any; of these the fastest.
std::vector<Nic> used_nics(const Server& server, NodeDraft& draft) {
  std::set<int> roots;
  for (const Gpu& gpu : server.gpus) roots.insert(gpu.root);
  const auto near = [&](const Nic& nic) {
    return roots.contains(nic.root) && server.bridges.contains(nic.root);
  };
  const bool any_near = std::any_of(server.nics.begin(), server.nics.end(), near);
  double fastest = 0;
  for (const Nic& nic : server.nics) {
    if (!any_near || near(nic)) fastest = std::max(fastest, nic.speed);
  }
  std::vector<Nic> used;
  for (const Nic& nic : server.nics) {
    if ((any_near && !near(nic)) || nic.speed < fastest) {
      draft.left_out.push_back(
          nic.name + ", " +
          (any_near && !near(nic) ? "which no GPU is near" : "slower than the others"));
    } else {
      used.push_back(nic);
    }
  }
  return used;
}

}  // namespace

NodeDraft import_nccl_topology(std::string_view text, const std::string& file) {
  const XmlElement system = parse_xml(text, file);
  if (system.name != "system") {
    throw InvalidInput(file, "",
                       "line " + std::to_string(system.line) + ": <" + system.name +
                           ">; expected <system>, as NCCL_TOPO_DUMP_FILE writes it");
  }
  const Server server = read_server(system);
  if (server.hosts.size() > 1) {
    throw InvalidInput(
        file, "",
        "holds " + std::to_string(server.hosts.size()) + " hosts (host_hash); expected one server");
  }
  if (server.gpus.empty()) throw InvalidInput(file, "", "has no GPUs");
  NodeDraft draft;
  draft.source = file;
  draft.format = "NCCL's topology XML";
  draft.gpus = static_cast<int>(server.gpus.size());
  draft.fabric = fabric_of(server.gpus);
  if (draft.fabric.empty()) {
    throw InvalidInput(file, "",
                       "its GPUs are joined by NVLink as no generator joins them: neither through "
                       "switches, nor each to each, nor as a hybrid cube mesh of eight");
  }
  const Gpu& first = server.gpus.front();
  draft.links = first.to_switches;
  for (const auto& [other, count] : first.to_gpus) draft.links += count;
  if (first.pcie > 0) draft.pcie = Bandwidth{first.pcie};
  std::set<int> bridges;
  for (const Gpu& gpu : server.gpus) {
    if (server.bridges.contains(gpu.root)) bridges.insert(gpu.root);
  }
  draft.pcie_switches = static_cast<int>(bridges.size());
  draft.cpu_vendor = server.vendor;
  draft.sockets = server.cpus > 1 ? 2 : 1;  // more NUMA nodes than two are parts of sockets
  draft.socket = between_sockets(server);
  const std::vector<Nic> nics = used_nics(server, draft);
  draft.nics = static_cast<int>(nics.size());
  if (!nics.empty() && nics.front().speed > 0) draft.nic = Bandwidth{nics.front().speed};
  if (draft.nics > 0 && draft.gpus % draft.nics != 0 && draft.nics % draft.gpus != 0) {
    throw InvalidInput(file, "",
                       std::to_string(draft.nics) + " NICs cannot be divided among " +
                           std::to_string(draft.gpus) + " GPUs");
  }
  if (const char* device = device_of(first.compute_capability); *device != '\0') {
    set_profile(draft, device);
  } else if (first.compute_capability > 0 && draft.links > 0) {
    draft.link_bandwidth = nvlink_of(first.compute_capability) * draft.links;
  }
  return draft;
}

}  // namespace headway
