// The order of 1F1B where word table, head and loss are spread over all pipeline ranks (Yeung et
// al., arXiv 2411.05288): between a rank's forward and backward passes stand slots, the same on all
// ranks, in which they work on the vocabulary together. Passes and slots are laid out in time, a
// micro-batch every three units (a backward pass takes two), so that whatever is needed comes
// earlier and no rank order can deadlock.
#pragma once

#include <vector>

#include "sim/program/schedule.hpp"

namespace headway {

// What a slot does on every rank, each for a micro-batch; -1: not in this slot.
struct VocabularySlot {
  int embed = -1;     // looks up its tokens
  int score = -1;     // logits of what the last stage has computed
  int weigh = -1;     // gradients of the head's shard
  int announce = -1;  // the first stage sends the gradient of what was looked up
  int spread = -1;    // gradient of the word table's shard
  friend bool operator==(const VocabularySlot&, const VocabularySlot&) = default;
};

struct VocabularyOrder {
  std::vector<Action> actions;
  // The slots before the action of that index; the last entry: behind all actions.
  std::vector<std::vector<VocabularySlot>> slots;
};
// "0F0 [e2 s0] 0B0": for tests; e embed, s score, w weigh, a announce, d spread.
std::string to_text(const VocabularyOrder& order);

// With one barrier (the paper's algorithm 2) the input's gradient leaves with the scores' slot,
// with two (algorithm 1) with the next one's; the last stage's backward pass comes so many
// intervals after its forward pass, and so many more micro-batches are in flight: p - r + barriers.
// REQUIRES: one stage per rank.
VocabularyOrder vocabulary_parallel_order(int barriers, int rank, const ScheduleShape& shape);

// All ranks stop for the vocabulary between passes, as one tensor-parallel group; a micro-batch's
// forward pass advances two ranks an interval, its backward pass one: 3 p / 2 in flight (the
// interlaced pipeline of nnScaler).
VocabularyOrder interlaced_order(int rank, const ScheduleShape& shape);

}  // namespace headway
