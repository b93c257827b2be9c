// A server as another tool's file describes it, on its way to a topology file
// (topology_reader.hpp): what the file does not state is left out and listed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/core/units.hpp"

namespace headway {

struct NodeDraft {
  std::string source;   // the file
  std::string format;   // "NCCL's topology XML"
  std::string profile;  // a device; empty: not stated
  int gpus = 0;
  std::string fabric;                       // "nvswitch", "all-to-all", "hybrid-cube-mesh", "pcie"
  int links = 0;                            // NVLinks of a GPU
  std::optional<Bandwidth> link_bandwidth;  // of all of a GPU's links, one way
  std::optional<int> pcie_switches;
  std::optional<Bandwidth> pcie;
  std::string cpu_vendor;  // empty: not stated
  int sockets = 1;
  std::optional<Bandwidth> socket;  // between two; absent: as NCCL takes it for the vendor
  int nics = 0;
  std::optional<Bandwidth> nic;
  std::vector<std::string> left_out;  // what the file has and the draft does not

  // Keys of the topology file that are missing in json(): it is refused until they are filled in.
  std::vector<std::string> missing() const;
  // The topology file, of one node: how nodes are joined no such file says.
  std::string json() const;
};

// Bandwidth of one NVLink, one way, of a device: 25 GB/s up to Hopper, 50 from Blackwell on (data
// sheets).
Bandwidth nvlink_of(int compute_capability);

// Fills what follows from the device once it is known: the bandwidth of `links`.
void set_profile(NodeDraft& draft, const std::string& profile);

}  // namespace headway
