// The engine once more, as plainly as it can be said: every task of every instance is written out,
// the clock goes from event to event, and at each event everything is looked at and every task and
// flow is timed again. It is the oracle of the engine's tests; it shares no code with the engine.
#pragma once

#include <vector>

#include "sim/engine/task_graph.hpp"
#include "sim/engine/timeline.hpp"

namespace headway {

// The same timeline as simulate(graph, {Detail::kTasks, causes}), without `deadlock` and `events`;
// `finished` says whether every task ended. Totals are right only then.
struct ReferenceRun {
  Timeline timeline;
  bool finished = false;
};
ReferenceRun simulate_plainly(const TaskGraph& graph, int causes);

// Max-min rates of the given activities, link by link over all flows, in integers
// (flow_network.hpp).
std::vector<std::int64_t> fair_rates(const TaskGraph& graph, const std::vector<int>& activities);

}  // namespace headway
