#include <algorithm>

#include "sim/program/pipeline/leaves.hpp"

namespace headway::pipeline {

std::vector<Action> in_slot_order(std::vector<SlottedAction> actions) {
  std::stable_sort(actions.begin(), actions.end(),
                   [](const SlottedAction& a, const SlottedAction& b) { return a.slot < b.slot; });
  std::vector<Action> result;
  result.reserve(actions.size());
  for (const SlottedAction& one : actions) result.push_back(one.action);
  return result;
}

}  // namespace headway::pipeline
