#include "sim/engine/whole_instance.hpp"

#include <algorithm>
#include <cstddef>

namespace headway::engine {
namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

constexpr int kColumns = 64;

// Plays the streams of one variant against each other, without times.
class Ordering {
 public:
  Ordering(const CompiledGraph& compiled, int variant) : compiled_(compiled) {
    const auto variants = at(compiled.variants);
    for (int s = 0; s < compiled.streams; ++s) {
      streams_.push_back(compiled.stream_steps[at(s) * variants + at(variant)]);
    }
    whole_.slots = streams_.front().slots;
    whole_.possible = variant % 2 == 0;
    moves_ = variant % 2 != 0;
    slots_.assign(at(whole_.slots), kUnknown);
  }

  WholeInstance run() {
    std::vector<const Step*> next;
    std::vector<Columns> waits_for;  // what the last step of each stream so far waits for
    for (int s = 0; s < compiled_.streams; ++s) {
      next.push_back(streams_[at(s)].begin);
      waits_for.push_back(column_of(s));
    }
    for (bool goes_on = true; goes_on;) {
      goes_on = false;
      for (int s = 0; s < compiled_.streams; ++s) {
        for (; next[at(s)] != streams_[at(s)].end && known(*next[at(s)]); ++next[at(s)]) {
          add(*next[at(s)], s, waits_for[at(s)]);
          goes_on = true;
        }
      }
    }
    for (int s = 0; s < compiled_.streams; ++s) {
      if (streams_[at(s)].begin == streams_[at(s)].end) continue;
      whole_.streams |= column_of(s);
      whole_.last.push_back({s, waits_for[at(s)]});
    }
    whole_.visible_waits_for = kAllStreams;
    for (const Columns columns : whole_.visible) whole_.visible_waits_for &= columns;
    return std::move(whole_);
  }

 private:
  // Every step waits for its own stream, so that none has an empty set.
  static constexpr Columns kUnknown = 0;

  bool known(const Step& step) const {
    for (int w = step.waits_begin; w < step.waits_end; ++w) {
      if (slots_[at(compiled_.waits[at(w)])] == kUnknown) return false;
    }
    return step.base_slot == kNone || slots_[at(step.base_slot)] != kUnknown;
  }

  void add(const Step& step, int stream, Columns& waits_for) {
    whole_.steps.push_back({&step, stream});
    for (int w = step.waits_begin; w < step.waits_end; ++w) {
      waits_for |= slots_[at(compiled_.waits[at(w)])];
    }
    if (step.base_slot != kNone) waits_for |= slots_[at(step.base_slot)];
    if (step.awaits_begin != step.awaits_end) waits_for |= await(step);
    if (step.store_slot != kNone) slots_[at(step.store_slot)] = waits_for;
    if (step.kind == StepKind::kActivity) {
      const bool last = &step + 1 == streams_[at(stream)].end;
      whole_.possible &= last && step.store_slot == kNone;
    }
    if (step.kind == StepKind::kActivity || step.releases_begin != step.releases_end ||
        (moves_ && step.kind == StepKind::kWork)) {
      whole_.visible.push_back(waits_for);
    }
  }

  // The column of a step that awaits ports; 0 where there are too many of them.
  Columns await(const Step& step) {
    const int bit = kColumns - ++awaiting_steps_;
    const Columns column = bit >= kMostStreams ? column_of(bit) : 0;
    for (int p = step.awaits_begin; p < step.awaits_end; ++p) {
      whole_.awaited.push_back({compiled_.ports[at(p)], column});
    }
    return column;
  }

  const CompiledGraph& compiled_;
  std::vector<StreamSteps> streams_;
  std::vector<Columns> slots_;  // what each waits for
  int awaiting_steps_ = 0;
  bool moves_ = false;
  WholeInstance whole_;
};

}  // namespace

std::vector<WholeInstance> find_whole_instances(const CompiledGraph& compiled) {
  std::vector<WholeInstance> wholes;
  wholes.reserve(at(compiled.variants));
  for (int variant = 0; variant < compiled.variants; ++variant) {
    wholes.push_back(Ordering(compiled, variant).run());
  }
  return wholes;
}

bool holds_back_all(const WholeInstance& whole, Columns column) {
  return std::all_of(whole.visible.begin(), whole.visible.end(),
                     [&](Columns waits_for) { return (waits_for & column) != 0; });
}

Columns held_back(const WholeInstance& whole, Columns column) {
  Columns streams = 0;
  for (const WholeInstance::Last& last : whole.last) {
    if ((last.waits_for & column) != 0) streams |= column_of(last.stream);
  }
  return streams;
}

}  // namespace headway::engine
