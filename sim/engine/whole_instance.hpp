// Instances that are played as a whole: the steps of all streams, one behind the other, once all
// that they wait for is known. How, and what a device whose next instance waits for something
// unknown could still do that others would see, is found here once per variant of a template. That
// look-ahead is that of conservative parallel simulation (Chandy and Misra, 1979): where nothing
// visible can happen before the unknown becomes known, it is safe to wait.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/engine/compiled_graph.hpp"

namespace headway::engine {

// A set of columns of an instance, what it may wait for: a bit for each stream of its device, the
// host's the highest of these, and from the other end one for each of the first steps that await
// ports.
using Columns = std::uint64_t;

inline constexpr int kMostStreams = 32;
inline constexpr Columns kAllStreams = (Columns{1} << kMostStreams) - 1;

inline Columns column_of(int stream) { return Columns{1} << static_cast<unsigned>(stream); }

// A step among *values*: where each stream of the device stands, by stream, and behind them the
// slots of the instance.
struct WholeStep {
  StepTimes times;
  const Step* step = nullptr;
  StepKind kind = StepKind::kWork;
  int stream = 0;
  int sources_begin = 0, sources_end = 0;  // into WholeInstance::sources: values that it waits for
  int base = kNoIndex;                     // value; kNoIndex: the host never delays it
  int store = kNoIndex;                    // value; kNoIndex: nobody reads it
};

struct WholeInstance {
  struct Ordered {
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
  std::vector<Ordered> order;    // all steps, each behind those that it waits for
  std::vector<WholeStep> steps;  // the same without kEnter, where nobody needs it
  std::vector<int> sources;
  std::vector<Awaited> awaited;   // all ports
  std::vector<BusyTime> busy;     // of stream 0, without activities
  int tasks = 0;                  // played, without activities
  std::vector<Last> last;         // what the end of each stream with steps waits for
  std::vector<Columns> visible;   // what each step waits for that others see arrive or end
  Columns streams = 0;            // with steps
  Columns visible_waits_for = 0;  // the streams that all that is visible waits for
  int slots = 0;
  // Whether no step waits for an activity of the same instance and none moves with the clock.
  bool possible = false;
};

// By variant. REQUIRES: at most kMostStreams streams.
std::vector<WholeInstance> find_whole_instances(const CompiledGraph& compiled);

// Whether nothing visible can happen in the instance before `column` is known.
bool holds_back_all(const WholeInstance& whole, Columns column);

// The streams whose end in the instance waits for `column`.
Columns held_back(const WholeInstance& whole, Columns column);

}  // namespace headway::engine
