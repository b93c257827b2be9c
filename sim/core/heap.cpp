#include "sim/core/heap.hpp"

#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <limits>

namespace headway {
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

}  // namespace

void use_huge_pages() {
  mallopt(M_MMAP_THRESHOLD,
          kLargestThreshold);  // large blocks too come from the heap and stay in it
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  mallopt(M_TOP_PAD, heap_span());
  const std::uintptr_t begin = heap_end();
  // The heap's remainder is too small for this block, so the heap grows by it and the pad.
  // Volatile, or the compiler sees that nothing uses the block and takes no memory.
  void* volatile block = std::malloc(kHugePage);
  std::free(block);
  const std::uintptr_t first = (begin + kHugePage - 1) / kHugePage * kHugePage;
  if (heap_end() > first)
    madvise(reinterpret_cast<void*>(first), heap_end() - first, MADV_HUGEPAGE);
}

}  // namespace headway
