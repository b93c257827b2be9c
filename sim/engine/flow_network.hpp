// Max-min fair rates of the activities that share links, by water-filling in integers.
//
// Four flows as an example. Links A and B carry 12 and 5 units per second. Flow x crosses A; flow y
// crosses A and B; flow z crosses B, loading it twice what it moves; flow w crosses A with weight 2
// (two connections). A share must not exceed
//   A:  x + y       + 2 w' <= 12     (w = 2 w': a weight counts as so many flows)
//   B:      y + 2 z        <=  5
// Raise all of x, y, z, w' together. B is full first: y + 2 z = 5 at level 5/3 = 1 in integers; y
// and z are frozen there. A then has 12 - 1 = 11 left for x + 2 w', full at level 3: x = 3, w = 6.
// The rest (2 units on A, 2 on B) is the remainder of the integer divisions: never more than the
// number of flows on a link, in units of 2^-50 byte per picosecond.
//
// Why integers: a level is floor(capacity left / count), so levels never fall, no link is overfull,
// and what is left on a link does not depend on the order of subtraction. All links at the current
// level are frozen together, which makes the rates of a folded network (every equitable partition
// of flows and links) equal to those of the unfolded one. Work left is a 128-bit integer in the
// same unit and an end is now + ceil(left / rate), so an end does not move when a flow is re-timed
// without need.
//
// After a change, only flows are solved again that are reachable from it through flows at or above
// the level where the change is first felt; the rest keep their rates. A link that could carry all
// its flows at their rate limits binds none of them, and nothing is felt through it. That is equal
// to solving all.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "sim/engine/task_graph.hpp"

namespace headway {

// Work in units of 2^-50 of what Activity::work counts.
__extension__ using Work = __int128;

inline constexpr int kRateBits = 50;
// Rates are in 2^-50 units of work per picosecond: 1 TB/s is 2^50. A rate where nothing limits.
inline constexpr std::int64_t kUnlimitedRate = std::int64_t{1} << 62;

// The nearest integer rate, at most kUnlimitedRate. REQUIRES: units_per_second >= 0.
std::int64_t integer_rate(double units_per_second);

inline Work work_of(std::int64_t work) { return static_cast<Work>(work) << kRateBits; }

// Picoseconds until `left` has been moved: ceil(left / rate). REQUIRES: rate > 0, left >= 0.
std::int64_t time_to_move(Work left, std::int64_t rate);

// The rate of an activity of the graph that has its links to itself. Throws InvalidInput where it
// would be 0.
std::int64_t rate_alone(const TaskGraph& graph, const Activity& activity);

// The flows now on the links of a TaskGraph, by activity id.
class FlowNetwork {
 public:
  // The graph must outlive the network.
  explicit FlowNetwork(const TaskGraph& graph);

  // REQUIRES: the activity has links or a rate limit, and is not (for remove: is) in the network.
  void add(int activity);
  void remove(int activity);

  // Brings the rates up to date after any number of changes. Activities whose rate changed, in
  // ascending order; those added are always among them. Throws InvalidInput where a rate would be
  // 0.
  const std::vector<int>& solve();

  // Of an activity in the network, as of the last solve.
  std::int64_t rate(int activity) const {
    const auto index = static_cast<std::size_t>(activity);
    return levels_[index] * flows_[index].weight;
  }

  // Solves everything again and says whether no rate moves: what `solve` promises.
  bool equals_full_solve() const;

  std::int64_t flows_solved() const { return flows_solved_; }

 private:
  struct Flow {
    std::int64_t limit = kUnlimitedRate;  // level that its rate limit allows
    std::int64_t weight = 1;
    int first_load = 0, load_count = 0;  // into TaskGraph::loads
    int first_place = 0;                 // into places_, one per load
    bool present = false;
    bool frozen = false;
  };
  struct OnLink {
    int activity = 0;
    int load_index = 0;       // among the activity's own
    std::int64_t counts = 0;  // load times weight: what it adds to a link's count
  };
  struct LinkState {
    std::int64_t capacity = 0;
    std::vector<OnLink> flows;
    Work demand = 0;        // of all its flows at their rate limits
    bool may_bind = false;  // whether that exceeded the capacity at the last solve
    // Of the solve in progress.
    std::int64_t left = 0;
    std::int64_t count = 0;  // of loads times weights not yet frozen
    std::int32_t mark = 0;
    std::int32_t asked = 0;  // the last solve that asked for its water level
  };
  struct Candidate {
    std::int64_t level;
    int link;  // or -1 - activity: its rate limit
  };

  static Work demand(const Flow& flow, const LinkLoad& load);
  std::span<const LinkLoad> loads(int activity) const;
  void settle_free_flows();
  void solve_felt();
  bool is_free(int activity) const;
  std::int64_t restart_level();
  std::int64_t water_level(const LinkState& link) const;
  void reach(std::int64_t level);
  void come_up(const Candidate& candidate, std::int64_t level);
  void fill();
  void freeze(int activity, std::int64_t level);

  const TaskGraph& graph_;
  std::vector<Flow> flows_;  // by activity
  // By activity, apart from the rest because every flow on a link is asked for them: the rate per
  // weight at which it was frozen, and the last solve that reached it.
  std::vector<std::int64_t> levels_;
  std::vector<std::int32_t> marks_;
  std::vector<int> places_;  // where each load stands in its link's list
  std::vector<LinkState> links_;
  std::vector<int> added_;          // since the last solve
  std::vector<int> touched_links_;  // likewise
  std::int64_t removed_level_ = std::numeric_limits<std::int64_t>::max();
  std::int32_t mark_ = 0;
  std::vector<int> reached_flows_;
  std::vector<int> reached_links_;
  std::vector<Candidate> noted_, put_off_;
  std::vector<std::int64_t> old_levels_;  // of reached_flows_
  std::vector<int> batch_;                // frozen at one level
  std::vector<int> changed_;
  std::int64_t flows_solved_ = 0;
};

}  // namespace headway
