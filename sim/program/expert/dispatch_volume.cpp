#include "sim/program/expert/dispatch_volume.hpp"

#include <algorithm>

namespace headway {

double expected_places(std::int64_t experts, std::int64_t places, std::int64_t chosen) {
  const std::int64_t elsewhere = experts - experts / places;
  // That none of the choices is of one place's experts.
  double none = 1;
  for (std::int64_t i = 0; i < chosen; ++i) {
    none *= std::max(0.0, static_cast<double>(elsewhere - i)) / static_cast<double>(experts - i);
  }
  return static_cast<double>(places) * (1 - none);
}

DispatchVolume dispatch_volume(const Job& job) {
  const RankGrid grid = job.grid();
  const GroupPlacement placement =
      job.topology.placement(grid.members(GroupFamily{"ep", {"ep"}, {}}, 0));
  const std::int64_t chosen = job.model.experts.per_token;
  const std::int64_t nodes = placement.nodes;
  // A limited router chooses among the experts of so many nodes only.
  const std::int64_t limit = job.plan.moe.nodes_per_token;
  const std::int64_t reached = limit > 0 ? std::min(limit, nodes) : nodes;
  const std::int64_t experts = job.model.num_experts / nodes * reached;
  DispatchVolume volume;
  volume.ranks = expected_places(experts, placement.ranks_per_node * reached, chosen);
  volume.remote_nodes = expected_places(experts, reached, chosen) * static_cast<double>(nodes - 1) /
                        static_cast<double>(nodes);
  return volume;
}

}  // namespace headway
