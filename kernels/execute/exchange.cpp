#include "kernels/execute/exchange.hpp"

#include <algorithm>

#include "kernels/execute/rank_memory.hpp"

namespace headway {
namespace {

std::size_t bytes_of(const Operand& operand) {
  return static_cast<std::size_t>(operand.elements()) * held_size(operand.type);
}

// Tag 0 is for what is said between steps.
int tag_of(int meeting) { return meeting + 1; }

// Of one collective: while one piece is added up, the next is on its way.
constexpr std::size_t kPiecesUnderWay = 4;

// Forgets messages that have been done; whether all have.
bool all_done(std::vector<MpiWorld::Message>& messages) {
  std::erase_if(messages, [](MpiWorld::Message& message) { return message.done(); });
  return messages.empty();
}

}  // namespace

Exchange::Exchange(const MpiWorld& world, const ExecutionPlan& plan, int rank)
    : world_(world), plan_(plan), rank_(rank), in_double_(held_in_double(*plan.program)) {}

Exchange::~Exchange() = default;

const PlannedOperation& Exchange::planned(const Meeting::Member& member) const {
  return plan_.ranks[static_cast<std::size_t>(member.rank)]
      .operations[static_cast<std::size_t>(member.operation)];
}

// The member's operands as the collective's rules want to see them.
CollectiveMember Exchange::without_memory(const Meeting::Member& member) const {
  const RankPlan& theirs = plan_.ranks[static_cast<std::size_t>(member.rank)];
  const auto operand = [&](int allocation) -> Operand {
    const auto& buffer = theirs.allocations[static_cast<std::size_t>(allocation)].buffer;
    const BufferFamily& family = plan_.program->buffers[static_cast<std::size_t>(buffer.family)];
    return {held_type(family.type, in_double_), held_rows(family), family.columns, nullptr};
  };
  CollectiveMember there;
  for (const int read : planned(member).reads) there.reads.push_back(operand(read));
  for (const int write : planned(member).writes) there.writes.push_back(operand(write));
  return there;
}

void Exchange::come(int operation, Time arrival, CollectiveMember own) {
  OpenMeeting& open = open_.emplace_back();
  open.operation = operation;
  open.meeting = planned({rank_, operation}).meeting;
  open.arrival = arrival.picoseconds;
  const Meeting& meeting = plan_.meetings[static_cast<std::size_t>(open.meeting)];
  while (meeting.members[open.own].rank != rank_) ++open.own;
  open.arrivals.assign(meeting.members.size(), -1);
  open.arrivals[open.own] = open.arrival;
  for (std::size_t m = 0; m < meeting.members.size(); ++m) {
    if (m == open.own) {
      open.members.push_back(std::move(own));
      continue;
    }
    const Meeting::Member& member = meeting.members[m];
    open.members.push_back(without_memory(member));
    const int tag = tag_of(open.meeting);
    open.heads.push_back(world_.receive(member.rank, tag, &open.arrivals[m], sizeof(std::int64_t)));
    open.heads.push_back(world_.send(member.rank, tag, &open.arrival, sizeof(std::int64_t)));
  }
  open.pieces = pieces_of(std::get<Collective>(planned({rank_, operation}).operation->operation),
                          open.members);
  while (open.started < std::min(open.pieces.size(), kPiecesUnderWay)) start_piece(open);
}

// Messages of one meeting between two ranks keep their order, so that they need no tags of their
// own.
void Exchange::start_piece(OpenMeeting& open) {
  const auto& ranks = plan_.meetings[static_cast<std::size_t>(open.meeting)].members;
  PieceUnderWay& under_way = open.under_way.emplace_back();
  under_way.piece = open.started++;
  const CollectivePiece& piece = open.pieces[under_way.piece];
  for (const CollectiveMember& member : open.members) {
    under_way.members.push_back(operands_of(piece, member));
  }
  const int tag = tag_of(open.meeting);
  for (std::size_t m = 0; m < ranks.size(); ++m) {
    if (m == open.own) continue;
    if (reads_of(piece.collective, m, open.own)) {
      for (Operand& operand : under_way.members[m].reads) {
        operand.data = under_way.received
                           .emplace_back(std::make_unique_for_overwrite<std::uint64_t[]>(
                               (bytes_of(operand) + 7) / 8))
                           .get();
        under_way.messages.push_back(
            world_.receive(ranks[m].rank, tag, operand.data, bytes_of(operand)));
      }
    }
    if (reads_of(piece.collective, open.own, m)) {
      for (const Operand& operand : under_way.members[open.own].reads) {
        under_way.messages.push_back(
            world_.send(ranks[m].rank, tag, operand.data, bytes_of(operand)));
      }
    }
  }
}

std::vector<Exchange::Ended> Exchange::progress() {
  std::vector<Ended> ended;
  for (auto open = open_.begin(); open != open_.end();) {
    if (!move_on(*open)) {
      ++open;
      continue;
    }
    const std::int64_t last = *std::max_element(open->arrivals.begin(), open->arrivals.end());
    ended.push_back({open->operation, Time{last}});
    open = open_.erase(open);
  }
  return ended;
}

// Ends the pieces that have come and starts others; whether none is left.
bool Exchange::move_on(OpenMeeting& open) {
  const bool met = all_done(open.heads);
  while (!open.under_way.empty() && all_done(open.under_way.front().messages)) {
    const PieceUnderWay& come = open.under_way.front();
    communicate_for(open.pieces[come.piece].collective, come.members, open.own);
    open.under_way.pop_front();
    if (open.started < open.pieces.size()) start_piece(open);
  }
  return met && open.under_way.empty();
}

std::string Exchange::missing() const {
  const OpenMeeting& open = open_.front();
  const Meeting& meeting = plan_.meetings[static_cast<std::size_t>(open.meeting)];
  for (std::size_t m = 0; m < meeting.members.size(); ++m) {
    if (open.arrivals[m] < 0) return "rank " + std::to_string(meeting.members[m].rank);
  }
  return "its messages";
}

}  // namespace headway
