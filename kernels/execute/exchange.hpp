// Meetings between ranks that are processes. Every member sends each other member the time at which
// it came and, where the other's results depend on it, what it reads; then each computes its own
// results from all of them, in the order of the ranks, so that they are those of
// kernels/cpu/collectives to the bit. Large collectives go in pieces, of which a few are under way.
// A group of n moves n - 1 times a member's reads: made for a few ranks.
#pragma once

#include <list>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cpu/collective_pieces.hpp"
#include "kernels/execute/execution_plan.hpp"
#include "kernels/execute/mpi_world.hpp"
#include "sim/core/units.hpp"

namespace headway {

class Exchange {
 public:
  // `world` and `plan` outlive it. REQUIRES: the members of every meeting take part in the same
  // collective, and all come.
  Exchange(const MpiWorld& world, const ExecutionPlan& plan, int rank);
  ~Exchange();

  // The rank has come to the meeting of an operation at `arrival`. Its operands stay as they are
  // until the meeting has ended.
  void come(int operation, Time arrival, CollectiveMember own);

  struct Ended {
    int operation = 0;
    Time start;  // when the last member came
  };
  // Moves on what can be moved on; the meetings that have ended since, with their results written.
  std::vector<Ended> progress();

  bool waits() const { return !open_.empty(); }
  // Whom the oldest open meeting still waits for: "rank 1". REQUIRES: waits().
  std::string missing() const;
  int oldest() const { return open_.front().operation; }

 private:
  struct PieceUnderWay;
  struct OpenMeeting;
  CollectiveMember without_memory(const Meeting::Member& member) const;
  void start_piece(OpenMeeting& open);
  bool move_on(OpenMeeting& open);
  const PlannedOperation& planned(const Meeting::Member& member) const;

  const MpiWorld& world_;
  const ExecutionPlan& plan_;
  int rank_;
  bool in_double_;

  struct PieceUnderWay {
    std::vector<CollectiveMember> members;
    std::vector<std::unique_ptr<std::uint64_t[]>> received;  // the memory of other members' reads
    std::vector<MpiWorld::Message> messages;
    std::size_t piece = 0;
  };
  struct OpenMeeting {
    int operation = 0, meeting = 0;
    std::size_t own = 0;  // which of the members
    std::int64_t arrival = 0;
    std::vector<CollectiveMember> members;  // the others' without memory
    std::vector<CollectivePiece> pieces;
    std::size_t started = 0;  // of the pieces
    std::list<PieceUnderWay> under_way;
    std::vector<std::int64_t> arrivals;    // by member; -1: has not come
    std::vector<MpiWorld::Message> heads;  // of the arrivals
  };
  std::list<OpenMeeting> open_;
};

}  // namespace headway
