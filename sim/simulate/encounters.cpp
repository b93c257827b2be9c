#include "sim/simulate/encounters.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "sim/cluster/cluster_description.hpp"
#include "sim/cluster/dead_links.hpp"
#include "sim/cluster/generators.hpp"
#include "sim/cluster/link_names.hpp"
#include "sim/core/error.hpp"

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

// Groups with all their bandwidth are told apart by placement alone.
std::uint64_t share_colour(double left) { return left == 1 ? 0 : std::hash<double>()(left) | 1U; }

bool inside_a_node(const std::string& link_kind) {
  return link_kind == kNvlink || link_kind == kMemory || link_kind == kPcie || link_kind == kSocket;
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
                       const MachineWhatIf& machine, NetworkLinks& links, int first_gpu)
    : program_(program),
      topology_(topology),
      software_(software),
      machine_(machine),
      links_(links),
      first_gpu_(first_gpu),
      routed_(topology) {
  find_channels();
  find_family_loads();
  only_nics_bind_ = only_nics_can_bind();
  find_links_left();
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
  family_exchanges_.assign(program_.groups.size(), false);
  for (const Template& one : program_.templates) {
    for (const TemplateOperation& operation : one.operations) {
      const Collective* collective = collective_of(operation);
      if (collective == nullptr || is_message(operation)) continue;
      constexpr Bytes kScalar{4096};  // below this only latency counts
      if (size(*collective) <= kScalar) continue;
      if (collective->kind == CollectiveKind::kAllToAll) {
        family_exchanges_[static_cast<std::size_t>(operation.group)] = true;
      }
      auto& load = family_loads_[static_cast<std::size_t>(operation.group)];
      load = std::max(load, load_of(operation, software_));
    }
  }
}

double Encounters::left_of_nics() const {
  const auto degraded = machine_.degraded_links.find(kNicLink);
  return degraded == machine_.degraded_links.end() ? 1 : degraded->second;
}

double Encounters::left_of(LinkId link) const {
  return left_.empty() ? 1 : left_[static_cast<std::size_t>(link)];
}

// Where every leaf passes on all that its NICs can send, what NICs carry never exceeds what the
// switches carry, so that NICs alone can bind, and no route is needed to know which ones a
// transfer takes.
bool Encounters::only_nics_can_bind() const {
  const ClusterDescription& cluster = topology_.description();
  const Network* const network = find_network(cluster.network.generator);
  const bool spreads = network == nullptr || network->leaves || network->capacity(cluster) == 0;
  if (cluster.graph || !spreads || cluster.network.spines > 0 ||
      cluster.network.oversubscription > 1 || cluster.network.core_oversubscription > 1 ||
      cluster.network.uplink.bandwidth.bytes_per_second > 0) {
    return false;
  }
  return std::all_of(
      machine_.degraded_links.begin(), machine_.degraded_links.end(),
      [](const auto& degraded) { return degraded.first == kNicLink && degraded.second > 0; });
}

void Encounters::find_links_left() {
  if (machine_.degraded_links.empty() || only_nics_bind_) return;
  Problems problems;
  left_ = link_shares(topology_, machine_.degraded_links, "--degrade", problems);
  problems.throw_if_any();
  std::vector<LinkId> dead;
  for (std::size_t link = 0; link < left_.size(); ++link) {
    if (left_[link] == 0) dead.push_back(static_cast<LinkId>(link));
    if (left_[link] < 1 && inside_a_node(topology_.links()[link].kind)) left_less_inside_ = true;
  }
  if (dead.empty()) return;
  routed_ = without(topology_, std::move(dead));
  const auto apart = cut_off(routed_);
  if (!apart) return;
  const auto name = [&](int gpu) {
    return topology_.vertices()[static_cast<std::size_t>(gpu)].name;
  };
  throw InvalidInput("--degrade", "",
                     "with these links dead there is no way between " + name(apart->first) +
                         " and " + name(apart->second));
}

std::vector<LinkId> Encounters::route(int from, int to) const {
  return routed_.route(gpu_of(from), gpu_of(to));
}

// The share left of the narrowest link between two ranks of a node, over that of the sound way.
double Encounters::left_between(int from, int to) const {
  double now = 0, sound = 0;
  const auto narrow = [](double& narrowest, double width) {
    narrowest = narrowest == 0 ? width : std::min(narrowest, width);
  };
  const std::vector<TopologyLink>& links = topology_.links();
  for (const LinkId link : route(from, to)) {
    narrow(now, links[static_cast<std::size_t>(link)].bandwidth.bytes_per_second * left_of(link));
  }
  for (const LinkId link : topology_.route(gpu_of(from), gpu_of(to))) {
    narrow(sound, links[static_cast<std::size_t>(link)].bandwidth.bytes_per_second);
  }
  return sound == 0 ? 1 : std::min(1.0, now / sound);
}

// Of a group of one node: its ring is as slow as its slowest hop.
double Encounters::left_inside(const std::vector<int>& members) const {
  double left = 1;
  if (!left_less_inside_ || members.size() < 2) return left;
  for (std::size_t i = 0; i < members.size(); ++i) {
    left = std::min(left, left_between(members[i], members[(i + 1) % members.size()]));
  }
  return left;
}

// The number, in the structure, of a link known by `key`; added where it is new.
int Encounters::network_link(std::int64_t key, double capacity) {
  const auto [found, is_new] =
      links_.numbers.try_emplace(key, static_cast<int>(links_.capacities.size()));
  if (is_new) links_.capacities.push_back(capacity);
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
  for (const LinkId link : route(from, to)) {
    const TopologyLink& physical = topology_.links()[static_cast<std::size_t>(link)];
    const double left = left_of(link);
    // A sound GPU's links carry more than its NIC sends.
    if (left == 1 && (physical.kind == kNvlink || physical.kind == kPcie)) continue;
    add_load(network_link(link, physical.bandwidth.bytes_per_second * left), load, loads);
  }
}

// The sender's NIC outwards and the receiver's inwards, as Topology::route takes them.
void Encounters::add_nics(int from, int to, std::int64_t load, Loads& loads) {
  const auto out = topology_.nic_of(gpu_of(from)), in = topology_.nic_of(gpu_of(to));
  if (!out || !in) return;
  const int nics = topology_.nics_per_node();
  const int first = *out - (*out - topology_.gpus()) % nics;
  const bool changes_rail = topology_.description().network.rails_over_nvlink;
  const int leaving = changes_rail ? first + (*in - topology_.gpus()) % nics : *out;
  const double capacity = topology_.nic_bandwidth().bytes_per_second * left_of_nics();
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
    if (i == 0 || node_of(members[i]) != node_of(members[i - 1])) {
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
      // Between members of a node passes what all their NICs send together.
      const auto together = static_cast<std::int64_t>(firsts[n + 1] - firsts[n]);
      if (left_less_inside_ && together > 1) {
        const std::size_t after = i + 1 == firsts[n + 1] ? firsts[n] : i + 1;
        add_route(members[i], members[after], load * together, loads);
      }
    }
  }
  return loads;
}

// Everyone sends to everyone: a rank's NIC carries what goes to its `remote` peers on other nodes,
// and each link what of all pairs' messages passes it. Where NICs alone can bind that is what a
// ring loads.
Encounters::Loads Encounters::exchange_loads(const std::vector<int>& members, std::int64_t load,
                                             int remote) {
  if (load == 0 || remote <= 0) return {};
  if (only_nics_bind_) return ring_loads(members, load);
  Loads loads;
  for (const int from : members) {
    for (const int to : members) {
      const bool outside = node_of(from) != node_of(to);
      if (from != to && (outside || left_less_inside_)) add_route(from, to, 1, loads);
    }
  }
  for (FoldingStructure::Load& one : loads) {
    one.load = std::max<std::int64_t>(1, (one.load * load + remote / 2) / remote);
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
      std::vector<int> gpus = members;
      for (int& gpu : gpus) gpu += first_gpu_;
      const GroupPlacement placement = routed_.placement(gpus);
      const bool inside = placement.nodes == 1;
      const double left = inside ? left_inside(members) : 1;
      const int group = static_cast<int>(structure_.groups.size());
      Loads loads;
      if (!inside) {
        loads = family_exchanges_[f] ? exchange_loads(members, family_loads_[f],
                                                      placement.ranks - placement.ranks_per_node)
                                     : ring_loads(members, family_loads_[f]);
      }
      structure_.add_group(colour_of(f, placement) + share_colour(left), false, members, loads);
      group_roles_.push_back(static_cast<int>(f));
      for (const int member : members) {
        role_slot(member, static_cast<int>(f)) = Role{group, placement, inside, left};
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
      const bool same_node = node_of(r) == node_of(peer);
      const double left = same_node && left_less_inside_ ? left_between(r, peer) : 1;
      Loads loads;
      if (!same_node) add_route(r, peer, kNominalLoad, loads);
      const int group = static_cast<int>(structure_.groups.size());
      const std::uint64_t colour =
          (static_cast<std::uint64_t>(program_.groups.size() + c) + 1) * 2 + (same_node ? 1 : 0) +
          share_colour(left);
      structure_.add_group(colour, true, {r, peer}, loads);
      group_roles_.push_back(send_role(static_cast<int>(c)));
      Role message{group, {}, same_node, left};
      role_slot(r, send_role(static_cast<int>(c))) = message;
      role_slot(peer, receive_role(static_cast<int>(c))) = message;
    }
  }
}

void Encounters::add_demand(const std::function<double(std::size_t)>& fastest,
                            std::vector<double>& demand) const {
  demand.resize(links_.capacities.size(), 0);
  for (std::size_t g = 0; g < structure_.groups.size(); ++g) {
    const FoldingStructure::Group& group = structure_.groups[g];
    if (group.load_count == 0) continue;
    const double rate = fastest(g);
    for (int i = 0; i < group.load_count; ++i) {
      const auto& load = structure_.loads[static_cast<std::size_t>(group.first_load + i)];
      demand[static_cast<std::size_t>(load.link)] += static_cast<double>(load.load) * rate;
    }
  }
}

void Encounters::renumber_links(const std::vector<int>& numbers) {
  Loads loads;
  for (FoldingStructure::Group& group : structure_.groups) {
    const int first = static_cast<int>(loads.size());
    for (int i = 0; i < group.load_count; ++i) {
      const auto& load = structure_.loads[static_cast<std::size_t>(group.first_load + i)];
      const int link = numbers[static_cast<std::size_t>(load.link)];
      if (link != kNoIndex) loads.push_back({link, load.load});
    }
    group.first_load = first;
    group.load_count = static_cast<int>(loads.size()) - first;
  }
  structure_.loads = std::move(loads);
}

// Exact, and before folding: such links would only split classes.
std::vector<int> drop_links_that_cannot_bind(const std::vector<double>& demand,
                                             NetworkLinks& links) {
  std::vector<int> kept(demand.size(), kNoIndex);
  int count = 0;
  for (std::size_t l = 0; l < demand.size(); ++l) {
    if (demand[l] <= links.capacities[l] * static_cast<double>(kNominalLoad)) continue;
    kept[l] = count;
    links.capacities[static_cast<std::size_t>(count++)] = links.capacities[l];
  }
  links.capacities.resize(static_cast<std::size_t>(count));
  links.numbers.clear();  // of before
  return kept;
}

}  // namespace headway
