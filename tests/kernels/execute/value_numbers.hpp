// What a plan computes, without computing it: every value gets a number, equal for equal operations
// on equal values (value numbering: Cocke 1970), and what is added into a buffer is a set, whatever
// its order. Two plans whose results have the same numbers give the same results, up to the
// rounding of sums.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "kernels/execute/plan_order.hpp"

namespace headway {

// Numbers are shared by all plans that use the same table.
class ValueTable {
 public:
  using Key = std::vector<std::int64_t>;

  std::int64_t operation(const Operation& operation);
  std::int64_t number(const Key& key);
  std::int64_t sum(std::int64_t base, std::int64_t added);

 private:
  struct Sum {
    std::int64_t base = 0;
    std::vector<std::int64_t> added;  // sorted
  };
  std::vector<Operation> operations_;
  std::map<Key, std::int64_t> numbers_;
  std::map<std::int64_t, Sum> sums_;
};

// The numbers of what counts: losses, gradients as the optimizer reads them, and what the
// persistent buffers hold in the end. REQUIRES: order.ends() and nothing is unordered, so that
// every possible order computes the same.
std::vector<ValueTable::Key> results(const ExecutionPlan& plan, const PlanOrder& order,
                                     ValueTable& table);

// Whether the operation adds to what the buffer holds, so that the order of two of them does not
// matter.
bool accumulates(const TemplateOperation& operation, const BufferRef& buffer);

}  // namespace headway
