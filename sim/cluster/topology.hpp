// The cluster as a directed graph: GPUs, switches, NICs; edges with bandwidth per direction,
// latency and a count of parallel links. Read from a JSON file of topologies/ or made by a
// generator, cut to the GPUs a job uses. Boost.Graph stays behind this header.
//
// What a job asks most (where a rank sits, which NIC it uses, how a group is placed) is arithmetic;
// the graph itself is built when vertices, links or a route are first asked for, once, by whichever
// thread asks. A Topology never changes and is cheap to copy.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sim/cluster/device.hpp"
#include "sim/core/json_reader.hpp"
#include "sim/core/units.hpp"

namespace headway {

struct ClusterDescription;

enum class NodeKind : std::uint8_t {
  kGpu,
  kNvSwitch,
  kPcieSwitch,
  kCpu,
  kNic,
  kLeaf,
  kSpine,
  kCore
};
std::string_view name(NodeKind kind);

using VertexId = int;
using LinkId = int;

struct Vertex {
  NodeKind kind = NodeKind::kGpu;
  std::string name;  // "node3/gpu5"
  int node = -1;     // server; -1 for network switches
  int domain = -1;   // NVLink domain of a GPU
};

struct TopologyLink {
  VertexId from = 0, to = 0;
  std::string kind;     // as in "links" of a topology: "nvlink", "pcie", "nic", "leaf-spine"
  Bandwidth bandwidth;  // of all `count` parallel links together, in this direction
  Time latency;
  int count = 1;
};

// Where the members of a process group sit, as collective costs need it.
struct GroupPlacement {
  int ranks = 1;
  int nodes = 1;           // servers (NVLink domains where those are larger)
  int ranks_per_node = 1;  // the most on one
  int neighbours_sharing_nic =
      1;  // ranks of one node, of any group, that share a NIC with a member
};

// What one GPU has of its server's memory: its share of the way there where all GPUs of the server
// copy at once, in one direction; of what the memory moves, reads and writes together; of its size
// (0: not known).
struct HostMemory {
  Bandwidth link;
  Time latency;
  std::string link_kind;  // "pcie", "c2c", "memory"
  Bandwidth bandwidth;
  Bytes size;
};

class Topology {
 public:
  // The first `gpus` GPUs. REQUIRES: a description read without problems that holds as many.
  Topology(ClusterDescription cluster, int gpus);
  Topology(const Topology&);
  Topology(Topology&&) noexcept;
  Topology& operator=(Topology) noexcept;
  ~Topology();

  const ClusterDescription& description() const;
  const std::string& name() const;
  const std::string& source() const;  // where its figures come from
  const std::string& default_profile() const;
  const std::vector<std::string>& profiles() const;
  int gpus() const;
  int nodes() const;
  int gpus_per_node() const;        // of one server
  int gpus_per_domain() const;      // of one NVLink domain (= server but for NVL72)
  int nics_per_node() const;        // NICs that serve one GPU together count as one
  Bandwidth nic_bandwidth() const;  // one NIC, one direction; 0 where there are none
  // One GPU into its switch or to all its peers, one direction; where there is no NVLink, what
  // takes its place (PCI Express, the memory of a CPU's cores).
  Bandwidth nvlink_bandwidth() const;
  // Nothing where the topology does not say how GPUs reach their host, or what its memory moves.
  std::optional<HostMemory> host_memory() const;
  bool has_nvswitch() const;
  std::string cpu_vendor() const;  // "intel", "amd", "arm": NCCL's tuning asks
  std::optional<double> watts_per_node() const;
  std::optional<double> dollars_per_gpu_hour() const;

  const std::vector<Vertex>& vertices() const;
  const std::vector<TopologyLink>& links() const;
  VertexId gpu(int rank) const;  // rank r sits on GPU r, in node order
  int node_of(int rank) const;
  // Links of the route between two GPUs, in order: NVLink inside a domain, else through the NIC of
  // the sender's rail. The same for equal inputs (routing.hpp says how it chooses). Empty from a
  // GPU to itself.
  std::vector<LinkId> route(int from_rank, int to_rank) const;
  // The NIC vertex that GPU `rank` uses; nothing inside a single server without NICs.
  std::optional<VertexId> nic_of(int rank) const;
  GroupPlacement placement(const std::vector<int>& ranks) const;

  std::string dot() const;  // Graphviz text

 private:
  struct Graph;
  std::shared_ptr<const Graph> graph_;
};

// A change of a job to every link of a kind.
struct LinkOverride {
  std::string kind;                    // "nic"
  std::optional<Bandwidth> bandwidth;  // nvlink: of all links of a GPU; nic: of one NIC
  std::optional<Time> latency;
  std::string pointer;  // for messages
};
// A topology file cut (or grown) to `gpus`, with the overrides of a job's `cluster.links`. `name`
// is a preset or a path (it holds a '/' or ends in ".json"). `place`: where the name was given, for
// messages. Problems: unknown preset, unreadable or wrong file, more GPUs than it can have, a part
// of a node (allowed below one node only), unknown link kind, a bandwidth of 0.
std::optional<Topology> read_topology(const std::string& name, int gpus,
                                      const std::vector<LinkOverride>& overrides,
                                      const JsonNode& place, Problems& problems);

struct TopologyName {
  std::string name, summary, source;
  std::vector<std::string> profiles;  // the default first
  int gpus_per_node = 0;
};
std::vector<TopologyName> topology_presets();

}  // namespace headway
