#include "kernels/execute/happens_before.hpp"

#include <algorithm>

#include "sim/core/quantity.hpp"

namespace headway {
namespace {

const char* name_of(WaitKind kind) {
  switch (kind) {
    case WaitKind::kStream:
      return "stream order";
    case WaitKind::kAfter:
      return "after";
    case WaitKind::kJoin:
      return "join";
    case WaitKind::kPort:
      return "port";
    case WaitKind::kHost:
      return "host";
  }
  return "";
}

}  // namespace

std::vector<std::string> order_violations(const ExecutionPlan& plan,
                                          const std::vector<std::vector<MeasuredTimes>>& times) {
  std::vector<std::string> violations;
  for (std::size_t r = 0; r < plan.ranks.size(); ++r) {
    const int rank = static_cast<int>(r);
    for (std::size_t o = 0; o < plan.ranks[r].operations.size(); ++o) {
      const MeasuredTimes& mine = times[r][o];
      for (const Dependency& wait : plan.ranks[r].operations[o].waits) {
        const MeasuredTimes& other = times[r][static_cast<std::size_t>(wait.operation)];
        if (other.end <= mine.start) continue;
        violations.push_back(
            plan.words(rank, static_cast<int>(o)) + " started " + to_text(other.end - mine.start) +
            " before " + plan.words(rank, wait.operation) + " ended (" + name_of(wait.kind) + ")");
      }
    }
  }
  for (const Meeting& meeting : plan.meetings) {
    for (const Meeting::Member& member : meeting.members) {
      for (const Meeting::Member& other : meeting.members) {
        const MeasuredTimes& mine = times[static_cast<std::size_t>(member.rank)]
                                         [static_cast<std::size_t>(member.operation)];
        const MeasuredTimes& theirs =
            times[static_cast<std::size_t>(other.rank)][static_cast<std::size_t>(other.operation)];
        if (theirs.start <= mine.end) continue;
        violations.push_back(plan.words(member.rank, member.operation) + " ended before " +
                             plan.words(other.rank, other.operation) + " had come (rendezvous)");
      }
    }
  }
  return violations;
}

std::int64_t order_demands(const ExecutionPlan& plan) {
  std::int64_t demands = 0;
  for (const RankPlan& rank : plan.ranks) {
    for (const PlannedOperation& operation : rank.operations) {
      demands += static_cast<std::int64_t>(operation.waits.size());
    }
  }
  for (const Meeting& meeting : plan.meetings) {
    const auto members = static_cast<std::int64_t>(meeting.members.size());
    demands += members * (members - 1);
  }
  return demands;
}

}  // namespace headway
