#include "kernels/cpu/collective_pieces.hpp"

#include <algorithm>

namespace headway {
namespace {

// Elements [from, from + count) of operands laid end to end; what lies past them is left out.
std::vector<Operand> cut(const std::vector<Operand>& operands, std::int64_t from,
                         std::int64_t count) {
  std::vector<Operand> parts;
  for (const Operand& operand : operands) {
    const std::int64_t first = std::max<std::int64_t>(from, 0);
    const std::int64_t last = std::min(from + count, operand.elements());
    if (first < last) {
      Operand part = operand;
      part.rows = 1;
      part.columns = last - first;
      if (part.data != nullptr) {
        part.data = static_cast<char*>(part.data) +
                    static_cast<std::size_t>(first) * held_size(operand.type);
      }
      parts.push_back(part);
    }
    from -= operand.elements();
  }
  return parts;
}

// Members as matrices that are put side by side are cut by columns (see kernels/cpu/collectives).
bool may_cut_by_columns(const CollectiveMember& member) {
  return member.reads.size() == 1 && member.writes.size() == 1 && member.reads[0].rows > 1 &&
         member.reads[0].rows == member.writes[0].rows &&
         member.reads[0].columns != member.writes[0].columns;
}

}  // namespace

std::vector<CollectivePiece> pieces_of(const Collective& collective,
                                       std::span<const CollectiveMember> members,
                                       std::int64_t most) {
  const std::vector<CollectivePiece> whole = {{collective}};
  if (collective.shares != Shares::kEqual || collective.elements <= most) return whole;
  const auto parts = static_cast<std::int64_t>(members.size());
  const bool scatters = collective.kind == CollectiveKind::kReduceScatter;
  const bool gathers = collective.kind == CollectiveKind::kAllGather;
  if (collective.kind == CollectiveKind::kAllToAll) return whole;
  if (scatters || gathers) {
    if (collective.elements % parts != 0 || may_cut_by_columns(members.front())) return whole;
  }
  const std::int64_t roots = scatters || gathers ? parts : 1;
  const std::int64_t share = collective.elements / roots;
  std::vector<CollectivePiece> pieces;
  for (std::int64_t from = 0; from < share; from += most) {
    for (std::int64_t root = 0; root < roots; ++root) {
      CollectivePiece& piece = pieces.emplace_back(CollectivePiece{collective, from, from, false});
      piece.collective.elements = std::min(most, share - from);
      if (scatters || gathers) piece.collective.root = static_cast<int>(root);
      if (scatters) {
        piece.collective.kind = CollectiveKind::kReduce;
        piece.reads_from += root * share;
      }
      if (gathers) {
        piece.collective.kind = CollectiveKind::kBroadcast;
        piece.writes_from += root * share;
      }
    }
  }
  return pieces;
}

CollectiveMember operands_of(const CollectivePiece& piece, const CollectiveMember& member) {
  if (piece.whole) return member;
  const std::int64_t count = piece.collective.elements;
  return {cut(member.reads, piece.reads_from, count), cut(member.writes, piece.writes_from, count)};
}

}  // namespace headway
