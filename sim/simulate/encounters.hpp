// Who meets whom: the process groups, messages and links of a Program on a topology, as a structure
// to fold; and what each group is to each rank. Links that can never bind are dropped, exactly.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sim/cluster/topology.hpp"
#include "sim/engine/task_graph.hpp"
#include "sim/plan/software.hpp"
#include "sim/program/program.hpp"
#include "sim/simulate/folding.hpp"

namespace headway {

// What the machine is asked to do differently from its description.
struct MachineWhatIf {
  std::map<int, double> slow_ranks;  // rank -> factor on its compute times, above 0
  // Links by name (cluster/link_names.hpp) -> share of their bandwidth left; 0: dead, and transfers
  // go round them.
  std::map<std::string, double> degraded_links;
};

// Nominal load of a transfer on a link it crosses. Software that reaches only a share e of the
// nominal bandwidth loads the link by 1/e of this: loads stay small integers.
inline constexpr std::int64_t kNominalLoad = 64;

// What a process group or a message channel is to a rank.
struct Role {
  int group = kNoIndex;  // of the FoldingStructure
  GroupPlacement placement;
  bool same_node = true;
  double left_inside = 1;  // of same_node: share left of the narrowest hop between its members
};

// The links of the network that the groups of one or several jobs load: numbered as they are met.
struct NetworkLinks {
  std::unordered_map<std::int64_t, int> numbers;
  std::vector<double> capacities;  // bytes per second
};

// The collective of an operation; nullptr where it is none. A message is a send or a receive.
const Collective* collective_of(const TemplateOperation& operation);
bool is_send(const TemplateOperation& operation);
bool is_message(const TemplateOperation& operation);

// The share of the nominal network bandwidth that an operation's software reaches.
double network_efficiency(const TemplateOperation& operation, const Software& software);

// Each operation that a rank kind issues, once. `visit` takes a const TemplateOperation&.
template <typename Visit>
void for_each_operation(const Program& program, int kind, Visit visit) {
  std::set<int> templates;
  for (const Pass& pass : program.kinds[static_cast<std::size_t>(kind)].passes) {
    for (const Step& step : pass.steps) templates.insert(step.template_index);
  }
  for (const int t : templates) {
    for (const TemplateOperation& operation :
         program.templates[static_cast<std::size_t>(t)].operations) {
      visit(operation);
    }
  }
}

class Encounters {
 public:
  // Rank r sits on GPU first_gpu + r of the topology; `links` are shared with the jobs beside it.
  // Throws InvalidInput where dead links leave two GPUs without a way. REQUIRES: all outlive this.
  Encounters(const Program& program, const Topology& topology, const Software& software,
             const MachineWhatIf& machine, NetworkLinks& links, int first_gpu = 0);

  // Its links are those of `links`, in their numbers, without colours; nothing else stands in it
  // that another job could share.
  const FoldingStructure& structure() const { return structure_; }
  int kind_of(int rank) const { return kind_of_rank_[static_cast<std::size_t>(rank)]; }

  // What a collective loads its group's links with, over what the group's collective of least
  // efficiency does, which `structure` holds: 1 but where collectives of two kinds share a group.
  double share_of_load(const TemplateOperation& operation) const;

  // Which role an operation gives to a rank that runs it: an index for role(); kNoIndex for work of
  // the rank alone.
  int role_index(const TemplateOperation& operation) const;
  const Role& role(int rank, int index) const {
    return roles_[static_cast<std::size_t>(rank) * role_count() + static_cast<std::size_t>(index)];
  }
  // The role that a group of the structure gives to its first member.
  int group_role(std::size_t group) const { return group_roles_[group]; }
  bool is_message_role(int index) const {
    return index >= static_cast<int>(program_.groups.size());
  }

  // Ranks of one speed have one number; 0 is the device's own.
  int speed_class(int rank) const;
  double speed_factor(int rank) const;

  // The rank's place in its ring, where places give ranks different attention to compute; else 0.
  int place_class(int rank) const;

  // Adds what all groups can put on each link together: `fastest` is the most bytes per second of a
  // group on a link of load 1.
  void add_demand(const std::function<double(std::size_t)>& fastest,
                  std::vector<double>& demand) const;
  // Gives links their new numbers; those without one (kNoIndex) are loaded no more.
  void renumber_links(const std::vector<int>& numbers);

 private:
  // A direction in which ranks of a kind send: their peer along `axis`, `offset` further on.
  struct Channel {
    std::string axis;
    int offset = 0;
    friend auto operator<=>(const Channel&, const Channel&) = default;
  };
  using Loads = std::vector<FoldingStructure::Load>;

  void find_channels();
  void find_family_loads();
  bool only_nics_can_bind() const;
  void find_uneven_places();
  void colour_ranks();
  std::uint64_t load_colour(int rank) const;
  void add_collective_groups();
  void add_message_groups();
  Loads ring_loads(const std::vector<int>& members, std::int64_t load);
  Loads exchange_loads(const std::vector<int>& members, std::int64_t load, int remote);
  void add_route(int from, int to, std::int64_t load, Loads& loads);
  void add_nics(int from, int to, std::int64_t load, Loads& loads);
  void add_load(int link, std::int64_t load, Loads& loads);
  int network_link(std::int64_t key, double capacity);
  int gpu_of(int rank) const { return first_gpu_ + rank; }
  int node_of(int rank) const { return topology_.node_of(gpu_of(rank)); }
  void find_links_left();
  double left_of(LinkId link) const;
  double left_of_nics() const;
  double left_between(int from, int to) const;
  double left_inside(const std::vector<int>& members) const;
  std::vector<LinkId> route(int from, int to) const;

  std::size_t role_count() const { return program_.groups.size() + 2 * channels_.size(); }
  Role& role_slot(int rank, int index) {
    return roles_[static_cast<std::size_t>(rank) * role_count() + static_cast<std::size_t>(index)];
  }
  int channel_index(const std::string& axis, int offset) const;
  int send_role(int channel) const {
    return static_cast<int>(program_.groups.size()) + 2 * channel;
  }
  int receive_role(int channel) const { return send_role(channel) + 1; }

  const Program& program_;
  const Topology& topology_;
  const Software& software_;
  const MachineWhatIf& machine_;
  NetworkLinks& links_;
  int first_gpu_ = 0;
  Topology routed_;                // with dead links gone
  std::vector<double> left_;       // by link; empty: all of all
  bool left_less_inside_ = false;  // of some link inside a node
  FoldingStructure structure_;
  std::vector<Channel> channels_;
  std::set<std::pair<int, Channel>> kind_sends_;
  std::vector<int> kind_of_rank_;
  std::vector<Role> roles_;       // by rank, by role index
  std::vector<int> group_roles_;  // by group of the structure
  std::vector<std::int64_t> family_loads_;
  std::vector<bool> family_exchanges_;  // whether some collective is an all-to-all
  bool only_nics_bind_ = false;
  bool places_differ_ = false;
  std::vector<std::size_t> load_slots_;
};

// Drops the links that can never bind: everything that crosses them, each as fast as it can be
// alone, does not exceed their capacity. `demand` as add_demand() leaves it. Returns each link's
// new number, or kNoIndex.
std::vector<int> drop_links_that_cannot_bind(const std::vector<double>& demand,
                                             NetworkLinks& links);

}  // namespace headway
