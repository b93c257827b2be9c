#include "sim/simulate/encounters.hpp"

#include <algorithm>
#include <cmath>

#include "sim/cluster/cluster_description.hpp"
#include "sim/cluster/generators.hpp"

namespace headway {

namespace {

std::uint64_t colour_of(std::uint64_t family, const GroupPlacement& placement) {
  std::uint64_t colour = family + 1;
  for (const int value : {placement.ranks, placement.nodes, placement.ranks_per_node,
                          placement.neighbours_sharing_nic}) {
    colour = colour * 1000003ULL + static_cast<std::uint64_t>(value);
  }
  return colour;
}

}  // namespace

const Collective* collective_of(const TemplateOperation& operation) {
  return std::get_if<Collective>(&operation.operation);
}
bool is_send(const TemplateOperation& operation) {
  const Collective* collective = collective_of(operation);
  return collective != nullptr && collective->kind == CollectiveKind::kSend;
}
bool is_message(const TemplateOperation& operation) {
  const Collective* collective = collective_of(operation);
  return collective != nullptr && (collective->kind == CollectiveKind::kSend ||
                                   collective->kind == CollectiveKind::kReceive);
}

// The share of the nominal network bandwidth that an operation's software reaches.
double network_efficiency(const TemplateOperation& operation, const Software& software) {
  return operation.cause == Cause::kDataParallel ? software.dp_network_efficiency : 1.0;
}

Encounters::Encounters(const Program& program, const Topology& topology, const Software& software,
                       const MachineWhatIf& machine)
    : program_(program), topology_(topology), software_(software), machine_(machine) {
  find_channels();
  find_family_loads();
  only_nics_bind_ = only_nics_can_bind();
  find_uneven_places();
  colour_ranks();
  roles_.assign(static_cast<std::size_t>(program_.grid.size()) * role_count(), Role{});
  add_collective_groups();
  add_message_groups();
}

void Encounters::find_channels() {
  std::set<std::pair<int, Channel>> used;
  for (std::size_t k = 0; k < program_.kinds.size(); ++k) {
    std::set<int> templates;
    for (const Pass& pass : program_.kinds[k].passes) {
      for (const Step& step : pass.steps) templates.insert(step.template_index);
    }
    for (const int t : templates) {
      for (const TemplateOperation& operation :
           program_.templates[static_cast<std::size_t>(t)].operations) {
        if (is_send(operation)) {
          used.insert({static_cast<int>(k), {operation.peer_axis, operation.peer_offset}});
        }
      }
    }
  }
  for (const auto& [kind, channel] : used) {
    if (std::find(channels_.begin(), channels_.end(), channel) == channels_.end()) {
      channels_.push_back(channel);
    }
    kind_sends_.insert({kind, channel});
  }
  std::sort(channels_.begin(), channels_.end());
}

int Encounters::channel_index(const std::string& axis, int offset) const {
  const auto found = std::find(channels_.begin(), channels_.end(), Channel{axis, offset});
  return found == channels_.end() ? kNoIndex : static_cast<int>(found - channels_.begin());
}

// The role an operation gives to a rank of this class, or nothing for work of the rank alone.
int Encounters::role_index(const TemplateOperation& operation) const {
  if (collective_of(operation) == nullptr) return kNoIndex;
  if (!is_message(operation)) return operation.group;
  if (is_send(operation))
    return send_role(channel_index(operation.peer_axis, operation.peer_offset));
  // A receive from `offset` away is a send of the peer in the other direction.
  const int channel = channel_index(operation.peer_axis, -operation.peer_offset);
  return channel == kNoIndex ? kNoIndex : receive_role(channel);
}

void Encounters::colour_ranks() {
  const int ranks = program_.grid.size();
  kind_of_rank_.resize(static_cast<std::size_t>(ranks));
  structure_.rank_colours.resize(static_cast<std::size_t>(ranks));
  for (int r = 0; r < ranks; ++r) {
    const auto index = static_cast<std::size_t>(r);
    kind_of_rank_[index] = program_.kind_of(r);
    const std::uint64_t place = static_cast<std::uint64_t>(place_class(r));
    structure_.rank_colours[index] = static_cast<std::uint64_t>(kind_of_rank_[index]) * 1000003ULL +
                                     static_cast<std::uint64_t>(speed_class(r)) + load_colour(r) +
                                     (place << 40U);
  }
}

// Ranks whose experts take the same in every layer have one number.
std::uint64_t Encounters::load_colour(int rank) const {
  std::uint64_t colour = 0;
  for (std::size_t layer = 0; layer < program_.expert_loads.size(); ++layer) {
    const double load = program_.expert_load(rank, static_cast<int>(layer));
    colour = colour * 0x9e3779b97f4a7c15ULL + std::hash<double>()(load);
  }
  return colour;
}

void Encounters::find_uneven_places() {
  for (const Template& one : program_.templates) {
    for (const TemplateOperation& operation : one.operations) {
      const auto* attention = std::get_if<Attention>(&operation.operation);
      if (attention != nullptr && depends_on_place(*attention)) places_differ_ = true;
    }
  }
}

int Encounters::place_class(int rank) const {
  return places_differ_ ? program_.grid.coordinate(rank, program_.layout.ring_axis) : 0;
}

int Encounters::speed_class(int rank) const {
  const auto found = machine_.slow_ranks.find(rank);
  return found == machine_.slow_ranks.end()
             ? 0
             : 1 + static_cast<int>(std::lround(found->second * 1e6));
}

double Encounters::speed_factor(int rank) const {
  const auto found = machine_.slow_ranks.find(rank);
  return found == machine_.slow_ranks.end() ? 1.0 : found->second;
}

namespace {
std::int64_t load_of(const TemplateOperation& operation, const Software& software) {
  return std::llround(static_cast<double>(kNominalLoad) / network_efficiency(operation, software));
}
}  // namespace

double Encounters::share_of_load(const TemplateOperation& operation) const {
  if (is_message(operation)) return 1;
  const std::int64_t most = family_loads_[static_cast<std::size_t>(operation.group)];
  return most == 0 ? 1
                   : static_cast<double>(load_of(operation, software_)) / static_cast<double>(most);
}

// Families whose collectives are worth loading links with: more than a scalar crosses nodes.
void Encounters::find_family_loads() {
  family_loads_.assign(program_.groups.size(), 0);
  for (const Template& one : program_.templates) {
    for (const TemplateOperation& operation : one.operations) {
      const Collective* collective = collective_of(operation);
      if (collective == nullptr || is_message(operation)) continue;
      constexpr Bytes kScalar{4096};  // below this only latency counts
      if (size(*collective) <= kScalar) continue;
      auto& load = family_loads_[static_cast<std::size_t>(operation.group)];
      load = std::max(load, load_of(operation, software_));
    }
  }
}

double Encounters::left_of(const std::string& link_kind) const {
  const auto degraded = machine_.degraded_links.find(link_kind);
  return degraded == machine_.degraded_links.end() ? 1 : degraded->second;
}

double Encounters::left_inside_nodes() const {
  const GpuFabric* const fabric = find_gpu_fabric(topology_.description().server.gpu_fabric);
  return left_of(fabric == nullptr ? kNvlink : fabric->link_kind);
}

// Where every leaf passes on all that its NICs can send, what NICs carry never exceeds what the
// switches carry, so that NICs alone can bind, and no route is needed to know which ones a
// transfer takes.
bool Encounters::only_nics_can_bind() const {
  const ClusterDescription& cluster = topology_.description();
  if (cluster.graph || cluster.network.oversubscription > 1 ||
      cluster.network.core_oversubscription > 1 ||
      cluster.network.uplink.bandwidth.bytes_per_second > 0) {
    return false;
  }
  return std::all_of(machine_.degraded_links.begin(), machine_.degraded_links.end(),
                     [](const auto& degraded) { return degraded.first == "nic"; });
}

// The number, in the structure, of a link known by `key`; added where it is new.
int Encounters::network_link(std::int64_t key, double capacity) {
  const auto [found, is_new] =
      network_links_.try_emplace(key, static_cast<int>(structure_.link_colours.size()));
  if (is_new) {
    structure_.link_colours.push_back(static_cast<std::uint64_t>(std::llround(capacity)));
    link_capacities_.push_back(capacity);
  }
  return found->second;
}

// Adds to the load that stands in `loads`, which belongs to the group being built: `load_slots_`
// remembers where a link stands in it.
void Encounters::add_load(int link, std::int64_t load, Loads& loads) {
  const auto index = static_cast<std::size_t>(link);
  if (index >= load_slots_.size()) load_slots_.resize(2 * index + 16, 0);
  const std::size_t slot = load_slots_[index];
  if (slot < loads.size() && loads[slot].link == link) {
    loads[slot].load += load;
    return;
  }
  load_slots_[index] = loads.size();
  loads.push_back({link, load});
}

void Encounters::add_route(int from, int to, std::int64_t load, Loads& loads) {
  if (only_nics_bind_) {
    add_nics(from, to, load, loads);
    return;
  }
  for (const LinkId link : topology_.route(from, to)) {
    const TopologyLink& physical = topology_.links()[static_cast<std::size_t>(link)];
    const double left = left_of(physical.kind);
    // A sound GPU's links carry more than its NIC sends.
    if (left == 1 && (physical.kind == kNvlink || physical.kind == kPcie)) continue;
    add_load(network_link(link, physical.bandwidth.bytes_per_second * left), load, loads);
  }
}

// The sender's NIC outwards and the receiver's inwards, as Topology::route takes them.
void Encounters::add_nics(int from, int to, std::int64_t load, Loads& loads) {
  const auto out = topology_.nic_of(from), in = topology_.nic_of(to);
  if (!out || !in) return;
  const int nics = topology_.nics_per_node();
  const int first = *out - (*out - topology_.gpus()) % nics;
  const bool changes_rail = topology_.description().network.rails_over_nvlink;
  const int leaving = changes_rail ? first + (*in - topology_.gpus()) % nics : *out;
  const double capacity = topology_.nic_bandwidth().bytes_per_second * left_of("nic");
  add_load(network_link(2LL * leaving, capacity), load, loads);
  add_load(network_link(2LL * *in + 1, capacity), load, loads);
}

// A ring enters and leaves each node once per channel, and its channels are spread over the
// members' NICs: the j-th member of a node sends to the j-th member of the next.
Encounters::Loads Encounters::ring_loads(const std::vector<int>& members, std::int64_t load) {
  Loads loads;
  if (load == 0) return loads;
  // Members stand in rank order, and ranks in node order.
  std::vector<std::size_t> firsts;
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (i == 0 || topology_.node_of(members[i]) != topology_.node_of(members[i - 1])) {
      firsts.push_back(i);
    }
  }
  const std::size_t nodes = firsts.size();
  if (nodes < 2) return loads;
  firsts.push_back(members.size());
  loads.reserve(2 * members.size());
  for (std::size_t n = 0; n < nodes; ++n) {
    const std::size_t next = (n + 1) % nodes;
    const std::size_t there = firsts[next + 1] - firsts[next];
    for (std::size_t i = firsts[n]; i < firsts[n + 1]; ++i) {
      add_route(members[i], members[firsts[next] + (i - firsts[n]) % there], load, loads);
    }
  }
  return loads;
}

void Encounters::add_collective_groups() {
  const int ranks = program_.grid.size();
  for (std::size_t f = 0; f < program_.groups.size(); ++f) {
    for (int r = 0; r < ranks; ++r) {
      if (role_slot(r, static_cast<int>(f)).group != kNoIndex) continue;
      const std::vector<int> members = program_.grid.members(program_.groups[f], r);
      if (members.empty()) continue;
      const GroupPlacement placement = topology_.placement(members);
      const int group = static_cast<int>(structure_.groups.size());
      structure_.add_group(colour_of(f, placement), false, members,
                           placement.nodes > 1 ? ring_loads(members, family_loads_[f]) : Loads{});
      group_roles_.push_back(static_cast<int>(f));
      for (const int member : members) {
        role_slot(member, static_cast<int>(f)) = Role{group, placement, placement.nodes == 1};
      }
    }
  }
}

void Encounters::add_message_groups() {
  const int ranks = program_.grid.size();
  for (std::size_t c = 0; c < channels_.size(); ++c) {
    for (int r = 0; r < ranks; ++r) {
      const int kind = kind_of_rank_[static_cast<std::size_t>(r)];
      if (!kind_sends_.contains({kind, channels_[c]})) continue;
      const int peer = program_.grid.shifted(r, channels_[c].axis, channels_[c].offset);
      const bool same_node = topology_.node_of(r) == topology_.node_of(peer);
      Loads loads;
      if (!same_node) add_route(r, peer, kNominalLoad, loads);
      const int group = static_cast<int>(structure_.groups.size());
      const std::uint64_t colour =
          (static_cast<std::uint64_t>(program_.groups.size() + c) + 1) * 2 + (same_node ? 1 : 0);
      structure_.add_group(colour, true, {r, peer}, loads);
      group_roles_.push_back(send_role(static_cast<int>(c)));
      Role message{group, {}, same_node};
      role_slot(r, send_role(static_cast<int>(c))) = message;
      role_slot(peer, receive_role(static_cast<int>(c))) = message;
    }
  }
}

// A link can bind only if everything that crosses it, each as fast as it can be alone, exceeds
// its capacity. The others are dropped before folding: exactly, and they would only split
// classes.
void Encounters::drop_links_that_cannot_bind(const std::function<double(std::size_t)>& fastest) {
  std::vector<double> demand(structure_.link_colours.size(), 0);
  for (std::size_t g = 0; g < structure_.groups.size(); ++g) {
    const FoldingStructure::Group& group = structure_.groups[g];
    if (group.load_count == 0) continue;
    const double rate = fastest(g);
    for (int i = 0; i < group.load_count; ++i) {
      const auto& load = structure_.loads[static_cast<std::size_t>(group.first_load + i)];
      demand[static_cast<std::size_t>(load.link)] += static_cast<double>(load.load) * rate;
    }
  }
  std::vector<int> kept(demand.size(), kNoIndex);
  int count = 0;
  for (std::size_t l = 0; l < demand.size(); ++l) {
    if (demand[l] <= link_capacities_[l] * static_cast<double>(kNominalLoad)) continue;
    kept[l] = count;
    structure_.link_colours[static_cast<std::size_t>(count)] = structure_.link_colours[l];
    link_capacities_[static_cast<std::size_t>(count)] = link_capacities_[l];
    ++count;
  }
  structure_.link_colours.resize(static_cast<std::size_t>(count));
  link_capacities_.resize(static_cast<std::size_t>(count));
  Loads loads;
  for (FoldingStructure::Group& group : structure_.groups) {
    const int first = static_cast<int>(loads.size());
    for (int i = 0; i < group.load_count; ++i) {
      const auto& load = structure_.loads[static_cast<std::size_t>(group.first_load + i)];
      const int link = kept[static_cast<std::size_t>(load.link)];
      if (link != kNoIndex) loads.push_back({link, load.load});
    }
    group.first_load = first;
    group.load_count = static_cast<int>(loads.size()) - first;
  }
  structure_.loads = std::move(loads);
}

}  // namespace headway
