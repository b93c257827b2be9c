#include "kernels/execute/plan_order.hpp"

#include <algorithm>

namespace headway {

PlanOrder::PlanOrder(const ExecutionPlan& plan) : plan_(plan) {
  std::size_t nodes = 0;
  for (const RankPlan& rank : plan.ranks) {
    first_node_.push_back(nodes);
    nodes += rank.operations.size();
    begun_.emplace_back(rank.operations.size(), 0);
    ended_.emplace_back(rank.operations.size(), 0);
    streams_ += rank.streams.size();
  }
  position_.resize(nodes);
  clocks_.assign(nodes * streams_, 0);
  for (std::size_t r = 0; r < plan.ranks.size(); ++r) {
    for (const std::vector<int>& stream : plan.ranks[r].streams) {
      for (std::size_t i = 0; i < stream.size(); ++i) {
        position_[node(static_cast<int>(r), stream[i])] = static_cast<int>(i) + 1;
      }
    }
  }
  run();
}

int PlanOrder::stream(int rank, int operation) const {
  const RankPlan& of = plan_.ranks[static_cast<std::size_t>(rank)];
  return rank * static_cast<int>(of.streams.size()) +
         of.operations[static_cast<std::size_t>(operation)].operation->stream;
}

// Plays the plan in any legal order. Members of a meeting start together, so each gets the clocks
// of all; an operation's own end is passed on by those that wait for it.
void PlanOrder::run() {
  std::vector<std::vector<std::size_t>> next(position_.size());
  std::vector<int> missing(position_.size());
  std::vector<std::pair<int, int>> where(position_.size());
  for (std::size_t r = 0; r < plan_.ranks.size(); ++r) {
    const int rank = static_cast<int>(r);
    for (std::size_t o = 0; o < plan_.ranks[r].operations.size(); ++o) {
      const std::size_t to = node(rank, static_cast<int>(o));
      where[to] = {rank, static_cast<int>(o)};
      for (const Dependency& wait : plan_.ranks[r].operations[o].waits) {
        next[node(rank, wait.operation)].push_back(to);
        ++missing[to];
      }
    }
  }
  const auto merge = [&](std::size_t into, std::size_t from) {
    for (std::size_t s = 0; s < streams_; ++s) {
      int& clock = clocks_[into * streams_ + s];
      clock = std::max(clock, clocks_[from * streams_ + s]);
    }
  };
  std::vector<std::size_t> ready, arrived(plan_.meetings.size());
  for (std::size_t n = 0; n < missing.size(); ++n) {
    if (missing[n] == 0) ready.push_back(n);
  }
  const auto end = [&](std::size_t at) {
    played_.push_back({where[at].first, where[at].second});
    ended_[static_cast<std::size_t>(where[at].first)][static_cast<std::size_t>(where[at].second)] =
        1;
    const auto own = static_cast<std::size_t>(stream(where[at].first, where[at].second));
    for (const std::size_t to : next[at]) {
      merge(to, at);
      int& clock = clocks_[to * streams_ + own];
      clock = std::max(clock, position_[at]);
      if (--missing[to] == 0) ready.push_back(to);
    }
  };
  while (!ready.empty()) {
    const std::size_t at = ready.back();
    ready.pop_back();
    const auto [rank, operation] = where[at];
    begun_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(operation)] = 1;
    const int index = plan_.ranks[static_cast<std::size_t>(rank)]
                          .operations[static_cast<std::size_t>(operation)]
                          .meeting;
    if (index < 0) {
      end(at);
      continue;
    }
    const Meeting& meeting = plan_.meetings[static_cast<std::size_t>(index)];
    if (++arrived[static_cast<std::size_t>(index)] < meeting.ranks.size()) continue;
    const std::size_t first = node(meeting.members[0].rank, meeting.members[0].operation);
    for (const Meeting::Member& member : meeting.members) {
      merge(first, node(member.rank, member.operation));
    }
    for (const Meeting::Member& member : meeting.members) {
      merge(node(member.rank, member.operation), first);
    }
    for (const Meeting::Member& member : meeting.members) end(node(member.rank, member.operation));
  }
  ends_ = played_.size() == position_.size();
}

bool PlanOrder::before(int rank, int a, int b) const {
  const auto of = static_cast<std::size_t>(stream(rank, a));
  return clocks_[node(rank, b) * streams_ + of] >= position_[node(rank, a)];
}

std::vector<std::vector<PlanOrder::Access>> PlanOrder::accesses(int rank) const {
  const RankPlan& plan = plan_.ranks[static_cast<std::size_t>(rank)];
  std::vector<std::vector<Access>> found(plan.allocations.size());
  for (std::size_t o = 0; o < plan.operations.size(); ++o) {
    const auto touch = [&](int allocation, bool writes) {
      auto& list = found[static_cast<std::size_t>(allocation)];
      const int operation = static_cast<int>(o);
      if (list.empty() || list.back().operation != operation) list.push_back({operation, false});
      if (writes) list.back().writes = true;
    };
    for (const int read : plan.operations[o].reads) touch(read, false);
    for (const int write : plan.operations[o].writes) touch(write, true);
  }
  return found;
}

std::vector<std::string> PlanOrder::unordered() const {
  std::vector<std::string> lines;
  for (int rank = 0; rank < static_cast<int>(plan_.ranks.size()); ++rank) {
    const auto touched = accesses(rank);
    for (std::size_t a = 0; a < touched.size(); ++a) {
      for (std::size_t i = 0; i < touched[a].size(); ++i) {
        for (std::size_t j = i + 1; j < touched[a].size(); ++j) {
          const Access &first = touched[a][i], &second = touched[a][j];
          if (!first.writes && !second.writes) continue;
          if (before(rank, first.operation, second.operation) ||
              before(rank, second.operation, first.operation)) {
            continue;
          }
          const int family =
              plan_.ranks[static_cast<std::size_t>(rank)].allocations[a].buffer.family;
          lines.push_back(plan_.words(rank, first.operation) + " and " +
                          plan_.words(rank, second.operation) + " share " +
                          plan_.program->buffers[static_cast<std::size_t>(family)].name +
                          ", and nothing orders them");
        }
      }
    }
  }
  return lines;
}

}  // namespace headway
