#include "kernels/cuda/emulation/blocks.hpp"

#include <ucontext.h>

#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

namespace headway::emulation {

Indices indices;

namespace {

constexpr std::size_t kStackBytes = std::size_t{64} << 10;
constexpr unsigned kLanes = 32;

// A block's threads take turns; each runs until it returns or has to wait. Fibers are made once and
// run block after block; they change places by jumps, because contexts would call the system for
// it.
class Block {
 public:
  static Block& current() {
    static Block block;
    return block;
  }

  void run(unsigned threads, const std::function<void()>& body) {
    body_ = &body;
    left_ = threads;
    arrived_ = 0;
    grow(threads);
    for (unsigned t = 0; t < threads; ++t) begin(t);
    while (left_ > 0) {
      const std::uint64_t before = progress_;
      for (unsigned t = 0; t < threads; ++t) {
        if (!fibers_[t]->done) enter(t);
      }
      if (progress_ == before) {
        std::fputs("emulation: threads of a block wait for each other at different places\n",
                   stderr);
        std::abort();
      }
    }
  }

  void barrier() {
    const std::uint64_t generation = generation_;
    ++arrived_;
    ++progress_;
    release_if_all_arrived();
    while (generation_ == generation) leave();
  }

  std::uint64_t exchange(std::uint64_t own, unsigned from_lane) {
    const unsigned thread = indices.thread.x;
    Warp& warp = warps_[thread / kLanes];
    const unsigned lane = thread % kLanes;
    const std::uint64_t turn = fibers_[thread]->turn++;
    // Two sets of slots: a lane may be one exchange ahead of the slowest, never two.
    warp.slots[turn % 2][lane] = own;
    ++warp.given;
    ++progress_;
    while (warp.given < (turn + 1) * kLanes) leave();
    return warp.slots[turn % 2][from_lane];
  }

 private:
  struct Fiber {
    ucontext_t context{};
    jmp_buf place{};
    bool begun = false;
    std::unique_ptr<char[]> stack = std::make_unique_for_overwrite<char[]>(kStackBytes);
    bool done = false;
    std::uint64_t turn = 0;
  };
  struct Warp {
    std::uint64_t slots[2][kLanes] = {};
    std::uint64_t given = 0;
  };

  void grow(unsigned threads) {
    while (fibers_.size() < threads) fibers_.push_back(std::make_unique<Fiber>());
    warps_.assign((threads + kLanes - 1) / kLanes, {});
  }

  void begin(unsigned thread) {
    Fiber& fiber = *fibers_[thread];
    fiber.done = false;
    fiber.turn = 0;
  }

  // Of every fiber, for ever.
  static void main() {
    Block& block = current();
    for (;;) {
      (*block.body_)();
      block.fibers_[indices.thread.x]->done = true;
      --block.left_;
      ++block.progress_;
      block.release_if_all_arrived();
      block.leave();
    }
  }

  void enter(unsigned thread) {
    indices.thread.x = thread;
    Fiber& fiber = *fibers_[thread];
    if (_setjmp(outside_) != 0) return;
    if (fiber.begun) _longjmp(fiber.place, 1);
    fiber.begun = true;
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.get();
    fiber.context.uc_stack.ss_size = kStackBytes;
    makecontext(&fiber.context, reinterpret_cast<void (*)()>(&Block::main), 0);
    setcontext(&fiber.context);
  }
  void leave() {
    if (_setjmp(fibers_[indices.thread.x]->place) == 0) _longjmp(outside_, 1);
  }
  void release_if_all_arrived() {
    if (arrived_ == 0 || arrived_ < left_) return;
    arrived_ = 0;
    ++generation_;
  }

  const std::function<void()>* body_ = nullptr;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Warp> warps_;
  jmp_buf outside_{};
  unsigned left_ = 0, arrived_ = 0;
  std::uint64_t generation_ = 0, progress_ = 0;
};

}  // namespace

void run_blocks(dim3 blocks, unsigned threads, const std::function<void()>& body) {
  indices.blocks = blocks;
  indices.threads = dim3(threads);
  for (unsigned z = 0; z < blocks.z; ++z) {
    for (unsigned y = 0; y < blocks.y; ++y) {
      for (unsigned x = 0; x < blocks.x; ++x) {
        indices.block = {x, y, z};
        Block::current().run(threads, body);
      }
    }
  }
}

void block_barrier() { Block::current().barrier(); }
std::uint64_t exchange(std::uint64_t own, unsigned from_lane) {
  return Block::current().exchange(own, from_lane);
}

}  // namespace headway::emulation
