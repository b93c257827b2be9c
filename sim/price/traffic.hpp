// Bytes that a rank sends and receives in a step, by what they are for. Collectives count what a
// ring moves, which no algorithm can undercut by much (facts 4.1 and 5): an all-reduce of B bytes
// over n ranks 2 (n-1)/n B out and as much in, an all-gather, reduce-scatter or all-to-all (n-1)/n
// B. How they really travel, and how long that takes, is sim/cost's.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/core/units.hpp"
#include "sim/program/program.hpp"

namespace headway {

// What each rank of a group sends, and receives, in one collective; broadcast and reduce on average
// over the group. A send only sends, a receive only receives.
Bytes sent_bytes(const Collective& collective, int group_size);
Bytes received_bytes(const Collective& collective, int group_size);

struct TrafficLine {
  Cause cause = Cause::kOther;
  CollectiveKind kind = CollectiveKind::kAllReduce;
  std::string group;       // family of the process groups; of a message its axis
  int size = 1;            // ranks in the group; of a message 2
  std::int64_t count = 0;  // per step
  Bytes sent, received;    // per step
};

// Of one rank of this kind, by cause, kind and group. What stays on the rank (groups of one) is
// left out.
std::vector<TrafficLine> traffic(const Program& program, const RankKind& kind);

}  // namespace headway
