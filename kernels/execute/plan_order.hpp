// The order that a plan imposes, read off it without running it: every operation's clock says how
// far each stream of each rank must have come before it (vector clocks: Fidge, Mattern, 1988). It
// proves that a plan ends (no cycle of waits), and that its numbers cannot depend on timing: any
// two operations that touch the same memory, one of them writing, are ordered.
#pragma once

#include <string>
#include <vector>

#include "kernels/execute/execution_plan.hpp"

namespace headway {

class PlanOrder {
 public:
  // `plan` outlives the order.
  explicit PlanOrder(const ExecutionPlan& plan);

  // False where some operations wait for each other, or for someone who never comes.
  bool ends() const { return ends_; }
  // Whether `a` has ended when `b` starts, of the same rank, in every run. REQUIRES: ends().
  bool before(int rank, int a, int b) const;

  // By rank and operation: which come to begin and to end, in every run.
  const std::vector<std::vector<char>>& begun() const { return begun_; }
  const std::vector<std::vector<char>>& ended() const { return ended_; }

  // All operations in one of the orders that are possible, members of a meeting side by side.
  // REQUIRES: ends().
  const std::vector<Meeting::Member>& possible_order() const { return played_; }

  // Pairs of operations that share memory and are not ordered, one a line: "rank 0, ... and rank 0,
  // ... share hidden, and nothing orders them". REQUIRES: ends().
  std::vector<std::string> unordered() const;

 private:
  struct Access {
    int operation = 0;
    bool writes = false;
  };
  std::vector<std::vector<Access>> accesses(int rank) const;  // by allocation, in issue order
  std::size_t node(int rank, int operation) const {
    return first_node_[static_cast<std::size_t>(rank)] + static_cast<std::size_t>(operation);
  }
  int stream(int rank, int operation) const;
  void run();

  const ExecutionPlan& plan_;
  std::size_t streams_ = 0;  // of all ranks
  std::vector<std::size_t> first_node_;
  std::vector<int> position_;  // by node: which operation of its stream, from 1
  std::vector<int> clocks_;    // by node and stream: operations of it that have ended before
  std::vector<Meeting::Member> played_;
  std::vector<std::vector<char>> begun_, ended_;
  bool ends_ = false;
};

}  // namespace headway
