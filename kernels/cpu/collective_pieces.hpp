// A large collective as a row of small ones that give the same bits, so that whoever holds copies
// of what the other members read holds a few pieces of it, and adds them up while they are in the
// caches: as NCCL passes a message through its buffers in slices.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cpu/collectives.hpp"

namespace headway {

// Elements of a piece: 2 MiB of fp32, which a core's second-level cache nearly holds.
inline constexpr std::int64_t kPieceElements = std::int64_t{1} << 19;

// A reduce-scatter goes in reductions to each member, an all-gather in broadcasts of each.
struct CollectivePiece {
  Collective collective;
  // Where in a member's reads and writes, laid end to end, the piece begins.
  std::int64_t reads_from = 0, writes_from = 0;
  bool whole = true;  // it is the collective itself
};

// To be carried out one after another, or beside each other. Only one, the whole, where the
// collective is smaller than `most` elements, follows counts, cuts by columns or is an all-to-all.
// REQUIRES: members in the order of their ranks; their operands may be without memory.
std::vector<CollectivePiece> pieces_of(const Collective& collective,
                                       std::span<const CollectiveMember> members,
                                       std::int64_t most = kPieceElements);

// What of a member's operands belongs to the piece: parts of their memory.
CollectiveMember operands_of(const CollectivePiece& piece, const CollectiveMember& member);

}  // namespace headway
