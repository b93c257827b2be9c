// The leaves of this folder: every file defines one schedule, and the table in schedule.cpp lists
// it. A leaf states where its stages live, which shapes it takes and each rank's order; it knows
// nothing of models, durations or communication.
#pragma once

#include <string>
#include <vector>

#include "sim/program/schedule.hpp"

namespace headway::pipeline {

Schedule one_f_one_b();
Schedule gpipe();
Schedule pipedream();
Schedule interleaved();
Schedule looped_bfs();
Schedule zb_h1();
Schedule zb_h2();
Schedule zb_v();
Schedule dualpipe();
Schedule dualpipe_v();
Schedule v_half();
Schedule v_min();
Schedule chimera();

// What every schedule needs of a shape: empty, or what is wrong.
inline std::string refusal_of_counts(const ScheduleShape& shape) {
  if (shape.ranks < 1) return "needs at least 1 pipeline rank";
  if (shape.stages_per_rank < 1) return "needs at least 1 stage per rank";
  if (shape.micro_batches < 1) return "needs at least 1 micro-batch";
  return {};
}
// For schedules whose ranks hold exactly so many stages.
inline std::string refusal_of_stages(const ScheduleShape& shape, int expected) {
  std::string counts = refusal_of_counts(shape);
  if (!counts.empty()) return counts;
  if (shape.stages_per_rank == expected) return {};
  return "has " + std::to_string(expected) + (expected == 1 ? " stage" : " stages") +
         " per rank, not " + std::to_string(shape.stages_per_rank);
}

// Stage c p + r lives on rank r, for chunk c.
inline int looped_rank(int stage, const ScheduleShape& shape) { return stage % shape.ranks; }
// Stages r and 2p - 1 - r live on rank r: the path folds back on itself.
inline int folded_rank(int stage, const ScheduleShape& shape) {
  return stage < shape.ranks ? stage : 2 * shape.ranks - 1 - stage;
}

// An action and when it begins in a schedule that is laid out on a grid of equal slots. Where every
// action begins after what it needs, ranks that run theirs in the order of time cannot deadlock.
struct SlottedAction {
  int slot = 0;
  Action action;
};
std::vector<Action> in_slot_order(std::vector<SlottedAction> actions);

}  // namespace headway::pipeline
