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
  std::map<int, double> slow_ranks;              // rank -> factor on its compute times, >= 1
  std::map<std::string, double> degraded_links;  // link kind -> share of its bandwidth left
};

// Nominal load of a transfer on a link it crosses. Software that reaches only a share e of the
// nominal bandwidth loads the link by 1/e of this: loads stay small integers.
inline constexpr std::int64_t kNominalLoad = 64;

// What a process group or a message channel is to a rank.
struct Role {
  int group = kNoIndex;  // of the FoldingStructure
  GroupPlacement placement;
  bool same_node = true;
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
  // REQUIRES: all outlive this.
  Encounters(const Program& program, const Topology& topology, const Software& software,
             const MachineWhatIf& machine);

  const FoldingStructure& structure() const { return structure_; }
  // Bytes per second of a link of the structure.
  double link_capacity(std::size_t link) const { return link_capacities_[link]; }
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

  // The share left of the bandwidth between GPUs of one node.
  double left_inside_nodes() const;

  // `fastest`: bytes per second that a group of the structure can put, at most, on a link of
  // load 1.
  void drop_links_that_cannot_bind(const std::function<double(std::size_t)>& fastest);

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
  void add_route(int from, int to, std::int64_t load, Loads& loads);
  void add_nics(int from, int to, std::int64_t load, Loads& loads);
  void add_load(int link, std::int64_t load, Loads& loads);
  int network_link(std::int64_t key, double capacity);
  double left_of(const std::string& link_kind) const;

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
  FoldingStructure structure_;
  std::vector<Channel> channels_;
  std::set<std::pair<int, Channel>> kind_sends_;
  std::vector<int> kind_of_rank_;
  std::vector<Role> roles_;       // by rank, by role index
  std::vector<int> group_roles_;  // by group of the structure
  std::vector<std::int64_t> family_loads_;
  bool only_nics_bind_ = false;
  bool places_differ_ = false;
  std::vector<double> link_capacities_;
  std::unordered_map<std::int64_t, int> network_links_;
  std::vector<std::size_t> load_slots_;
};

}  // namespace headway
