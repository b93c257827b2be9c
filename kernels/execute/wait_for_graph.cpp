#include "kernels/execute/wait_for_graph.hpp"

#include <algorithm>

namespace headway {
namespace {

struct Node {
  int rank = -1, operation = -1;
  friend bool operator==(const Node&, const Node&) = default;
};

class WaitForGraph {
 public:
  WaitForGraph(const ExecutionPlan& plan, const std::vector<std::vector<char>>& begun,
               const std::vector<std::vector<char>>& ended)
      : plan_(plan), begun_(begun), ended_(ended) {}

  // What an operation that has not ended waits for; rank -1 where nothing in the plan would end it.
  Node waits_for(Node node, std::string& why) const {
    const RankPlan& rank = plan_.ranks[static_cast<std::size_t>(node.rank)];
    const PlannedOperation& planned = rank.operations[static_cast<std::size_t>(node.operation)];
    if (!is(begun_, node)) {
      for (const Dependency& wait : planned.waits) {
        const Node other{node.rank, wait.operation};
        if (is(ended_, other)) continue;
        why = "waits for " + plan_.words(other.rank, other.operation);
        return other;
      }
    }
    if (planned.meeting < 0) return {};
    const Meeting& meeting = plan_.meetings[static_cast<std::size_t>(planned.meeting)];
    for (const int member : meeting.ranks) {
      const auto found =
          std::find_if(meeting.members.begin(), meeting.members.end(),
                       [&](const Meeting::Member& other) { return other.rank == member; });
      if (found == meeting.members.end()) {
        why = "waits for rank " + std::to_string(member) + ", which never comes";
        return {};
      }
      const Node other{member, found->operation};
      if (is(begun_, other)) continue;
      why = "waits for rank " + std::to_string(member) + " to come to it";
      return other;
    }
    return {};
  }

  // The first operation of a rank that holds it up: the first in issue order that has not ended.
  Node first_of(int rank) const {
    const auto& ended = ended_[static_cast<std::size_t>(rank)];
    const auto found = std::find(ended.begin(), ended.end(), 0);
    return found == ended.end() ? Node{} : Node{rank, static_cast<int>(found - ended.begin())};
  }

 private:
  static bool is(const std::vector<std::vector<char>>& flags, Node node) {
    return flags[static_cast<std::size_t>(node.rank)][static_cast<std::size_t>(node.operation)] !=
           0;
  }

  const ExecutionPlan& plan_;
  const std::vector<std::vector<char>>& begun_;
  const std::vector<std::vector<char>>& ended_;
};

}  // namespace

std::vector<std::string> wait_cycle(const ExecutionPlan& plan,
                                    const std::vector<std::vector<char>>& begun,
                                    const std::vector<std::vector<char>>& ended) {
  const WaitForGraph graph(plan, begun, ended);
  for (int rank = 0; rank < static_cast<int>(plan.ranks.size()); ++rank) {
    std::vector<Node> path;
    std::vector<std::string> lines;
    for (Node node = graph.first_of(rank); node.rank >= 0;) {
      const auto seen = std::find(path.begin(), path.end(), node);
      if (seen != path.end()) {
        return {lines.begin() + (seen - path.begin()), lines.end()};
      }
      path.push_back(node);
      std::string why = "waits";
      const Node next = graph.waits_for(node, why);
      lines.push_back(plan.words(node.rank, node.operation) + ": " + why);
      node = next;
    }
    if (!lines.empty()) return lines;
  }
  return {};
}

std::string waiting_words(const ExecutionPlan& plan, const std::vector<std::vector<char>>& begun,
                          const std::vector<std::vector<char>>& ended, int rank) {
  const WaitForGraph graph(plan, begun, ended);
  const Node node = graph.first_of(rank);
  if (node.rank < 0) return "rank " + std::to_string(rank) + " had finished";
  std::string why = "waits";
  graph.waits_for(node, why);
  return plan.words(node.rank, node.operation) + ": " + why;
}

}  // namespace headway
