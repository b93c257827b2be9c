#include "sim/program/pipeline/overlapped_pairs.hpp"

#include <algorithm>

namespace headway {

std::vector<Action> with_overlapped_pairs(const std::vector<Action>& actions) {
  const auto paired = [](const Action& action) { return action.overlaps_next; };
  if (std::any_of(actions.begin(), actions.end(), paired)) return actions;
  std::vector<Action> result;
  for (std::size_t i = 0; i < actions.size(); ++i) {
    const bool pairs = actions[i].kind == ActionKind::kBackward && i + 1 < actions.size() &&
                       actions[i + 1].kind == ActionKind::kForward;
    if (pairs) {
      result.push_back(actions[i + 1]);
      result.back().overlaps_next = true;
    }
    result.push_back(actions[i]);
    if (pairs) ++i;
  }
  return result;
}

}  // namespace headway
