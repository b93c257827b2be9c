// Which tokens of a sequence a rank holds where the sequence is spread over ranks: a ring of ranks
// deals it out in an order (contiguous; zigzag, as Megatron-LM's get_batch_on_this_cp_rank and
// zigzag_ring_flash_attn do; striped, arXiv 2311.09431), and a group of ranks that exchange heads
// for tokens (Ulysses) cuts each ring rank's piece into runs. Both numbers may be 1.
#pragma once

#include <cstdint>
#include <string>

#include "sim/model/operation.hpp"
#include "sim/plan/rank_grid.hpp"

namespace headway {

// Of a Program: the axes of its grid that a sequence is spread over; "" where there is none.
struct TokenLayout {
  TokenOrder order = TokenOrder::kContiguous;
  std::string ring_axis;
  std::string heads_axis;
  friend bool operator==(const TokenLayout&, const TokenLayout&) = default;
};

// Of a rank: where its tokens stand.
struct TokenMap {
  std::int64_t length = 1;  // of the whole sequence
  TokenOrder order = TokenOrder::kContiguous;
  std::int64_t ring = 1, place = 0;  // ranks of the ring and this one's place
  std::int64_t parts = 1, part = 0;  // of a ring rank's piece, likewise

  // Tokens of a sequence that a ring rank's piece, and one rank, has. REQUIRES: both divide; zigzag
  // cuts a piece in halves.
  std::int64_t piece() const { return length / ring; }
  std::int64_t local_length() const { return piece() / parts; }
  // Position in its sequence of the i-th token of the piece at `ring_place`.
  std::int64_t position_at(std::int64_t ring_place, std::int64_t i) const {
    if (order == TokenOrder::kContiguous || ring == 1) return ring_place * piece() + i;
    if (order == TokenOrder::kStriped) return i * ring + ring_place;
    const std::int64_t half = piece() / 2;
    const std::int64_t mirrored = 2 * ring - 1 - ring_place;
    return i < half ? ring_place * half + i : mirrored * half + (i - half);
  }
  // The same of a local row, and which sequence of the micro-batch it belongs to.
  std::int64_t position(std::int64_t row) const {
    return position_at(place, part * local_length() + row % local_length());
  }
  std::int64_t sequence(std::int64_t row) const { return row / local_length(); }
};

TokenMap token_map(const TokenLayout& layout, const RankGrid& grid, int rank, std::int64_t length);

}  // namespace headway
