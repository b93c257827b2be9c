#include "sim/simulate/operation_pricer.hpp"

#include <algorithm>

namespace headway {

double rate_alone(const CollectivePrice& price) {
  const Time moving = price.alone.time - price.latency;
  if (price.wire_bytes <= 0 || moving <= Time::zero()) return 0;
  return static_cast<double>(price.wire_bytes) / moving.seconds();
}

// With this share of the bandwidth left, what is no latency takes longer.
static void slow_down(CollectivePrice& price, double left) {
  if (left == 1) return;
  const Time moving = price.alone.time - price.latency;
  price.alone.time = price.latency + Time::from_seconds(moving.seconds() / left);
  price.alone.grade = std::max(price.alone.grade, Grade::kExtrapolated);
}

OperationPricer::OperationPricer(const Program& program, const Profile& profile,
                                 const Topology& topology, const Software& software,
                                 const Encounters& encounters)
    : program_(program),
      software_(software),
      encounters_(encounters),
      compute_(profile),
      collective_(profile, topology) {}

// Operations are priced once per role and speed, not per rank.
int OperationPricer::index(const TemplateOperation& operation, int rank) {
  const int role_index = encounters_.role_index(operation);
  const int role_class = role_index == kNone ? kNone
                                             : placement_class(encounters_.role(rank, role_index),
                                                               is_message(operation));
  const Key key{&operation, role_class, role_index == kNone ? encounters_.speed_class(rank) : 0};
  const auto [found, is_new] = indices_.try_emplace(key, static_cast<int>(prices_.size()));
  if (is_new) prices_.push_back(compute(operation, rank, role_index));
  return found->second;
}

int OperationPricer::placement_class(const Role& role, bool message) {
  const auto& p = role.placement;
  const auto key = std::tuple(p.ranks, p.nodes, p.ranks_per_node, p.neighbours_sharing_nic,
                              message ? (role.same_node ? 1 : 2) : 0);
  return placement_classes_.try_emplace(key, static_cast<int>(placement_classes_.size()))
      .first->second;
}

OperationPrice OperationPricer::compute(const TemplateOperation& operation, int rank,
                                        int role_index) const {
  OperationPrice result;
  if (std::holds_alternative<HostWork>(operation.operation)) {
    result.launches = 0;
    return result;
  }
  if (role_index == kNone) {
    result.price = compute_.price(operation.operation);
    result.launches = compute_.launches(operation.operation);
    const double factor = encounters_.speed_factor(rank);
    if (factor != 1.0) {
      result.price.time = Time::from_seconds(result.price.time.seconds() * factor);
    }
    return result;
  }
  const Collective& collective = *collective_of(operation);
  const Role& mine = encounters_.role(rank, role_index);
  if (is_message(operation)) {
    result.group_size = 2;
    result.collective = collective_.send(size(collective), mine.same_node);
    result.collective.latency += software_.p2p_blocking;
    result.collective.alone.time += software_.p2p_blocking;
  } else {
    result.group_size = mine.placement.ranks;
    result.collective =
        collective_.price(collective, mine.placement, network_efficiency(operation, software_));
  }
  if (mine.same_node) slow_down(result.collective, encounters_.left_inside_nodes());
  result.price = result.collective.alone;
  return result;
}

double OperationPricer::fastest(std::size_t group) {
  const FoldingStructure& structure = encounters_.structure();
  const int rank =
      structure.members[static_cast<std::size_t>(structure.groups[group].first_member)];
  const int kind = encounters_.kind_of(rank);
  const int role_index = encounters_.group_role(group);
  const Role& mine = encounters_.role(rank, role_index);
  const bool message = encounters_.is_message_role(role_index);
  const auto key = std::tuple(kind, role_index, placement_class(mine, message));
  const auto found = fastest_.find(key);
  if (found != fastest_.end()) return found->second;
  double best = 0;
  for_each_operation(program_, kind, [&](const TemplateOperation& operation) {
    if (encounters_.role_index(operation) != role_index) return;
    best = std::max(best, rate_alone(price(index(operation, rank)).collective));
  });
  fastest_.emplace(key, best);
  return best;
}

}  // namespace headway
