#include "sim/engine/link_pruning.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <span>

#include "sim/engine/flow_network.hpp"

namespace headway {
namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

std::span<const LinkLoad> loads_of(const TaskGraph& graph, const Activity& activity) {
  return std::span(graph.loads).subspan(at(activity.first_load), at(activity.load_count));
}

// The lowest stream on which each activity has a member: activities with the same one follow one
// another.
std::vector<int> serial_streams(const TaskGraph& graph) {
  struct Member {
    int slot, stream;
  };
  std::vector<std::vector<Member>> members(graph.templates.size());
  for (std::size_t t = 0; t < members.size(); ++t) {
    for (const Task& task : graph.templates[t].tasks) {
      if (task.activity != kNoIndex) members[t].push_back({task.activity, task.stream});
    }
  }
  std::vector<int> streams(graph.activities.size(), std::numeric_limits<int>::max());
  for (const Instance& instance : graph.instances) {
    for (const Member& member : members[at(instance.task_template)]) {
      int& stream = streams[at(graph.bound_activities[at(instance.first_activity + member.slot)])];
      stream = std::min(stream, instance.device * graph.streams_per_device + member.stream);
    }
  }
  return streams;
}

class Pruner {
 public:
  explicit Pruner(const TaskGraph& graph)
      : graph_(graph), dropped_(graph.links.size(), false), users_(graph.links.size()) {
    const std::vector<int> streams = serial_streams(graph);
    for (std::size_t a = 0; a < graph.activities.size(); ++a) {
      const Activity& activity = graph.activities[a];
      if (activity.work == 0) continue;
      for (const LinkLoad& load : loads_of(graph, activity)) {
        users_[at(load.link)].push_back({streams[a], static_cast<int>(a), load.load});
      }
    }
    for (const Link& link : graph.links) capacities_.push_back(integer_rate(link.capacity));
  }

  // Widest first: a wide link is dropped in favour of the narrow one on the same path.
  const std::vector<bool>& run() {
    std::vector<int> order(graph_.links.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return capacities_[at(a)] > capacities_[at(b)]; });
    for (const int link : order) {
      if (!users_[at(link)].empty()) dropped_[at(link)] = cannot_bind(link);
    }
    return dropped_;
  }

 private:
  struct User {
    int stream;
    int activity;
    std::int64_t load;
  };

  bool cannot_bind(int link) {
    auto& users = users_[at(link)];
    std::sort(users.begin(), users.end(), [](const User& a, const User& b) {
      return a.stream != b.stream ? a.stream < b.stream : a.activity < b.activity;
    });
    Work demand = 0;
    for (std::size_t first = 0; first < users.size();) {
      Work most = 0;
      std::size_t next = first;
      for (; next < users.size() && users[next].stream == users[first].stream; ++next) {
        const std::int64_t rate = rate_without(users[next].activity, link);
        most = std::max(most, static_cast<Work>(rate) * users[next].load);
      }
      first = next;
      demand += most;
      if (demand > capacities_[at(link)]) return false;
    }
    return true;
  }

  // What the activity could reach if only its limit and its other kept links held it.
  std::int64_t rate_without(int activity, int link) const {
    const Activity& of = graph_.activities[at(activity)];
    std::int64_t level = kUnlimitedRate / of.weight;
    if (of.rate_limit > 0) level = std::min(level, integer_rate(of.rate_limit) / of.weight);
    for (const LinkLoad& load : loads_of(graph_, of)) {
      if (load.link == link || dropped_[at(load.link)]) continue;
      level = std::min(level, capacities_[at(load.link)] / (load.load * of.weight));
    }
    return level * of.weight;
  }

  const TaskGraph& graph_;
  std::vector<bool> dropped_;
  std::vector<std::vector<User>> users_;
  std::vector<std::int64_t> capacities_;
};

}  // namespace

int prune_links(TaskGraph& graph) {
  const std::vector<bool> dropped = Pruner(graph).run();
  // Activities may share ranges of loads: renumber the loads, not the ranges one by one.
  std::vector<int> place(graph.loads.size() + 1, 0);
  std::vector<LinkLoad> kept;
  for (std::size_t l = 0; l < graph.loads.size(); ++l) {
    place[l] = static_cast<int>(kept.size());
    if (!dropped[at(graph.loads[l].link)]) kept.push_back(graph.loads[l]);
  }
  place.back() = static_cast<int>(kept.size());
  for (Activity& activity : graph.activities) {
    const int end = place[at(activity.first_load + activity.load_count)];
    activity.first_load = place[at(activity.first_load)];
    activity.load_count = end - activity.first_load;
  }
  graph.loads = std::move(kept);
  return static_cast<int>(std::count(dropped.begin(), dropped.end(), true));
}

std::vector<std::int64_t> fixed_durations(const TaskGraph& graph) {
  std::vector<std::int64_t> fixed;
  fixed.reserve(graph.activities.size());
  bool any_work = false;
  for (const Activity& activity : graph.activities) {
    fixed.push_back(activity.latency.picoseconds);
    any_work |= activity.work > 0;
  }
  if (!any_work) return fixed;
  constexpr int kShared = -2;
  const std::vector<int> streams = serial_streams(graph);
  std::vector<int> link_stream(graph.links.size(), kNoIndex);
  for (std::size_t a = 0; a < streams.size(); ++a) {
    if (graph.activities[a].work == 0) continue;
    for (const LinkLoad& load : loads_of(graph, graph.activities[a])) {
      int& of_link = link_stream[at(load.link)];
      if (of_link == kNoIndex) of_link = streams[a];
      if (of_link != streams[a]) of_link = kShared;
    }
  }
  for (std::size_t a = 0; a < streams.size(); ++a) {
    const Activity& activity = graph.activities[a];
    if (activity.work == 0) continue;
    const auto loads = loads_of(graph, activity);
    const bool shares = std::any_of(loads.begin(), loads.end(), [&](const LinkLoad& load) {
      return link_stream[at(load.link)] == kShared;
    });
    if (shares) {
      fixed[a] = kNoIndex;
    } else {
      fixed[a] += time_to_move(work_of(activity.work), rate_alone(graph, activity));
    }
  }
  return fixed;
}

}  // namespace headway
