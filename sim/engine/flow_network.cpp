#include "sim/engine/flow_network.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <string>
#include <utility>

#include "sim/core/error.hpp"

namespace headway {
namespace {

constexpr std::int64_t kAboveAll = std::numeric_limits<std::int64_t>::max();
constexpr double kRateUnitsPerUnitPerSecond = 0x1p50 * 1e-12;

std::size_t at(int index) { return static_cast<std::size_t>(index); }

// Lowest level first. Those at one level come up together, in any order.
struct HigherLevel {
  template <typename Candidate>
  bool operator()(const Candidate& a, const Candidate& b) const {
    return a.level > b.level;
  }
};

void require_bandwidth(std::int64_t level, int activity) {
  if (level > 0) return;
  throw InvalidInput("task graph", "/activities/" + std::to_string(activity),
                     "gets no bandwidth: a link it loads is too slow for what shares it");
}

}  // namespace

std::int64_t integer_rate(double units_per_second) {
  const double rate = units_per_second * kRateUnitsPerUnitPerSecond;
  return rate >= static_cast<double>(kUnlimitedRate) ? kUnlimitedRate : std::llround(rate);
}

std::int64_t time_to_move(Work left, std::int64_t rate) {
  return static_cast<std::int64_t>((left + rate - 1) / rate);
}

std::int64_t rate_alone(const TaskGraph& graph, const Activity& activity) {
  std::int64_t level = kUnlimitedRate / activity.weight;
  if (activity.rate_limit > 0) {
    level = std::min(level, integer_rate(activity.rate_limit) / activity.weight);
  }
  for (int l = activity.first_load; l < activity.first_load + activity.load_count; ++l) {
    const LinkLoad& load = graph.loads[at(l)];
    level = std::min(
        level, integer_rate(graph.links[at(load.link)].capacity) / (load.load * activity.weight));
  }
  require_bandwidth(level, static_cast<int>(&activity - graph.activities.data()));
  return level * activity.weight;
}

FlowNetwork::FlowNetwork(const TaskGraph& graph) : graph_(graph) {
  links_.resize(graph.links.size());
  for (std::size_t l = 0; l < links_.size(); ++l) {
    links_[l].capacity = integer_rate(graph.links[l].capacity);
  }
  flows_.resize(graph.activities.size());
  levels_.resize(flows_.size(), 0);
  marks_.resize(flows_.size(), 0);
  int places = 0;
  for (std::size_t a = 0; a < flows_.size(); ++a) {
    const Activity& activity = graph.activities[a];
    flows_[a].weight = activity.weight;
    flows_[a].limit = kUnlimitedRate / activity.weight;
    if (activity.rate_limit > 0) {
      flows_[a].limit = integer_rate(activity.rate_limit) / activity.weight;
    }
    flows_[a].first_load = activity.first_load;
    flows_[a].load_count = activity.load_count;
    flows_[a].first_place = places;
    places += activity.load_count;
  }
  places_.resize(at(places));
}

// What a flow puts on a link at its rate limit.
Work FlowNetwork::demand(const Flow& flow, const LinkLoad& load) {
  return static_cast<Work>(flow.limit) * flow.weight * load.load;
}

std::span<const LinkLoad> FlowNetwork::loads(int activity) const {
  const Flow& flow = flows_[at(activity)];
  return std::span(graph_.loads).subspan(at(flow.first_load), at(flow.load_count));
}

void FlowNetwork::add(int activity) {
  Flow& flow = flows_[at(activity)];
  assert(!flow.present);
  flow.present = true;
  levels_[at(activity)] = kAboveAll;  // never kept
  const auto own = loads(activity);
  for (std::size_t i = 0; i < own.size(); ++i) {
    LinkState& link = links_[at(own[i].link)];
    places_[at(flow.first_place) + i] = static_cast<int>(link.flows.size());
    link.flows.push_back({activity, static_cast<int>(i), own[i].load * flow.weight});
    link.demand += demand(flow, own[i]);
    touched_links_.push_back(own[i].link);
  }
  added_.push_back(activity);
}

void FlowNetwork::remove(int activity) {
  Flow& flow = flows_[at(activity)];
  assert(flow.present);
  flow.present = false;
  const auto own = loads(activity);
  for (std::size_t i = 0; i < own.size(); ++i) {
    LinkState& link = links_[at(own[i].link)];
    const int place = places_[at(flow.first_place) + i];
    if (link.may_bind) removed_level_ = std::min(removed_level_, levels_[at(activity)]);
    link.demand -= demand(flow, own[i]);
    const OnLink moved = link.flows.back();
    link.flows[at(place)] = moved;
    link.flows.pop_back();
    places_[at(flows_[at(moved.activity)].first_place + moved.load_index)] = place;
    touched_links_.push_back(own[i].link);
  }
}

// The level at which `link` is full when flows frozen below that level keep their rates.
std::int64_t FlowNetwork::water_level(const LinkState& link) const {
  std::int64_t share = 0;
  for (;;) {
    std::int64_t left = link.capacity, count = 0;
    for (const OnLink& on : link.flows) {
      const std::int64_t level = levels_[at(on.activity)];
      if (level < share) {
        left -= on.counts * level;
      } else {
        count += on.counts;
      }
    }
    if (count == 0) return kUnlimitedRate;
    const std::int64_t higher = left / count;
    if (higher <= share) return share;
    share = higher;
  }
}

// No flow below this level can feel the changes since the last solve.
std::int64_t FlowNetwork::restart_level() {
  std::int64_t level = removed_level_;
  const std::int32_t asking = mark_ + 1;
  for (const int activity : added_) {
    if (!flows_[at(activity)].present) continue;
    level = std::min(level, flows_[at(activity)].limit);
    for (const LinkLoad& load : loads(activity)) {
      LinkState& link = links_[at(load.link)];
      if (link.may_bind && std::exchange(link.asked, asking) != asking) {
        level = std::min(level, water_level(link));
      }
    }
  }
  return level;
}

// Collects the flows to solve: at or above `level`, connected to a change through such flows.
void FlowNetwork::reach(std::int64_t level) {
  ++mark_;
  reached_flows_.clear();
  reached_links_.clear();
  const auto reach_link = [&](int link) {
    if (links_[at(link)].mark == mark_) return;
    links_[at(link)].mark = mark_;
    reached_links_.push_back(link);
  };
  const auto reach_flow = [&](int activity) {
    if (marks_[at(activity)] == mark_) return;
    marks_[at(activity)] = mark_;
    reached_flows_.push_back(activity);
    for (const LinkLoad& load : loads(activity)) {
      if (links_[at(load.link)].may_bind) reach_link(load.link);
    }
  };
  for (const int link : touched_links_) reach_link(link);
  for (const int activity : added_) {
    if (flows_[at(activity)].present) reach_flow(activity);
  }
  for (std::size_t next = 0; next < reached_links_.size(); ++next) {
    LinkState& link = links_[at(reached_links_[next])];
    link.left = link.capacity;
    link.count = 0;
    for (const OnLink& on : link.flows) {
      const std::int64_t own = levels_[at(on.activity)];
      if (own < level) {
        link.left -= on.counts * own;
      } else {
        link.count += on.counts;
        reach_flow(on.activity);
      }
    }
  }
}

void FlowNetwork::freeze(int activity, std::int64_t level) {
  Flow& flow = flows_[at(activity)];
  flow.frozen = true;
  levels_[at(activity)] = level;
  require_bandwidth(level, activity);
  for (const LinkLoad& load : loads(activity)) {
    LinkState& link = links_[at(load.link)];
    const std::int64_t counts = load.load * flow.weight;
    link.left -= counts * level;
    link.count -= counts;
  }
}

// A link or limit that comes up at `level`: what it freezes joins the batch. A share that has grown
// since it was noted is put off.
void FlowNetwork::come_up(const Candidate& candidate, std::int64_t level) {
  if (candidate.link < 0) {
    if (!flows_[at(-1 - candidate.link)].frozen) batch_.push_back(-1 - candidate.link);
    return;
  }
  const LinkState& link = links_[at(candidate.link)];
  if (link.count == 0) return;
  const std::int64_t share = link.left / link.count;
  if (share > level) {
    put_off_.push_back({share, candidate.link});
    std::push_heap(put_off_.begin(), put_off_.end(), HigherLevel());
    return;
  }
  for (const OnLink& on : link.flows) {
    if (marks_[at(on.activity)] == mark_ && !flows_[at(on.activity)].frozen) {
      batch_.push_back(on.activity);
    }
  }
}

// Water-filling of what `reach` collected. Shares only grow, so what is noted of one is a lower
// bound: all are sorted once, and the few that have grown when they come up wait in a heap.
void FlowNetwork::fill() {
  noted_.clear();
  put_off_.clear();
  for (const int link : reached_links_) {
    const LinkState& state = links_[at(link)];
    if (state.count > 0) noted_.push_back({state.left / state.count, link});
  }
  for (const int activity : reached_flows_) {
    Flow& flow = flows_[at(activity)];
    flow.frozen = false;
    if (flow.limit < kUnlimitedRate / flow.weight) noted_.push_back({flow.limit, -1 - activity});
  }
  std::sort(noted_.begin(), noted_.end(),
            [](const Candidate& a, const Candidate& b) { return HigherLevel()(b, a); });
  std::size_t next = 0;
  while (next < noted_.size() || !put_off_.empty()) {
    std::int64_t level = kAboveAll;
    if (next < noted_.size()) level = noted_[next].level;
    if (!put_off_.empty()) level = std::min(level, put_off_.front().level);
    batch_.clear();
    while (next < noted_.size() && noted_[next].level == level) come_up(noted_[next++], level);
    while (!put_off_.empty() && put_off_.front().level == level) {
      std::pop_heap(put_off_.begin(), put_off_.end(), HigherLevel());
      const Candidate candidate = put_off_.back();
      put_off_.pop_back();
      come_up(candidate, level);
    }
    // Only now: all links at this level are frozen together.
    for (const int activity : batch_) {
      if (!flows_[at(activity)].frozen) freeze(activity, level);
    }
  }
}

bool FlowNetwork::is_free(int activity) const {
  const auto own = loads(activity);
  return std::none_of(own.begin(), own.end(),
                      [&](const LinkLoad& load) { return links_[at(load.link)].may_bind; });
}

// Leaves only those changes that others can feel: of links that may bind or might have so far, and
// flows on them. Others run at their limit.
void FlowNetwork::settle_free_flows() {
  std::size_t kept = 0;
  for (const int index : touched_links_) {
    LinkState& link = links_[at(index)];
    const bool before = std::exchange(link.may_bind, link.demand > link.capacity);
    if (before || link.may_bind) touched_links_[kept++] = index;
  }
  touched_links_.resize(kept);
  kept = 0;
  for (const int activity : added_) {
    Flow& flow = flows_[at(activity)];
    if (!flow.present) continue;
    if (!is_free(activity)) {
      added_[kept++] = activity;
      continue;
    }
    require_bandwidth(flow.limit, activity);
    levels_[at(activity)] = flow.limit;
    changed_.push_back(activity);
    ++flows_solved_;
  }
  added_.resize(kept);
}

const std::vector<int>& FlowNetwork::solve() {
  changed_.clear();
  if (!added_.empty() || !touched_links_.empty()) settle_free_flows();
  if (!added_.empty() || !touched_links_.empty()) solve_felt();
  std::sort(changed_.begin(), changed_.end());
  return changed_;
}

// Solves what the changes since the last solve can be felt by.
void FlowNetwork::solve_felt() {
  reach(restart_level());
  flows_solved_ += static_cast<std::int64_t>(reached_flows_.size());
  old_levels_.clear();
  for (const int activity : reached_flows_) old_levels_.push_back(levels_[at(activity)]);
  fill();
  for (std::size_t i = 0; i < reached_flows_.size(); ++i) {
    if (levels_[at(reached_flows_[i])] != old_levels_[i]) changed_.push_back(reached_flows_[i]);
  }
  added_.clear();
  touched_links_.clear();
  removed_level_ = std::numeric_limits<std::int64_t>::max();
}

bool FlowNetwork::equals_full_solve() const {
  FlowNetwork full(graph_);
  for (std::size_t a = 0; a < flows_.size(); ++a) {
    if (flows_[a].present) full.add(static_cast<int>(a));
  }
  full.solve();
  for (std::size_t a = 0; a < flows_.size(); ++a) {
    if (flows_[a].present && full.levels_[a] != levels_[a]) return false;
  }
  return true;
}

}  // namespace headway
