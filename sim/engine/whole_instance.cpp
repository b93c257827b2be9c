#include "sim/engine/whole_instance.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace headway::engine {
namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

constexpr int kColumns = 64;

// Plays the streams of one variant against each other, without times.
class Ordering {
 public:
  Ordering(const CompiledGraph& compiled, int variant) : compiled_(compiled) {
    for (int s = 0; s < compiled.streams; ++s) {
      streams_.push_back(compiled.stream_steps[at(s * compiled.variants + variant)]);
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
    return step.base_slot == kNoIndex || slots_[at(step.base_slot)] != kUnknown;
  }

  void add(const Step& step, int stream, Columns& waits_for) {
    whole_.order.push_back({&step, stream});
    for (int w = step.waits_begin; w < step.waits_end; ++w) {
      waits_for |= slots_[at(compiled_.waits[at(w)])];
    }
    if (step.base_slot != kNoIndex) waits_for |= slots_[at(step.base_slot)];
    if (step.awaits_begin != step.awaits_end) waits_for |= await(step);
    if (step.store_slot != kNoIndex) slots_[at(step.store_slot)] = waits_for;
    const bool activity = step.kind == StepKind::kActivity;
    if (activity) {
      const bool last = &step + 1 == streams_[at(stream)].end;
      whole_.possible &= last && step.store_slot == kNoIndex;
    }
    if (activity || step.releases_begin != step.releases_end ||
        (moves_ && step.kind == StepKind::kWork)) {
      whole_.visible.push_back(waits_for);
    }
  }

  // The column of a step that awaits ports; none where there are too many of them.
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

// Turns the ordered steps into steps among values. A slot is read where its stream stands as long
// as that has not gone on; only other slots are stored.
class Valuation {
 public:
  Valuation(const CompiledGraph& compiled, WholeInstance& whole)
      : compiled_(compiled),
        whole_(whole),
        last_(at(compiled.streams), nullptr),
        owner_(at(whole.slots)),
        read_(at(whole.slots), false) {}

  void run() {
    for (const auto& [step, stream] : whole_.order) add(*step, stream);
    // Who is read later is known only now.
    std::vector<WholeStep> kept;
    for (WholeStep& step : whole_.steps) {
      if (step.store != kNoIndex && !read_[at(step.store - compiled_.streams)])
        step.store = kNoIndex;
      if (step.kind != StepKind::kEnter || step.store != kNoIndex) kept.push_back(step);
    }
    whole_.steps = std::move(kept);
  }

 private:
  void add(const Step& step, int stream) {
    WholeStep added;
    added.times = step;
    added.step = &step;
    added.kind = step.kind;
    added.stream = stream;
    added.sources_begin = static_cast<int>(whole_.sources.size());
    for (int w = step.waits_begin; w < step.waits_end; ++w) {
      whole_.sources.push_back(source_of(compiled_.waits[at(w)]));
    }
    added.sources_end = static_cast<int>(whole_.sources.size());
    if (step.base_slot != kNoIndex) added.base = stored(step.base_slot);
    if (step.store_slot != kNoIndex) {
      added.store = compiled_.streams + step.store_slot;
      owner_[at(step.store_slot)] = {&step, stream};
    }
    last_[at(stream)] = &step;
    whole_.steps.push_back(added);
    if (step.kind != StepKind::kWork) return;
    whole_.tasks += step.task_count;
    for (int b = step.busy_begin; stream == 0 && b < step.busy_end; ++b) {
      add_busy(compiled_.busy[at(b)]);
    }
  }

  int source_of(int slot) {
    const auto& [owner, stream] = owner_[at(slot)];
    return last_[at(stream)] == owner ? stream : stored(slot);
  }
  int stored(int slot) {
    read_[at(slot)] = true;
    return compiled_.streams + slot;
  }

  void add_busy(const BusyTime& time) {
    const auto found = std::find_if(whole_.busy.begin(), whole_.busy.end(),
                                    [&](const BusyTime& busy) { return busy.cause == time.cause; });
    if (found == whole_.busy.end()) {
      whole_.busy.push_back(time);
    } else {
      found->duration += time.duration;
    }
  }

  const CompiledGraph& compiled_;
  WholeInstance& whole_;
  std::vector<const Step*> last_;              // of each stream, so far
  std::vector<WholeInstance::Ordered> owner_;  // of each slot
  std::vector<bool> read_;                     // slots that must be stored
};

}  // namespace

std::vector<WholeInstance> find_whole_instances(const CompiledGraph& compiled) {
  std::vector<WholeInstance> wholes;
  wholes.reserve(at(compiled.variants));
  for (int variant = 0; variant < compiled.variants; ++variant) {
    wholes.push_back(Ordering(compiled, variant).run());
    if (wholes.back().possible) Valuation(compiled, wholes.back()).run();
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
