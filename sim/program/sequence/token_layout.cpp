#include "sim/program/sequence/token_layout.hpp"

namespace headway {

TokenMap token_map(const TokenLayout& layout, const RankGrid& grid, int rank, std::int64_t length) {
  TokenMap map;
  map.length = length;
  map.order = layout.order;
  map.ring = grid.axis_size(layout.ring_axis);
  map.place = grid.coordinate(rank, layout.ring_axis);
  map.parts = grid.axis_size(layout.heads_axis);
  map.part = grid.coordinate(rank, layout.heads_axis);
  return map;
}

}  // namespace headway
