// Which links can ever bind, decided before anything is played. A link is dropped where its
// capacity is at least what all activities that can be on it together could bring, each at the rate
// its other links and its own limit allow; such a link is never below the level at which they are
// frozen elsewhere, so all rates stay the same to the last bit. Dropping merges the classes of a
// folded job and leaves activities with links of their own, whose time is fixed.
//
// Two activities with a member on the same stream of a device follow one another, so of those only
// the most demanding counts.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/engine/task_graph.hpp"

namespace headway {

// Removes the loads of links that cannot bind; links keep their numbers. Returns how many links
// that were loaded are loaded no more. REQUIRES: a well-formed graph.
int prune_links(TaskGraph& graph);

// Each activity's whole time, where no other activity can change it: its latency, and its work at
// the rate it has alone. kNoIndex where it depends on what else runs. Throws InvalidInput where a
// link is too slow for a rate above 0.
std::vector<std::int64_t> fixed_durations(const TaskGraph& graph);

}  // namespace headway
