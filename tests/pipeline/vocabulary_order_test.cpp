// The slots of a vocabulary that is spread over the pipeline: text grids, and what must hold of
// every shape (arXiv 2411.05288, sections 5 and 6).
#include "sim/program/pipeline/vocabulary_order.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace headway {
namespace {

using OrderOf = std::function<VocabularyOrder(int rank, const ScheduleShape&)>;

std::map<std::string, OrderOf> orders() {
  return {{"parallel-1",
           [](int rank, const ScheduleShape& shape) {
             return vocabulary_parallel_order(2, rank, shape);
           }},
          {"parallel-2",
           [](int rank, const ScheduleShape& shape) {
             return vocabulary_parallel_order(1, rank, shape);
           }},
          {"interlaced", interlaced_order}};
}

// In order: slots are the same on all ranks, and each part of a micro-batch comes once.
std::vector<VocabularySlot> all_slots(const VocabularyOrder& order) {
  std::vector<VocabularySlot> slots;
  for (const auto& some : order.slots) slots.insert(slots.end(), some.begin(), some.end());
  return slots;
}

int most_in_flight(const std::vector<Action>& actions) {
  int now = 0, most = 0;
  for (const Action& action : actions) {
    now += action.kind == ActionKind::kForward ? 1 : -1;
    most = std::max(most, now);
  }
  return most;
}

// Plays the orders: an action or slot runs when what it needs has run. Empty, or who is stuck.
class Player {
 public:
  Player(const OrderOf& order_of, const ScheduleShape& shape) : shape_(shape) {
    for (int rank = 0; rank < shape.ranks; ++rank) orders_.push_back(order_of(rank, shape));
  }

  std::string run() {
    std::vector<std::size_t> next(orders_.size(), 0), slot(orders_.size(), 0);
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t rank = 0; rank < orders_.size(); ++rank) {
        const VocabularyOrder& order = orders_[rank];
        for (;;) {
          const auto& slots = order.slots[next[rank]];
          if (slot[rank] < slots.size()) {
            if (!can_run(slots[slot[rank]])) break;
            note(slots[slot[rank]++], static_cast<int>(rank));
          } else if (next[rank] < order.actions.size()) {
            if (!can_run(order.actions[next[rank]])) break;
            done_.insert({to_text(order.actions[next[rank]]), 0});
            ++next[rank];
            slot[rank] = 0;
          } else {
            break;
          }
          moved = true;
        }
      }
    }
    for (std::size_t rank = 0; rank < orders_.size(); ++rank) {
      if (next[rank] < orders_[rank].actions.size()) return "rank " + std::to_string(rank);
    }
    return {};
  }

 private:
  bool done(const std::string& what) const { return done_.contains(what); }
  // All ranks have done their part.
  bool met(char part, int micro_batch) const {
    const auto found = done_.find(part + std::to_string(micro_batch));
    return found != done_.end() && found->second == shape_.ranks;
  }
  bool can_run(const Action& action) const {
    const std::string i = std::to_string(action.micro_batch);
    if (action.kind == ActionKind::kForward) {
      if (action.stage == 0) return met('e', action.micro_batch);
      return done(std::to_string(action.stage - 1) + "F" + i);
    }
    if (action.stage < shape_.ranks - 1) return done(std::to_string(action.stage + 1) + "B" + i);
    return met('s', action.micro_batch) && done(std::to_string(action.stage) + "F" + i);
  }
  // A score needs the last stage's output, a gradient all scores, the word table's the first
  // stage's.
  bool can_run(const VocabularySlot& slot) const {
    const std::string last = std::to_string(shape_.ranks - 1);
    if (slot.score >= 0 && !done(last + "F" + std::to_string(slot.score))) return false;
    if (slot.weigh >= 0 && slot.weigh != slot.score && !met('s', slot.weigh)) return false;
    if (slot.spread >= 0 && slot.spread != slot.announce && !met('a', slot.spread)) return false;
    return slot.announce < 0 || done("0B" + std::to_string(slot.announce));
  }
  void note(const VocabularySlot& slot, int) {
    if (slot.embed >= 0) ++done_["e" + std::to_string(slot.embed)];
    if (slot.score >= 0) ++done_["s" + std::to_string(slot.score)];
    if (slot.announce >= 0) ++done_["a" + std::to_string(slot.announce)];
  }

  ScheduleShape shape_;
  std::vector<VocabularyOrder> orders_;
  std::map<std::string, int> done_;
};

TEST(VocabularyOrder, HasTheSameSlotsOnAllRanksAndEachPartOnce) {
  for (const auto& [name, order_of] : orders()) {
    for (int p = 2; p <= 9; ++p) {
      for (const int m : {1, 2, p, 2 * p + 1}) {
        const ScheduleShape shape = {p, 1, m};
        const std::vector<VocabularySlot> slots = all_slots(order_of(0, shape));
        for (int rank = 1; rank < p; ++rank) {
          EXPECT_EQ(all_slots(order_of(rank, shape)), slots) << name << " p" << p << " m" << m;
        }
        for (int VocabularySlot::*part :
             {&VocabularySlot::embed, &VocabularySlot::score, &VocabularySlot::weigh,
              &VocabularySlot::announce, &VocabularySlot::spread}) {
          int expected = 0;
          for (const VocabularySlot& slot : slots) {
            if (slot.*part >= 0) {
              EXPECT_EQ(slot.*part, expected++) << name;
            }
          }
          EXPECT_EQ(expected, m) << name << " p" << p;
        }
        EXPECT_EQ(Player(order_of, shape).run(), "") << name << " p" << p << " m" << m;
      }
    }
  }
}

// p - r + barriers (section 5.2); 3 p / 2 where all ranks stop for the vocabulary (section 6.4).
TEST(VocabularyOrder, HoldsOneMoreMicroBatchForEachBarrier) {
  for (const int p : {2, 4, 8}) {
    const ScheduleShape shape = {p, 1, 6 * p};
    for (int rank = 0; rank < p; ++rank) {
      for (const int barriers : {1, 2}) {
        EXPECT_EQ(most_in_flight(vocabulary_parallel_order(barriers, rank, shape).actions),
                  p - rank + barriers);
      }
    }
    EXPECT_EQ(most_in_flight(interlaced_order(0, shape).actions), 3 * p / 2);
  }
}

TEST(VocabularyOrder, IsA1F1BWithSlots) {
  EXPECT_EQ(to_text(vocabulary_parallel_order(1, 0, {2, 1, 3})),
            "[e0] [e1] 0F0 [e2 s0] 0F1 [s1 w0] 0F2 0B0 [s2 w1] 0B1 [w2 a0] 0B2 [a1 d0] [a2 d1] "
            "[d2]");
  EXPECT_EQ(to_text(vocabulary_parallel_order(2, 1, {2, 1, 3})),
            "[e0] [e1] 1F0 [e2 s0] 1F1 [s1 w0] 1F2 [s2 w1] 1B0 [w2] 1B1 [a0] 1B2 [a1 d0] [a2 d1] "
            "[d2]");
  EXPECT_EQ(to_text(interlaced_order(0, {2, 1, 3})),
            "[e0] 0F0 [e1 s0 w0] 0F1 [e2 s1 w1] 0F2 0B0 [s2 w2 a0 d0] 0B1 [a1 d1] 0B2 [a2 d2]");
}

}  // namespace
}  // namespace headway
