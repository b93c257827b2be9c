// How much memory this process has come to hold, as the system counts it (VmHWM of
// /proc/self/status).
#pragma once

#include "sim/core/units.hpp"

namespace headway {

class ResidentMemory {
 public:
  // Gives back what nobody uses, makes the libraries take what they keep, and counts from there.
  ResidentMemory();
  // By how much the largest resident memory since then exceeds that of the beginning.
  Bytes grown() const;

 private:
  std::int64_t before_ = 0;
};

// Lets freed memory stay with the process, so that a step does not pay for fresh pages again and
// again. Call once, at the start.
void keep_freed_memory();

}  // namespace headway
