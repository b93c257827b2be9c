#include "sim/simulate/lowering.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <tuple>
#include <unordered_map>

#include "sim/cluster/cluster_description.hpp"

namespace headway {

namespace {

// Nominal load of a transfer on a link it crosses. Software that reaches only a share e of the
// nominal bandwidth loads the link by 1/e of this: loads stay small integers.
constexpr std::int64_t kNominalLoad = 64;

// The environment bit that a collective beside compute sets on its devices.
constexpr int kCollectiveEnvironment = 0;

// Rows of TaskGraph::slowdowns.
constexpr int kComputeBound = 0;
constexpr int kMemoryBound = 1;

// Slowdown factors are in 2^-20.
std::int64_t slowdown(double factor) { return std::llround(std::max(1.0, factor) * 1048576.0); }

// A direction in which ranks of a kind send: their peer along `axis`, `offset` further on.
struct Channel {
  std::string axis;
  int offset = 0;
  friend auto operator<=>(const Channel&, const Channel&) = default;
};

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

// What a group family or channel is to a rank.
struct Role {
  int group = kNone;  // of the FoldingStructure
  GroupPlacement placement;
  bool same_node = true;  // channels
};

class Lowering {
 public:
  explicit Lowering(const LoweringInput& input)
      : input_(input),
        program_(input.program),
        compute_(input.profile),
        collective_(input.profile, input.topology) {}

  LoweredStep run() {
    find_channels();
    build_structure();
    drop_links_that_cannot_bind();
    step_.partition = input_.unfolded ? unfolded(structure_) : fold(structure_);
    build_devices();
    build_links();
    build_instances();
    build_slowdowns();
    return std::move(step_);
  }

 private:
  // -- Who meets whom
  // --------------------------------------------------------------------------------

  void find_channels() {
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

  int channel_index(const std::string& axis, int offset) const {
    const auto found = std::find(channels_.begin(), channels_.end(), Channel{axis, offset});
    return found == channels_.end() ? kNone : static_cast<int>(found - channels_.begin());
  }

  void build_structure() {
    const int ranks = program_.grid.size();
    kind_of_rank_.resize(static_cast<std::size_t>(ranks));
    structure_.rank_colours.resize(static_cast<std::size_t>(ranks));
    for (int r = 0; r < ranks; ++r) {
      const auto index = static_cast<std::size_t>(r);
      kind_of_rank_[index] = program_.kind_of(r);
      structure_.rank_colours[index] =
          static_cast<std::uint64_t>(kind_of_rank_[index]) * 1000003ULL +
          static_cast<std::uint64_t>(speed_class(r));
    }
    find_links_that_matter();
    only_nics_bind_ = only_nics_can_bind();
    add_collective_groups(ranks);
    add_message_groups(ranks);
  }

  int speed_class(int rank) const {
    const auto found = input_.machine.slow_ranks.find(rank);
    return found == input_.machine.slow_ranks.end()
               ? 0
               : 1 + static_cast<int>(std::lround(found->second * 1e6));
  }
  double speed_factor(int rank) const {
    const auto found = input_.machine.slow_ranks.find(rank);
    return found == input_.machine.slow_ranks.end() ? 1.0 : found->second;
  }

  // Families whose collectives are worth loading links with: more than a scalar crosses nodes.
  void find_links_that_matter() {
    family_loads_.assign(program_.groups.size(), 0);
    for (const Template& one : program_.templates) {
      for (const TemplateOperation& operation : one.operations) {
        const Collective* collective = collective_of(operation);
        if (collective == nullptr || is_message(operation)) continue;
        if (operation.cause == Cause::kDataParallel && operation.stream != 0) {
          slowing_streams_.insert(operation.stream);
        }
        constexpr Bytes kScalar{4096};  // below this only latency counts
        if (size(*collective) <= kScalar) continue;
        const double efficiency = network_efficiency(operation, input_.software);
        auto& load = family_loads_[static_cast<std::size_t>(operation.group)];
        load = std::max<std::int64_t>(load,
                                      std::llround(static_cast<double>(kNominalLoad) / efficiency));
      }
    }
  }

  double left_of(const std::string& link_kind) const {
    const auto degraded = input_.machine.degraded_links.find(link_kind);
    return degraded == input_.machine.degraded_links.end() ? 1 : degraded->second;
  }

  // Where every leaf passes on all that its NICs can send, what NICs carry never exceeds what the
  // switches carry, so that NICs alone can bind, and no route is needed to know which ones a
  // transfer takes.
  bool only_nics_can_bind() const {
    const ClusterDescription& cluster = input_.topology.description();
    if (cluster.graph || cluster.network.oversubscription > 1 ||
        cluster.network.core_oversubscription > 1 ||
        cluster.network.uplink.bandwidth.bytes_per_second > 0) {
      return false;
    }
    return std::all_of(input_.machine.degraded_links.begin(), input_.machine.degraded_links.end(),
                       [](const auto& degraded) { return degraded.first == "nic"; });
  }

  // The number, in the structure, of a link known by `key`; added where it is new.
  int network_link(std::int64_t key, double capacity) {
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
  void add_load(int link, std::int64_t load, std::vector<FoldingStructure::Load>& loads) {
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

  void add_route(int from, int to, std::int64_t load, std::vector<FoldingStructure::Load>& loads) {
    if (only_nics_bind_) {
      add_nics(from, to, load, loads);
      return;
    }
    for (const LinkId link : input_.topology.route(from, to)) {
      const TopologyLink& physical = input_.topology.links()[static_cast<std::size_t>(link)];
      if (physical.kind == "nvlink" || physical.kind == "pcie") continue;
      add_load(network_link(link, physical.bandwidth.bytes_per_second * left_of(physical.kind)),
               load, loads);
    }
  }

  // The sender's NIC outwards and the receiver's inwards, as Topology::route takes them.
  void add_nics(int from, int to, std::int64_t load, std::vector<FoldingStructure::Load>& loads) {
    const auto out = input_.topology.nic_of(from), in = input_.topology.nic_of(to);
    if (!out || !in) return;
    const int nics = input_.topology.nics_per_node();
    const int first = *out - (*out - input_.topology.gpus()) % nics;
    const bool changes_rail = input_.topology.description().network.rails_over_nvlink;
    const int leaving = changes_rail ? first + (*in - input_.topology.gpus()) % nics : *out;
    const double capacity = input_.topology.nic_bandwidth().bytes_per_second * left_of("nic");
    add_load(network_link(2LL * leaving, capacity), load, loads);
    add_load(network_link(2LL * *in + 1, capacity), load, loads);
  }

  // A ring enters and leaves each node once per channel, and its channels are spread over the
  // members' NICs: the j-th member of a node sends to the j-th member of the next.
  std::vector<FoldingStructure::Load> ring_loads(const std::vector<int>& members,
                                                 std::int64_t load) {
    std::vector<FoldingStructure::Load> loads;
    if (load == 0) return loads;
    // Members stand in rank order, and ranks in node order.
    std::vector<std::size_t> firsts;
    for (std::size_t i = 0; i < members.size(); ++i) {
      if (i == 0 ||
          input_.topology.node_of(members[i]) != input_.topology.node_of(members[i - 1])) {
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

  static std::uint64_t colour_of(std::uint64_t family, const GroupPlacement& placement) {
    std::uint64_t colour = family + 1;
    for (const int value : {placement.ranks, placement.nodes, placement.ranks_per_node,
                            placement.neighbours_sharing_nic}) {
      colour = colour * 1000003ULL + static_cast<std::uint64_t>(value);
    }
    return colour;
  }

  void add_collective_groups(int ranks) {
    roles_.assign(static_cast<std::size_t>(ranks) * (program_.groups.size() + 2 * channels_.size()),
                  Role{});
    for (std::size_t f = 0; f < program_.groups.size(); ++f) {
      for (int r = 0; r < ranks; ++r) {
        if (role(r, static_cast<int>(f)).group != kNone) continue;
        const std::vector<int> members = program_.grid.members(program_.groups[f], r);
        if (members.empty()) continue;
        const GroupPlacement placement = input_.topology.placement(members);
        const int group = static_cast<int>(structure_.groups.size());
        structure_.add_group(colour_of(f, placement), false, members,
                             placement.nodes > 1 ? ring_loads(members, family_loads_[f])
                                                 : std::vector<FoldingStructure::Load>{});
        group_roles_.push_back(static_cast<int>(f));
        for (const int member : members) {
          role(member, static_cast<int>(f)) = Role{group, placement, placement.nodes == 1};
        }
      }
    }
  }

  void add_message_groups(int ranks) {
    for (std::size_t c = 0; c < channels_.size(); ++c) {
      for (int r = 0; r < ranks; ++r) {
        const int kind = kind_of_rank_[static_cast<std::size_t>(r)];
        if (!kind_sends_.contains({kind, channels_[c]})) continue;
        const int peer = program_.grid.shifted(r, channels_[c].axis, channels_[c].offset);
        const bool same_node = input_.topology.node_of(r) == input_.topology.node_of(peer);
        std::vector<FoldingStructure::Load> loads;
        if (!same_node) add_route(r, peer, kNominalLoad, loads);
        const int group = static_cast<int>(structure_.groups.size());
        const std::uint64_t colour =
            (static_cast<std::uint64_t>(program_.groups.size() + c) + 1) * 2 + (same_node ? 1 : 0);
        structure_.add_group(colour, true, {r, peer}, loads);
        group_roles_.push_back(send_role(static_cast<int>(c)));
        Role message{group, {}, same_node};
        role(r, send_role(static_cast<int>(c))) = message;
        role(peer, receive_role(static_cast<int>(c))) = message;
      }
    }
  }

  // The most that a group can put on a link of load 1: operations of one group follow each other,
  // so it counts with its fastest. Depends on the kind of its first member, its role there and its
  // placement.
  double fastest_of_group(std::size_t group) {
    const int rank =
        structure_.members[static_cast<std::size_t>(structure_.groups[group].first_member)];
    const int kind = kind_of_rank_[static_cast<std::size_t>(rank)];
    const int index = group_roles_[group];
    const Role& mine = role(rank, index);
    const bool message = index >= static_cast<int>(program_.groups.size());
    const auto key = std::tuple(kind, index, placement_class(mine, message));
    const auto found = fastest_.find(key);
    if (found != fastest_.end()) return found->second;
    double fastest = 0;
    for_each_operation(kind, [&](const TemplateOperation& operation) {
      if (role_index(operation) != index) return;
      fastest = std::max(fastest, rate_alone(price_of(operation, rank).collective));
    });
    fastest_.emplace(key, fastest);
    return fastest;
  }

  // A link can bind only if everything that crosses it, each as fast as it can be alone, exceeds
  // its capacity. The others are dropped before folding: exactly, and they would only split
  // classes.
  void drop_links_that_cannot_bind() {
    std::vector<double> demand(structure_.link_colours.size(), 0);
    for (std::size_t g = 0; g < structure_.groups.size(); ++g) {
      const FoldingStructure::Group& group = structure_.groups[g];
      if (group.load_count == 0) continue;
      const double fastest = fastest_of_group(g);
      for (int i = 0; i < group.load_count; ++i) {
        const auto& load = structure_.loads[static_cast<std::size_t>(group.first_load + i)];
        demand[static_cast<std::size_t>(load.link)] += static_cast<double>(load.load) * fastest;
      }
    }
    std::vector<int> kept(demand.size(), kNone);
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
    std::vector<FoldingStructure::Load> loads;
    for (FoldingStructure::Group& group : structure_.groups) {
      const int first = static_cast<int>(loads.size());
      for (int i = 0; i < group.load_count; ++i) {
        const auto& load = structure_.loads[static_cast<std::size_t>(group.first_load + i)];
        const int link = kept[static_cast<std::size_t>(load.link)];
        if (link != kNone) loads.push_back({link, load.load});
      }
      group.first_load = first;
      group.load_count = static_cast<int>(loads.size()) - first;
    }
    structure_.loads = std::move(loads);
  }

  int send_role(int channel) const {
    return static_cast<int>(program_.groups.size()) + 2 * channel;
  }
  int receive_role(int channel) const { return send_role(channel) + 1; }
  Role& role(int rank, int index) {
    const std::size_t width = program_.groups.size() + 2 * channels_.size();
    return roles_[static_cast<std::size_t>(rank) * width + static_cast<std::size_t>(index)];
  }

  // The role an operation gives to a rank of this class, or nothing for work of the rank alone.
  int role_index(const TemplateOperation& operation) const {
    if (collective_of(operation) == nullptr) return kNone;
    if (!is_message(operation)) return operation.group;
    if (is_send(operation))
      return send_role(channel_index(operation.peer_axis, operation.peer_offset));
    // A receive from `offset` away is a send of the peer in the other direction.
    const int channel = channel_index(operation.peer_axis, -operation.peer_offset);
    return channel == kNone ? kNone : receive_role(channel);
  }

  // -- Devices and links
  // -----------------------------------------------------------------------------

  void build_devices() {
    step_.device_rank = step_.partition.rank_representative;
    for (const int rank : step_.device_rank) {
      step_.device_kind.push_back(kind_of_rank_[static_cast<std::size_t>(rank)]);
    }
    step_.graph.devices = static_cast<int>(step_.device_rank.size());
    step_.graph.host_cause = static_cast<int>(Cause::kHost);
    step_.graph.streams_per_device = static_cast<int>(program_.streams.size());
    const std::size_t group_classes = step_.partition.group_representative.size();
    distinct_classes_.resize(group_classes);
    for (std::size_t g = 0; g < group_classes; ++g) {
      std::set<int> classes;
      const auto& group =
          structure_.groups[static_cast<std::size_t>(step_.partition.group_representative[g])];
      for (int i = 0; i < group.member_count; ++i) {
        const int member = structure_.members[static_cast<std::size_t>(group.first_member + i)];
        classes.insert(step_.partition.rank_class[static_cast<std::size_t>(member)]);
      }
      distinct_classes_[g] = static_cast<int>(classes.size());
    }
  }

  // The quotient network: what each group class puts on one link of each link class.
  void build_links() {
    const Partition& partition = step_.partition;
    const std::size_t link_classes = partition.link_representative.size();
    std::vector<std::map<int, std::int64_t>> loads(partition.group_representative.size());
    for (std::size_t g = 0; g < structure_.groups.size(); ++g) {
      const auto& group = structure_.groups[g];
      for (int i = 0; i < group.load_count; ++i) {
        const auto& load = structure_.loads[static_cast<std::size_t>(group.first_load + i)];
        const int link_class = partition.link_class[static_cast<std::size_t>(load.link)];
        if (partition.link_representative[static_cast<std::size_t>(link_class)] != load.link)
          continue;
        loads[static_cast<std::size_t>(partition.group_class[g])][link_class] += load.load;
      }
    }
    for (std::size_t l = 0; l < link_classes; ++l) {
      const auto first = static_cast<std::size_t>(partition.link_representative[l]);
      step_.graph.links.push_back({link_capacities_[first] * static_cast<double>(kNominalLoad)});
    }
    group_loads_.resize(loads.size());
    for (std::size_t g = 0; g < loads.size(); ++g) {
      group_loads_[g].first = static_cast<int>(step_.graph.loads.size());
      for (const auto& [link, load] : loads[g]) step_.graph.loads.push_back({link, load});
      group_loads_[g].count = static_cast<int>(step_.graph.loads.size()) - group_loads_[g].first;
    }
  }

  static double rate_alone(const CollectivePrice& price) {
    const Time moving = price.alone.time - price.latency;
    if (price.wire_bytes <= 0 || moving <= Time::zero()) return 0;
    return static_cast<double>(price.wire_bytes) / moving.seconds();
  }

  template <typename Visit>
  void for_each_operation(int kind, Visit visit) const {
    std::set<int> templates;
    for (const Pass& pass : program_.kinds[static_cast<std::size_t>(kind)].passes) {
      for (const Step& step : pass.steps) templates.insert(step.template_index);
    }
    for (const int t : templates) {
      for (const TemplateOperation& operation :
           program_.templates[static_cast<std::size_t>(t)].operations) {
        visit(operation);
      }
    }
  }

  // -- Prices
  // ----------------------------------------------------------------------------------------

  const OperationPrice& price_of(const TemplateOperation& operation, int rank) {
    return step_.prices[static_cast<std::size_t>(price_index(operation, rank))];
  }

  // Operations are priced once per role and speed, not per rank.
  int price_index(const TemplateOperation& operation, int rank) {
    const int index = role_index(operation);
    const int role_class =
        index == kNone ? kNone : placement_class(role(rank, index), is_message(operation));
    const PriceKey key{&operation, role_class, index == kNone ? speed_class(rank) : 0};
    const auto [found, is_new] =
        price_indices_.try_emplace(key, static_cast<int>(step_.prices.size()));
    if (is_new) step_.prices.push_back(compute_price(operation, rank, index));
    return found->second;
  }

  int placement_class(const Role& mine, bool message) {
    const auto& p = mine.placement;
    const auto key = std::tuple(p.ranks, p.nodes, p.ranks_per_node, p.neighbours_sharing_nic,
                                message ? (mine.same_node ? 1 : 2) : 0);
    return placement_classes_.try_emplace(key, static_cast<int>(placement_classes_.size()))
        .first->second;
  }

  OperationPrice compute_price(const TemplateOperation& operation, int rank, int index) {
    OperationPrice result;
    if (std::holds_alternative<HostWork>(operation.operation)) {
      result.launches = 0;
      return result;
    }
    if (index == kNone) {
      result.price = compute_.price(operation.operation);
      result.launches = compute_.launches(operation.operation);
      const double factor = speed_factor(rank);
      if (factor != 1.0) {
        result.price.time = Time::from_seconds(result.price.time.seconds() * factor);
      }
      return result;
    }
    const Collective& collective = *collective_of(operation);
    const Role& mine = role(rank, index);
    if (is_message(operation)) {
      result.group_size = 2;
      result.collective = collective_.send(size(collective), mine.same_node);
      result.collective.latency += input_.software.p2p_blocking;
      result.collective.alone.time += input_.software.p2p_blocking;
    } else {
      result.group_size = mine.placement.ranks;
      result.collective = collective_.price(collective, mine.placement,
                                            network_efficiency(operation, input_.software));
    }
    result.price = result.collective.alone;
    return result;
  }

  // -- Instances
  // -------------------------------------------------------------------------------------

  // A pass of a device, ready to be issued: its task template and what its instances must bind.
  struct PassBinding {
    int task_template = 0;
    struct Slot {
      int step = 0;
      const TemplateOperation* operation = nullptr;
      int price = 0;
    };
    std::vector<Slot> activities;
    std::vector<std::pair<int, PortRef>> awaited, released;  // with absolute layers
    bool opens = false;   // issues work on a stream that slows compute
    bool closes = false;  // waits for that stream
  };

  void build_instances() {
    std::size_t issues = 0;
    for (const int kind : step_.device_kind) {
      issues += program_.kinds[static_cast<std::size_t>(kind)].order.size();
    }
    step_.graph.instances.reserve(issues);
    step_.instances.reserve(issues);
    step_.graph.bound_activities.reserve(issues);
    step_.graph.activities.reserve(issues / 2);
    activities_.reserve(issues / 2);
    sequence_.assign(static_cast<std::size_t>(step_.graph.devices) * program_.groups.size(), 0);
    for (int d = 0; d < step_.graph.devices; ++d) {
      const RankKind& kind =
          program_.kinds[static_cast<std::size_t>(step_.device_kind[static_cast<std::size_t>(d)])];
      std::vector<PassBinding> bindings;
      bindings.reserve(kind.passes.size());
      for (const Pass& pass : kind.passes) bindings.push_back(bind_pass(pass, d));
      bool open = false;
      for (std::size_t i = 0; i < kind.order.size(); ++i) {
        const Issue& issue = kind.order[i];
        const PassBinding& binding = bindings[static_cast<std::size_t>(issue.pass)];
        if (binding.opens) open = true;
        add_instance(d, static_cast<int>(i), issue, binding, open);
        if (binding.closes) open = false;
      }
    }
  }

  // The tasks of a pass depend on its templates and on the prices of its class: equal ones are
  // shared.
  PassBinding bind_pass(const Pass& pass, int device) {
    PassBinding binding;
    const int rank = step_.device_rank[static_cast<std::size_t>(device)];
    const bool backward = !pass.name.empty() && pass.name.back() != 'F';
    std::vector<int> key{backward ? 1 : 0};
    std::vector<TaskOrigin> origins;
    std::vector<bool> as_activity;
    for (std::size_t s = 0; s < pass.steps.size(); ++s) {
      const Step& step = pass.steps[s];
      const Template& one = program_.templates[static_cast<std::size_t>(step.template_index)];
      key.push_back(step.template_index);
      for (std::size_t o = 0; o < one.operations.size(); ++o) {
        const TemplateOperation& operation = one.operations[o];
        const int price = price_index(operation, rank);
        const bool activity = needs_activity(operation, rank);
        origins.push_back({static_cast<int>(s), step.template_index, static_cast<int>(o), price});
        as_activity.push_back(activity);
        key.push_back(price * 2 + (activity ? 1 : 0));
        if (activity) binding.activities.push_back({static_cast<int>(s), &operation, price});
        for (const PortRef& port : operation.awaits) {
          binding.awaited.emplace_back(0, PortRef{port.family, port.layer + step.layer});
        }
        for (const PortRef& port : operation.releases) {
          binding.released.emplace_back(0, PortRef{port.family, port.layer + step.layer});
        }
        if (sets_environment(operation, rank)) binding.opens = true;
        if (operation.stream == 0 && joins_environment(operation)) binding.closes = true;
      }
    }
    const auto [found, is_new] =
        task_templates_.try_emplace(key, static_cast<int>(step_.graph.templates.size()));
    binding.task_template = found->second;
    if (is_new) {
      step_.graph.templates.push_back(make_template(origins, as_activity, backward));
      step_.origins.push_back(std::move(origins));
    }
    return binding;
  }

  bool needs_activity(const TemplateOperation& operation, int rank) {
    const int index = role_index(operation);
    if (index == kNone) return false;
    const Role& mine = role(rank, index);
    if (mine.group == kNone) return false;
    const auto group =
        static_cast<std::size_t>(step_.partition.group_class[static_cast<std::size_t>(mine.group)]);
    if (distinct_classes_[group] > 1 || is_message(operation)) return true;
    return group_loads_[group].count > 0 || sets_environment(operation, rank);
  }

  // Collectives beside compute hold multiprocessors and memory bandwidth.
  bool sets_environment(const TemplateOperation& operation, int rank) {
    if (operation.stream == 0 || collective_of(operation) == nullptr || is_message(operation)) {
      return false;
    }
    if (operation.cause != Cause::kDataParallel) return false;
    const int index = role_index(operation);
    return role(rank, index).placement.ranks > 1;
  }
  bool joins_environment(const TemplateOperation& operation) const {
    return std::any_of(operation.joins.begin(), operation.joins.end(),
                       [&](int stream) { return slowing_streams_.contains(stream); });
  }

  Time host_time(const TemplateOperation& operation, const OperationPrice& price,
                 bool backward) const {
    const Software& software = input_.software;
    double factor = 1;
    if (!software.host_tp_jitter.empty()) {
      const int tp = std::max(1, program_.grid.axis_size("tp"));
      const auto index = std::min<std::size_t>(
          static_cast<std::size_t>(std::bit_width(static_cast<unsigned>(tp))) - 1,
          software.host_tp_jitter.size() - 1);
      factor = software.host_tp_jitter[index];
    }
    if (const auto* host = std::get_if<HostWork>(&operation.operation)) {
      if (host->kind == HostKind::kMicroBatch) return software.host_per_micro_batch;
      if (host->kind == HostKind::kStep) return software.host_per_step;
      return Time::zero();
    }
    if (software.launch == Launch::kCudaGraph) return Time::zero();
    const Time each =
        backward ? software.host_per_kernel_backward : software.host_per_kernel_forward;
    return Time::from_seconds(each.seconds() * price.launches * factor);
  }

  TaskTemplate make_template(const std::vector<TaskOrigin>& origins,
                             const std::vector<bool>& as_activity, bool backward) const {
    TaskTemplate result;
    result.tasks.reserve(origins.size());
    int first_of_step = 0;
    int step = 0;
    int activity_slot = 0, awaited_slot = 0, released_slot = 0;
    for (std::size_t i = 0; i < origins.size(); ++i) {
      const TaskOrigin& origin = origins[i];
      if (origin.step != step) {
        step = origin.step;
        first_of_step = static_cast<int>(i);
      }
      const TemplateOperation& operation =
          program_.templates[static_cast<std::size_t>(origin.template_index)]
              .operations[static_cast<std::size_t>(origin.operation)];
      const OperationPrice& price = step_.prices[static_cast<std::size_t>(origin.price)];
      Task task;
      task.stream = operation.stream;
      task.duration = price.price.time;
      task.host = host_time(operation, price, backward);
      task.host_waits = operation.host_waits;
      task.label = static_cast<int>(i);
      task.cause = static_cast<int>(operation.cause);
      task.sensitivity = sensitivity(operation);
      for (const int before : operation.after) task.after.push_back(first_of_step + before);
      task.joins = operation.joins;
      for (std::size_t a = 0; a < operation.awaits.size(); ++a)
        task.awaits.push_back(awaited_slot++);
      for (std::size_t a = 0; a < operation.releases.size(); ++a) {
        task.releases.push_back(released_slot++);
      }
      if (as_activity[i]) task.activity = activity_slot++;
      result.tasks.push_back(std::move(task));
    }
    return result;
  }

  static int sensitivity(const TemplateOperation& operation) {
    if (std::holds_alternative<Gemm>(operation.operation) ||
        std::holds_alternative<Attention>(operation.operation)) {
      return kComputeBound;
    }
    return std::holds_alternative<Kernel>(operation.operation) ? kMemoryBound : kNone;
  }

  void add_instance(int device, int issue_index, const Issue& issue, const PassBinding& binding,
                    bool overlapped) {
    TaskGraph& graph = step_.graph;
    Instance instance;
    instance.device = device;
    instance.task_template = binding.task_template;
    instance.label = issue_index;
    instance.moves_with_clock = overlapped;
    instance.first_awaited = static_cast<int>(graph.awaited_ports.size());
    for (const auto& [unused, port] : binding.awaited) {
      graph.awaited_ports.push_back(port_id(device, port, issue.micro_batch));
    }
    instance.first_released = static_cast<int>(graph.released_ports.size());
    for (const auto& [unused, port] : binding.released) {
      graph.released_ports.push_back(port_id(device, port, issue.micro_batch));
    }
    instance.first_activity = static_cast<int>(graph.bound_activities.size());
    for (const PassBinding::Slot& slot : binding.activities) {
      graph.bound_activities.push_back(activity_id(device, issue, slot));
    }
    graph.instances.push_back(instance);
    step_.instances.push_back({device, issue_index});
  }

  int port_id(int device, const PortRef& port, int micro_batch) {
    const PortFamily& family = program_.ports[static_cast<std::size_t>(port.family)];
    const auto key = std::tuple(device, port.family, family.per_layer ? port.layer : 0,
                                family.per_micro_batch ? micro_batch : 0);
    const auto [found, is_new] = ports_.try_emplace(key, step_.graph.ports);
    if (is_new) ++step_.graph.ports;
    return found->second;
  }

  int activity_id(int device, const Issue& issue, const PassBinding::Slot& slot) {
    const int rank = step_.device_rank[static_cast<std::size_t>(device)];
    const TemplateOperation& operation = *slot.operation;
    const Role& mine = role(rank, role_index(operation));
    const int group_class = step_.partition.group_class[static_cast<std::size_t>(mine.group)];
    ActivityKey key;
    key.group = group_class;
    if (is_message(operation)) {
      const RankKind& kind =
          program_
              .kinds[static_cast<std::size_t>(step_.device_kind[static_cast<std::size_t>(device)])];
      const Step& step = kind.passes[static_cast<std::size_t>(issue.pass)]
                             .steps[static_cast<std::size_t>(slot.step)];
      const BufferRef& carried =
          is_send(operation) ? operation.reads.front() : operation.writes.front();
      key.family = carried.family;
      key.layer = carried.layer + step.layer;
      key.micro_batch = issue.micro_batch;
    } else {
      // Collectives of a group match by their order, as in NCCL.
      key.micro_batch = sequence_[static_cast<std::size_t>(device) * program_.groups.size() +
                                  static_cast<std::size_t>(operation.group)]++;
    }
    const auto [found, is_new] =
        activities_.try_emplace(key, static_cast<int>(step_.graph.activities.size()));
    if (is_new)
      step_.graph.activities.push_back(make_activity(operation, rank, group_class, slot.price));
    return found->second;
  }

  Activity make_activity(const TemplateOperation& operation, int rank, int group_class,
                         int price_slot) {
    const OperationPrice& price = step_.prices[static_cast<std::size_t>(price_slot)];
    const auto group = static_cast<std::size_t>(group_class);
    Activity activity;
    activity.members = is_message(operation) ? 2 : distinct_classes_[group];
    activity.environment = sets_environment(operation, rank) ? kCollectiveEnvironment : kNone;
    const double rate = rate_alone(price.collective);
    if (group_loads_[group].count > 0 && rate > 0) {
      activity.latency = price.collective.latency;
      activity.work = price.collective.wire_bytes;
      activity.rate_limit = rate;
      activity.first_load = group_loads_[group].first;
      activity.load_count = group_loads_[group].count;
    } else {
      activity.latency = price.price.time;
    }
    return activity;
  }

  // A collective beside compute holds one multiprocessor per channel and moves its bytes through
  // memory: waves = ceil(CTAs / (SMs - channels)), bandwidth shared by demand. Not measured: graded
  // extrapolated (facts section 7: a GEMM of one full wave nearly doubles; most GEMMs have many).
  void build_slowdowns() {
    const Device& device = input_.profile.device;
    constexpr double kChannels = 16;            // NCCL's default for a ring over NICs (facts 4.3)
    constexpr double kMemoryPassesPerByte = 3;  // a reducing ring step reads two and writes one
    double compute = 1, memory = 1;
    if (device.multiprocessors > 2 * static_cast<int>(kChannels)) {
      compute = device.multiprocessors / (device.multiprocessors - kChannels);
    }
    const double nic = input_.topology.nodes() > 1
                           ? input_.topology.nic_bandwidth().bytes_per_second
                           : device.nvlink.bytes_per_second;
    const double bandwidth = device.memory_bandwidth.bytes_per_second;
    if (bandwidth > 0)
      memory = bandwidth / std::max(bandwidth / 2, bandwidth - kMemoryPassesPerByte * nic);
    constexpr std::int64_t kUnslowed = 1 << 20;
    step_.graph.slowdowns = {{kUnslowed, slowdown(compute)}, {kUnslowed, slowdown(memory)}};
  }

  struct ActivityKey {
    int group = 0, family = kNone, layer = 0, micro_batch = 0;
    friend bool operator==(const ActivityKey&, const ActivityKey&) = default;
  };
  struct ActivityKeyHash {
    std::size_t operator()(const ActivityKey& key) const {
      std::uint64_t hash = static_cast<std::uint64_t>(key.group);
      for (const int part : {key.family, key.layer, key.micro_batch}) {
        hash = hash * 0x9e3779b97f4a7c15ULL + static_cast<std::uint64_t>(part + 1);
        hash ^= hash >> 29U;
      }
      return static_cast<std::size_t>(hash);
    }
  };
  struct PriceKey {
    const TemplateOperation* operation = nullptr;
    int role_class = 0, speed = 0;
    friend bool operator==(const PriceKey&, const PriceKey&) = default;
  };
  struct PriceKeyHash {
    std::size_t operator()(const PriceKey& key) const {
      const auto spread =
          (static_cast<std::size_t>(key.role_class) << 32U) + static_cast<std::size_t>(key.speed);
      return std::hash<const void*>()(key.operation) ^ (spread * 0x9e3779b97f4a7c15ULL);
    }
  };
  struct LoadRange {
    int first = 0, count = 0;
  };

  const LoweringInput& input_;
  const Program& program_;
  ComputeCost compute_;
  CollectiveCost collective_;
  LoweredStep step_;

  std::vector<Channel> channels_;
  std::set<std::pair<int, Channel>> kind_sends_;
  std::vector<int> kind_of_rank_;
  std::vector<std::int64_t> family_loads_;
  FoldingStructure structure_;
  std::vector<Role> roles_;
  bool only_nics_bind_ = false;
  std::vector<std::size_t> load_slots_;
  std::unordered_map<std::int64_t, int> network_links_;
  std::vector<double> link_capacities_;
  std::vector<int> distinct_classes_;
  std::vector<LoadRange> group_loads_;
  std::vector<int> group_roles_;  // of the structure's groups: index of their members' role
  std::map<std::tuple<int, int, int>, double> fastest_;
  std::set<int> slowing_streams_;
  std::unordered_map<PriceKey, int, PriceKeyHash> price_indices_;
  std::map<std::tuple<int, int, int, int, int>, int> placement_classes_;
  std::map<std::vector<int>, int> task_templates_;
  std::map<std::tuple<int, int, int, int>, int> ports_;
  std::unordered_map<ActivityKey, int, ActivityKeyHash> activities_;
  std::vector<int> sequence_;
};

}  // namespace

LoweredStep lower_to_tasks(const LoweringInput& input) { return Lowering(input).run(); }

}  // namespace headway
