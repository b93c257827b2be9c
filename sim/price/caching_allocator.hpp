// PyTorch's caching allocator (c10/cuda/CUDACachingAllocator.cpp, default settings), played without
// a device: blocks rounded to 512 bytes, best fit among the free blocks of two pools, segments of 2
// MiB (small pool), 20 MiB, or the request rounded to 2 MiB from 10 MiB on; free neighbours merge;
// where the device is full, segments wholly free are given back. Deterministic: equal requests,
// equal answers.
#pragma once

#include <cstdint>
#include <set>
#include <tuple>
#include <vector>

#include "sim/core/units.hpp"

namespace headway {

class CachingAllocator {
 public:
  // `limit`: what the device has for segments. Beyond it requests are still served, so that one
  // learns how much was needed, and out_of_memory() tells.
  explicit CachingAllocator(Bytes limit) : limit_(limit.count) {}

  // A handle for free(). Nothing is allocated for zero bytes.
  int allocate(Bytes bytes);
  void free(int handle);

  Bytes allocated() const { return {allocated_}; }
  Bytes reserved() const { return {reserved_}; }
  Bytes peak_allocated() const { return {peak_allocated_}; }
  Bytes peak_reserved() const { return {peak_reserved_}; }
  bool out_of_memory() const { return peak_reserved_ > limit_; }

 private:
  struct Block {
    std::int64_t size = 0;
    std::int64_t address = 0;  // of the order in which segments were taken; breaks ties of best fit
    int previous = -1, next = -1;  // neighbours in the segment
    bool large = false;
    bool is_free = false;
  };
  using FreeBlocks = std::set<std::tuple<std::int64_t, std::int64_t, int>>;  // size, address, block

  FreeBlocks& pool(bool large) { return large ? large_ : small_; }
  Block& block(int index) { return blocks_[static_cast<std::size_t>(index)]; }
  int new_block();
  int take_segment(std::int64_t size, bool large);
  void release_free_segments(FreeBlocks& blocks);
  void set_free(int index);
  void merge_with_next(int index);

  std::int64_t limit_;
  std::int64_t allocated_ = 0, reserved_ = 0, peak_allocated_ = 0, peak_reserved_ = 0;
  std::int64_t next_address_ = 0;
  std::vector<Block> blocks_;
  std::vector<int> unused_;  // places in blocks_
  FreeBlocks small_, large_;
};

}  // namespace headway
