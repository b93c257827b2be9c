// The memory of one rank on a device: allocations live as their lifetimes in the order of issue
// say, in blocks that are used again. A block that another stream may still be reading is given on
// together with the events to wait for, so nothing waits on the host, and what a step needs is
// allocated in the first one. Buffers hold their declared types.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "kernels/cuda/device_stream.hpp"
#include "kernels/execute/execution_plan.hpp"
#include "kernels/execute/rank_memory.hpp"

namespace headway {

class DeviceRankMemory {
 public:
  // `plan` outlives it. The persistent buffers are made and filled on `stream`; the host waits.
  // `poisoned`: what nobody has written is no number. Throws AllocationRefused.
  DeviceRankMemory(const ExecutionPlan& plan, int rank, std::uint64_t seed, Bytes limit,
                   bool poisoned, DeviceStream& stream);

  // REQUIRES: all streams have ended.
  void begin_step(std::int64_t step);

  // The operand of an allocation for an operation about to be enqueued on `stream`, which is the
  // rank's stream number `index`; made there where it is not there yet.
  Operand use(int allocation, int index, DeviceStream& stream);
  Operand operand(int allocation) const;
  bool is_there(int allocation) const {
    return blocks_[static_cast<std::size_t>(allocation)].memory != nullptr;
  }
  // The micro-batch's data arrive, on `stream`.
  void deliver(int allocation, DeviceStream& stream);
  // An operation that uses it has been enqueued on stream `index`; `end` is recorded behind it, or
  // is nullptr where needs_event() said so.
  void enqueued(int allocation, int index, const DeviceEvent* end);
  // Whether an operation of stream `index` must be followed by an event on account of this
  // allocation: others will use its memory on another stream.
  bool needs_event(int allocation, int index) const;

  Bytes peak() const { return peak_; }
  const BufferFamily& family(int allocation) const;

 private:
  // Memory and who has used it last on streams other than its own.
  struct Memory {
    DeviceMemory memory;
    int stream = 0;
    std::map<int, const DeviceEvent*> last_uses;
  };
  struct Block {
    std::unique_ptr<Memory> memory;
    int uses_left = 0;
  };

  std::size_t bytes_of(int allocation) const;
  void make(int allocation, int index, DeviceStream& stream);
  DeviceMemory allocated(std::size_t bytes, const std::string& name);
  void fill(int allocation, DeviceStream& stream);
  void fill_as_begun(const BufferInstance& buffer, const Operand& operand, DeviceStream& stream);
  void fill_mirrors(int allocation, DeviceStream& stream);
  void fill_text(int allocation, DeviceStream& stream);

  const ExecutionPlan& plan_;
  const RankPlan& rank_plan_;
  int rank_;
  std::uint64_t seed_;
  Bytes limit_, in_use_, peak_;
  bool poisoned_;
  std::int64_t step_ = 0;
  std::vector<Block> blocks_;
  std::vector<bool> delivered_;  // by family: its data come with a HostWork
  std::multimap<std::pair<int, std::size_t>, std::unique_ptr<Memory>> free_;  // by stream and size
};

}  // namespace headway
