// The memory of one executed rank: its allocations made and freed as their lifetimes say, with
// their initial values. Sizes are counted as the Program declares them, whatever a CPU holds them
// in.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/cpu/operand.hpp"
#include "kernels/execute/execution_plan.hpp"
#include "kernels/execute/global_tensors.hpp"
#include "sim/core/units.hpp"

namespace headway {

// The machine has less memory than the rank asks for.
class AllocationRefused : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class RankMemory {
 public:
  // `plan` outlives the memory. A limit of 0 bytes is none. `poisoned`: real numbers that nobody
  // has written are NaN. Throws AllocationRefused where the persistent buffers exceed the limit.
  RankMemory(const ExecutionPlan& plan, int rank, std::uint64_t seed, Bytes limit, bool poisoned);

  // Forgets what the step before left; the persistent buffers stay.
  void begin_step(std::int64_t step);

  // The operand of an allocation that an operation is about to use; made where it is not there yet.
  Operand use(int allocation);
  // The micro-batch's data arrive: fills an allocation that a HostWork writes.
  void deliver(int allocation);
  // One of its uses has ended; the last one frees it.
  void ended(int allocation);

  // The operand of an allocation that is there.
  Operand operand(int allocation) const;
  bool is_there(int allocation) const {
    return blocks_[static_cast<std::size_t>(allocation)].held != nullptr;
  }
  std::vector<double> values(int allocation) const;
  Bytes peak() const { return peak_; }

 private:
  struct Block {
    std::unique_ptr<std::uint64_t[]> held;
    int uses_left = 0;
  };

  const BufferFamily& family(int allocation) const;
  std::int64_t held_elements(int allocation) const;
  void make(int allocation);
  void fill(int allocation);
  void fill_normal(int allocation);
  // Elements [first, first + count) of what a parameter of these parts begins with, also of one
  // that the rank never holds whole.
  void initial_values(const BufferInstance& buffer, std::span<const Fragment> parts,
                      std::int64_t first, std::int64_t count, std::vector<double>& values) const;
  void fill_mirrors(int allocation);
  void fill_text(int allocation);

  const ExecutionPlan& plan_;
  const RankPlan& rank_plan_;
  int rank_;
  std::uint64_t seed_;
  Bytes limit_, in_use_, peak_;
  bool in_double_;
  bool poisoned_;
  std::int64_t step_ = 0;
  std::vector<Block> blocks_;
  std::vector<bool> delivered_;  // by family: its data come with a HostWork
};

// Whether the numbers that a Program declares in 16 and 32 bits are held in 64: where products read
// 8 or 4 bits, for a last bit that two orders of adding leave different would be rounded to another
// of those few numbers, and hide what a comparison is to find.
bool held_in_double(const Program& program);
// What a declared type is held as, where that is so or not.
DataType held_type(DataType declared, bool in_double);
// What a CPU makes room for: where rows depend on the routing, for the most that may come.
std::int64_t held_rows(const BufferFamily& family);

// Global index, over all steps, of the first token of a micro-batch of the rank.
std::int64_t first_token(const Program& program, int rank, int micro_batch, std::int64_t step);

// What the data of a step put into an allocation of tokens or targets.
std::vector<std::int64_t> tokens_of(const ExecutionPlan& plan, int rank, int allocation,
                                    std::uint64_t seed, std::int64_t step);

}  // namespace headway
