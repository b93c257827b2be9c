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

Operand without_memory(const BufferFamily& family, bool in_double) {
  return {held_type(family.type, in_double), held_rows(family), family.columns, nullptr};
}

}  // namespace

Exchange::Exchange(const MpiWorld& world, const ExecutionPlan& plan, int rank)
    : world_(world), plan_(plan), rank_(rank), in_double_(held_in_double(*plan.program)) {}

Exchange::~Exchange() = default;

const PlannedOperation& Exchange::planned(const Meeting::Member& member) const {
  return plan_.ranks[static_cast<std::size_t>(member.rank)]
      .operations[static_cast<std::size_t>(member.operation)];
}

void Exchange::come(int operation, Time arrival, CollectiveMember own) {
  OpenMeeting& open = open_.emplace_back();
  open.operation = operation;
  open.meeting = planned({rank_, operation}).meeting;
  open.arrival = arrival.picoseconds;
  const Meeting& meeting = plan_.meetings[static_cast<std::size_t>(open.meeting)];
  const auto& collective = std::get<Collective>(planned({rank_, operation}).operation->operation);
  while (meeting.members[open.own].rank != rank_) ++open.own;
  open.arrivals.assign(meeting.members.size(), -1);
  open.arrivals[open.own] = open.arrival;
  open.heads.resize(meeting.members.size());
  open.members.resize(meeting.members.size());
  open.members[open.own] = std::move(own);
  for (std::size_t m = 0; m < meeting.members.size(); ++m) {
    if (m == open.own) continue;
    open.heads[m] = world_.receive(meeting.members[m].rank, tag_of(open.meeting), &open.arrivals[m],
                                   sizeof(std::int64_t));
    receive_from(meeting.members[m], reads_of(collective, m, open.own), open);
  }
  for (std::size_t m = 0; m < meeting.members.size(); ++m) {
    if (m != open.own) send_to(meeting.members[m].rank, reads_of(collective, open.own, m), open);
  }
}

// The member's operands as the collective's rules want to see them, its reads with memory where
// they are to come.
void Exchange::receive_from(const Meeting::Member& member, bool reads, OpenMeeting& open) {
  const RankPlan& theirs = plan_.ranks[static_cast<std::size_t>(member.rank)];
  const auto family = [&](int allocation) -> const BufferFamily& {
    const auto& buffer = theirs.allocations[static_cast<std::size_t>(allocation)].buffer;
    return plan_.program->buffers[static_cast<std::size_t>(buffer.family)];
  };
  const auto& members = plan_.meetings[static_cast<std::size_t>(open.meeting)].members;
  const auto place = std::find_if(members.begin(), members.end(),
                                  [&](const auto& other) { return other.rank == member.rank; });
  CollectiveMember& there = open.members[static_cast<std::size_t>(place - members.begin())];
  for (const int write : planned(member).writes) {
    there.writes.push_back(without_memory(family(write), in_double_));
  }
  for (const int read : planned(member).reads) {
    Operand& operand = there.reads.emplace_back(without_memory(family(read), in_double_));
    if (!reads) continue;
    operand.data = open.received
                       .emplace_back(std::make_unique_for_overwrite<std::uint64_t[]>(
                           (bytes_of(operand) + 7) / 8))
                       .get();
    open.bodies.push_back(
        world_.receive(member.rank, tag_of(open.meeting), operand.data, bytes_of(operand)));
  }
}

void Exchange::send_to(int rank, bool reads, OpenMeeting& open) {
  open.bodies.push_back(
      world_.send(rank, tag_of(open.meeting), &open.arrival, sizeof(std::int64_t)));
  if (!reads) return;
  for (const Operand& operand : open.members[open.own].reads) {
    open.bodies.push_back(world_.send(rank, tag_of(open.meeting), operand.data, bytes_of(operand)));
  }
}

std::vector<Exchange::Ended> Exchange::progress() {
  std::vector<Ended> ended;
  for (auto open = open_.begin(); open != open_.end();) {
    if (!move_on(*open)) {
      ++open;
      continue;
    }
    finish(*open);
    const std::int64_t last = *std::max_element(open->arrivals.begin(), open->arrivals.end());
    ended.push_back({open->operation, Time{last}});
    open = open_.erase(open);
  }
  return ended;
}

// Whether all its messages have been done.
bool Exchange::move_on(OpenMeeting& open) {
  bool all = true;
  for (auto* list : {&open.heads, &open.bodies}) {
    for (MpiWorld::Message& message : *list) {
      if (!message.done()) all = false;
    }
  }
  return all;
}

void Exchange::finish(OpenMeeting& open) {
  communicate_for(std::get<Collective>(planned({rank_, open.operation}).operation->operation),
                  open.members, open.own);
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
