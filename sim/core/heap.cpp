#include "sim/core/heap.hpp"

#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <limits>

namespace headway {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)

// A sanitizer's heap is its own.
void use_huge_pages() {}
void use_huge_pages_in_thread() {}

#else

namespace {

constexpr std::uintptr_t kHugePage = 2 << 20;  // x86-64 and AArch64 with 4 KiB pages

// Address space taken at once, not memory: at most a quarter of what the machine has, and enough
// for an unfolded step of 1,024 ranks.
constexpr long kHeapSpan = (2L << 30) - (2L << 20);  // mallopt takes an int

constexpr int kLargestThreshold = 32 << 20;  // glibc's HEAP_MAX_SIZE / 2: it refuses more

int heap_span() {
  const long machine = sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
  return static_cast<int>(std::min(kHeapSpan, machine / 4));
}

std::uintptr_t heap_end() { return reinterpret_cast<std::uintptr_t>(sbrk(0)); }

// glibc's HEAP_MAX_SIZE: what a thread's arena takes at once, at a multiple of it.
constexpr std::uintptr_t kThreadHeap = 2 * static_cast<std::uintptr_t>(kLargestThreshold);

constexpr std::uintptr_t kBlockHeader = 64;  // at least what glibc keeps with a block

// Volatile, or the compiler sees that nothing uses a block and takes no memory.
std::uintptr_t take(std::size_t size, void* volatile& block) {
  block = std::malloc(size);
  return reinterpret_cast<std::uintptr_t>(block);
}

void lay_on_huge_pages(std::uintptr_t begin, std::uintptr_t end) {
  if (end > begin) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
}

// Takes, for good, what lies between the next block and `first`, so that nothing more is allocated
// from the small pages before the first huge one.
void skip_to(std::uintptr_t first, std::uintptr_t next) {
  void* volatile skipped;
  if (first > next + kBlockHeader) take(first - next - kBlockHeader, skipped);
}

}  // namespace

void use_huge_pages() {
  mallopt(M_MMAP_THRESHOLD,
          kLargestThreshold);  // large blocks too come from the heap and stay in it
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  mallopt(M_TOP_PAD, heap_span());
  const std::uintptr_t begin = heap_end();
  // The heap's remainder is too small for this block, so the heap grows by it and the pad.
  void* volatile block;
  const std::uintptr_t next = take(kHugePage, block);
  std::free(block);
  const std::uintptr_t first = (begin + kHugePage - 1) / kHugePage * kHugePage;
  lay_on_huge_pages(first, heap_end());
  if (heap_end() > first) skip_to(first, next);
}

void use_huge_pages_in_thread() {
  void* volatile block;
  const std::uintptr_t next = take(kHugePage / 2, block);
  std::free(block);
  // Where the thread shares the first one's heap, its block lies in that.
  if (next == 0 || next < heap_end()) return;
  const std::uintptr_t begin = next / kThreadHeap * kThreadHeap;
  lay_on_huge_pages(begin, begin + kThreadHeap);
  // The first huge page holds the arena itself, so it is there already, in small ones.
  skip_to(begin + kHugePage, next);
}

#endif

}  // namespace headway
