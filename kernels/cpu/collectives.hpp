// What collectives compute: given the buffers of all members, in the order of their ranks in the
// group, each member's results. Reductions add in that order, so that every run gives the same
// bits.
//
// A member may give several buffers: they count as one array, laid end to end and padded with zeros
// to the collective's size. A single matrix that is gathered or scattered along its columns (the
// other shape is the same number of rows) is cut by columns, else by rows. Where the shares follow
// counts, each member gives one buffer and its counts.
#pragma once

#include <span>
#include <vector>

#include "kernels/cpu/operand.hpp"
#include "sim/model/operation.hpp"

namespace headway {

struct CollectiveMember {
  std::vector<Operand> reads, writes;
};

// Also a send: two members, the sender (reads) first, the receiver (writes) second. Throws
// std::invalid_argument where the members' sizes do not fit the collective.
void communicate(const Collective& collective, std::span<const CollectiveMember> members);

// The results of one member alone, where the others live elsewhere: their reads are copies, where
// reads_of() says so, and their writes are operands without memory.
void communicate_for(const Collective& collective, std::span<const CollectiveMember> members,
                     std::size_t own);

// Whether the results of member `to` depend on what member `from` reads.
bool reads_of(const Collective& collective, std::size_t from, std::size_t to);

}  // namespace headway
