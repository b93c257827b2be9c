#include "sim/program/pipeline/vocabulary_order.hpp"

#include <algorithm>
#include <string>

namespace headway {
namespace {

// A slot or a pass and when it begins; slots first where both do.
struct Placed {
  int time = 0;
  bool is_slot = false;
  Action action = {};
  VocabularySlot slot = {};
};

// Which slot a part of a micro-batch stands in, counted from the one of its score.
struct Lags {
  int embed = 0, weigh = 0, announce = 0, spread = 0;
};

// A forward pass takes one unit of time and a backward pass two.
constexpr int kInterval = 3;

int divided_up(int number, int by) { return (number + by - 1) / by; }

int within(int micro_batch, int count) {
  return micro_batch >= 0 && micro_batch < count ? micro_batch : -1;
}

// `time_of` the slot of a score.
template <typename TimeOf>
void add_slots(std::vector<Placed>& placed, const Lags& lags, int micro_batches, TimeOf time_of) {
  for (int k = lags.embed; k < micro_batches + lags.spread; ++k) {
    const VocabularySlot slot = {within(k - lags.embed, micro_batches), within(k, micro_batches),
                                 within(k - lags.weigh, micro_batches),
                                 within(k - lags.announce, micro_batches),
                                 within(k - lags.spread, micro_batches)};
    if (slot != VocabularySlot{}) placed.push_back({time_of(k), true, {}, slot});
  }
}

VocabularyOrder in_order_of_time(std::vector<Placed> placed) {
  std::sort(placed.begin(), placed.end(), [](const Placed& a, const Placed& b) {
    return a.time != b.time ? a.time < b.time : a.is_slot && !b.is_slot;
  });
  VocabularyOrder order;
  order.slots.emplace_back();
  for (const Placed& one : placed) {
    if (one.is_slot) {
      order.slots.back().push_back(one.slot);
      continue;
    }
    order.actions.push_back(one.action);
    order.slots.emplace_back();
  }
  return order;
}

}  // namespace

VocabularyOrder vocabulary_parallel_order(int barriers, int rank, const ScheduleShape& shape) {
  const int p = shape.ranks, m = shape.micro_batches;
  std::vector<Placed> placed;
  for (int i = 0; i < m; ++i) {
    const int scored = kInterval * i + p;  // when the last stage's forward pass ends
    placed.push_back({kInterval * i + rank, false, {rank, ActionKind::kForward, i}, {}});
    const int backward = scored + kInterval * barriers + 2 * (p - 1 - rank);
    placed.push_back({backward, false, {rank, ActionKind::kBackward, i}, {}});
  }
  Lags lags;
  lags.embed = -divided_up(p + 2, kInterval);  // the sum of all shards has two units to arrive
  lags.weigh = 1;
  // The first slot behind the first stage's backward pass; the gradient has an interval to arrive.
  lags.announce = barriers + divided_up(2 * p, kInterval);
  lags.spread = lags.announce + 1;
  add_slots(placed, lags, m, [p](int k) { return kInterval * k + p; });
  return in_order_of_time(std::move(placed));
}

VocabularyOrder interlaced_order(int rank, const ScheduleShape& shape) {
  const int p = shape.ranks, m = shape.micro_batches;
  // An interval holds a forward and a backward pass, in this order on every other rank, and the
  // slot.
  constexpr int kPlaces = 3;
  const int distance = p - 1 - rank, first_score = (p - 1) / 2;
  const bool forward_first = distance % 2 == 1;
  std::vector<Placed> placed;
  for (int i = 0; i < m; ++i) {
    const int forward = i + first_score - distance / 2, backward = i + first_score + 1 + distance;
    placed.push_back(
        {kPlaces * forward + (forward_first ? 0 : 1), false, {rank, ActionKind::kForward, i}, {}});
    placed.push_back({kPlaces * backward + (forward_first ? 1 : 0),
                      false,
                      {rank, ActionKind::kBackward, i},
                      {}});
  }
  const Lags lags = {-1 - first_score, 0, p, p};
  add_slots(placed, lags, m, [=](int k) { return kPlaces * (k + first_score) + kPlaces - 1; });
  return in_order_of_time(std::move(placed));
}

std::string to_text(const VocabularyOrder& order) {
  std::string text;
  const auto add = [&](const std::string& token) { text += (text.empty() ? "" : " ") + token; };
  for (std::size_t k = 0; k < order.slots.size(); ++k) {
    for (const VocabularySlot& slot : order.slots[k]) {
      std::string parts;
      const auto part = [&](char letter, int micro_batch) {
        if (micro_batch < 0) return;
        parts += (parts.empty() ? "" : " ") + std::string(1, letter) + std::to_string(micro_batch);
      };
      part('e', slot.embed);
      part('s', slot.score);
      part('w', slot.weigh);
      part('a', slot.announce);
      part('d', slot.spread);
      add("[" + parts + "]");
    }
    if (k < order.actions.size()) add(to_text(order.actions[k]));
  }
  return text;
}

}  // namespace headway
