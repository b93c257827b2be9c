// One rank of a Program as a device runs it: its streams and memory, which operations may be
// issued, and what is noted of their numbers on the way. Numbers are copied to the host in stream
// order and read when the step has ended.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "kernels/cuda/device_partition.hpp"
#include "kernels/execute/device_rank_memory.hpp"
#include "kernels/execute/rank_run.hpp"

namespace headway {

// The device's time from one event to another, which have both passed.
Time elapsed(const DeviceEvent& from, const DeviceEvent& to);

class DeviceRank {
 public:
  // All outlive it.
  DeviceRank(const ExecutionPlan& plan, int rank, const ExecuteOptions& options,
             GemmLibrary& library, DevicePartition& partition);

  // REQUIRES: all streams have ended. `timed`: each operation stands between two events.
  void begin_step(int step, bool timed);
  bool done() const { return left_ == 0; }
  // The operation to issue now, the first in the order of issue, or -1.
  int issuable() const;

  // Makes the operands of an operation, on its stream, which waits for all that it must; the host
  // waits where the Program says so.
  void prepare(int operation);
  // Enqueues an operation that no other rank takes part in.
  void issue_alone(int operation);
  // One that others take part in: arrive() records that all is ready for it, arrival(); when all
  // have come, leave() makes its stream wait for `done`, which stands behind the work of the group.
  CollectiveMember operands(int operation) const;
  void arrive(int operation);
  const DeviceEvent& arrival(int operation) const {
    return *arrivals_[static_cast<std::size_t>(operation)];
  }
  void leave(int operation, const DeviceEvent& done);

  DeviceStream& stream(int operation) {
    return *streams_[static_cast<std::size_t>(planned(operation).operation->stream)];
  }
  const PlannedOperation& planned(int operation) const {
    return plan_.ranks[static_cast<std::size_t>(rank_)]
        .operations[static_cast<std::size_t>(operation)];
  }
  const std::vector<char>& begun() const { return begun_; }
  const std::vector<char>& ended() const { return issued_; }

  void synchronise();
  // After a timed step: the times of all operations since `start` was recorded.
  std::vector<MeasuredTimes> times(const DeviceEvent& start) const;
  // After a step.
  RankNumbers numbers() const;
  Bytes peak() const { return memory_->peak(); }

 private:
  enum class NoteKind : std::uint8_t { kLoss, kNorm, kGradient, kUpdated };
  struct Note {
    NoteKind kind;
    int allocation = 0, micro_batch = -1;
    DataType type = DataType::kFp32;
    std::int64_t count = 0;
    double scale = 1;  // of a loss
    PinnedMemory copy;
    std::size_t bytes = 0;
  };

  void note(NoteKind kind, int allocation, int operation);
  void note_before(int operation);
  void note_after(int operation);
  void finish(int operation);
  bool needs_event(int operation) const;
  DeviceEvent& event(std::vector<std::optional<DeviceEvent>>& events, int operation);

  const ExecutionPlan& plan_;
  int rank_;
  const ExecuteOptions& options_;
  std::vector<std::unique_ptr<DeviceStream>> streams_;
  std::unique_ptr<DeviceRankMemory> memory_;  // after the streams: it is freed first
  std::vector<char> awaited_;                 // by operation: another stream, or the host, waits
  int step_ = 0;
  bool timed_ = false;
  std::vector<char> begun_, issued_;  // by operation
  std::vector<std::size_t> heads_;    // by stream
  std::size_t left_ = 0;
  std::vector<std::optional<DeviceEvent>> starts_, ends_, arrivals_;  // by operation
  std::vector<Note> notes_;  // the same in every step, so that their memory is kept
  std::size_t notes_used_ = 0;
  std::set<int> noted_gradients_;
  std::map<int, int> updates_;  // count_update()
  int loss_total_ = -1;         // the allocation that the Program sums losses in
};

}  // namespace headway
