// Small random task graphs with everything the engine knows, from a seed.
#pragma once

#include <cstdint>

#include "sim/engine/task_graph.hpp"

namespace headway {

struct RandomGraphOptions {
  bool host = false;        // launches take time; some tasks make the host wait
  bool activities = false;  // with a fixed latency
  bool fluid = false;       // some of them with work on shared links
  bool moving = false;      // some instances move with the clock, some activities slow them
  bool backwards = false;   // ports may be released later than awaited: some graphs deadlock
  int instances = 12;
};

// Well-formed; without `backwards` always playable to the end.
TaskGraph random_task_graph(std::uint32_t seed, const RandomGraphOptions& options);

}  // namespace headway
