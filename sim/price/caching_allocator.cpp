#include "sim/price/caching_allocator.hpp"

#include <algorithm>
#include <cassert>
#include <limits>

#include "sim/program/lifetime.hpp"

namespace headway {

namespace {

// Names and values of CUDACachingAllocator.cpp.
constexpr std::int64_t kMiB = std::int64_t{1} << 20;
constexpr std::int64_t kSmallSize = 1 * kMiB;       // largest request of the small pool
constexpr std::int64_t kSmallBuffer = 2 * kMiB;     // its segments
constexpr std::int64_t kMinLargeAlloc = 10 * kMiB;  // from here on a request gets its own segment
constexpr std::int64_t kLargeBuffer = 20 * kMiB;    // segments of what is between
constexpr std::int64_t kRoundLarge = 2 * kMiB;

std::int64_t segment_size(std::int64_t size) {
  if (size <= kSmallSize) return kSmallBuffer;
  if (size < kMinLargeAlloc) return kLargeBuffer;
  return (size + kRoundLarge - 1) / kRoundLarge * kRoundLarge;
}

}  // namespace

int CachingAllocator::new_block() {
  if (unused_.empty()) {
    blocks_.emplace_back();
    return static_cast<int>(blocks_.size()) - 1;
  }
  const int index = unused_.back();
  unused_.pop_back();
  block(index) = Block{};
  return index;
}

int CachingAllocator::take_segment(std::int64_t size, bool large) {
  const std::int64_t bytes = segment_size(size);
  if (reserved_ + bytes > limit_) {
    release_free_segments(small_);
    release_free_segments(large_);
  }
  reserved_ += bytes;
  peak_reserved_ = std::max(peak_reserved_, reserved_);
  const int index = new_block();
  block(index).size = bytes;
  block(index).address = next_address_;
  block(index).large = large;
  next_address_ += bytes;
  return index;
}

void CachingAllocator::release_free_segments(FreeBlocks& blocks) {
  for (auto entry = blocks.begin(); entry != blocks.end();) {
    const int index = std::get<2>(*entry);
    const Block& whole = block(index);
    if (whole.previous >= 0 || whole.next >= 0) {
      ++entry;
      continue;
    }
    reserved_ -= whole.size;
    unused_.push_back(index);
    entry = blocks.erase(entry);
  }
}

int CachingAllocator::allocate(Bytes bytes) {
  if (bytes.count == 0) return -1;
  const std::int64_t size = rounded_block(bytes).count;
  const bool large = size > kSmallSize;
  FreeBlocks& free_blocks = pool(large);
  const auto fit = free_blocks.lower_bound({size, std::numeric_limits<std::int64_t>::min(), 0});
  int index = 0;
  if (fit != free_blocks.end()) {
    index = std::get<2>(*fit);
    free_blocks.erase(fit);
  } else {
    index = take_segment(size, large);
  }
  block(index).is_free = false;
  const std::int64_t left = block(index).size - size;
  if (large ? left > kSmallSize : left >= kBlockRounding) {
    const int rest = new_block();
    Block& taken = block(index);
    taken.size = size;
    block(rest) = {left, taken.address + size, index, taken.next, large, false};
    if (taken.next >= 0) block(taken.next).previous = rest;
    taken.next = rest;
    set_free(rest);
  }
  allocated_ += block(index).size;
  peak_allocated_ = std::max(peak_allocated_, allocated_);
  return index;
}

void CachingAllocator::set_free(int index) {
  Block& freed = block(index);
  freed.is_free = true;
  pool(freed.large).insert({freed.size, freed.address, index});
}

// REQUIRES: both are free and out of the pool.
void CachingAllocator::merge_with_next(int index) {
  const int gone = block(index).next;
  block(index).size += block(gone).size;
  block(index).next = block(gone).next;
  if (block(index).next >= 0) block(block(index).next).previous = index;
  unused_.push_back(gone);
}

void CachingAllocator::free(int handle) {
  if (handle < 0) return;
  int index = handle;
  assert(!block(index).is_free);
  allocated_ -= block(index).size;
  const auto take_out = [&](int neighbour) {
    const Block& other = block(neighbour);
    pool(other.large).erase({other.size, other.address, neighbour});
  };
  const int next = block(index).next;
  if (next >= 0 && block(next).is_free) {
    take_out(next);
    merge_with_next(index);
  }
  const int previous = block(index).previous;
  if (previous >= 0 && block(previous).is_free) {
    take_out(previous);
    merge_with_next(previous);
    index = previous;
  }
  set_free(index);
}

}  // namespace headway
