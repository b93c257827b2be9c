// Instances that are played as a whole: all steps of all streams, one behind the other, once all
// that they wait for is known. Which steps those are, and what a device whose next instance waits
// for something unknown could still do that others would see, is found here once per variant of a
// template. That look-ahead is that of conservative parallel simulation (Chandy and Misra, 1979):
// where nothing visible can happen before the unknown becomes known, it is safe to wait.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/engine/compiled_graph.hpp"

namespace headway::engine {

// A set of columns of an instance, what it may wait for: a bit for each stream of its device, the
// host's the highest of these, and from the other end a bit for each step that awaits ports.
using Columns = std::uint64_t;

struct WholeInstance {
  struct Played {
    const Step* step = nullptr;
    int stream = 0;
  };
  struct Awaited {
    int slot = 0;  // in Instance::awaited
    Columns column = 0;
  };
  struct Last {
    int stream = 0;
    Columns waits_for = 0;
  };
  std::vector<Played> steps;      // each behind those that it waits for
  std::vector<Awaited> awaited;   // all ports
  std::vector<Last> last;         // what the end of each stream with steps waits for
  std::vector<Columns> visible;   // what each step waits for whose end or arrival others can see
  Columns streams = 0;            // with steps
  Columns visible_waits_for = 0;  // streams that all that is visible waits for
  int slots = 0;
  // Whether no step waits for an activity of the same instance and none moves with the clock.
  bool possible = false;
};

inline constexpr int kMostStreams = 32;
inline constexpr Columns kAllStreams = (Columns{1} << kMostStreams) - 1;

inline Columns column_of(int stream) { return Columns{1} << static_cast<unsigned>(stream); }

// By variant. REQUIRES: at most kMostStreams streams.
std::vector<WholeInstance> find_whole_instances(const CompiledGraph& compiled);

// Whether nothing visible can happen in the instance before `column` is known.
bool holds_back_all(const WholeInstance& whole, Columns column);

// The streams whose end in the instance waits for `column`.
Columns held_back(const WholeInstance& whole, Columns column);

}  // namespace headway::engine
