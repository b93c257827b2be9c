#include "kernels/execute/resident_memory.hpp"

#include <malloc.h>

#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "kernels/cpu/matrix.hpp"

namespace headway {
namespace {

constexpr std::int64_t kBytesPerKilobyte = 1024;

std::int64_t largest_resident() {
  std::ifstream status("/proc/self/status");
  for (std::string key; status >> key;) {
    std::int64_t kilobytes = 0;
    if (key == "VmHWM:" && status >> kilobytes) return kilobytes * kBytesPerKilobyte;
    status.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return 0;
}

// OpenBLAS takes its packing buffers at the first large product, and keeps them.
void multiply_once() {
  constexpr std::int64_t kSide = 512;
  std::vector<float> a(kSide * kSide), c(kSide * kSide);
  multiply(Transposed::kNo, Transposed::kYes, kSide, kSide, kSide, 1.0F, a.data(), kSide, a.data(),
           kSide, 0.0F, c.data(), kSide);
}

}  // namespace

ResidentMemory::ResidentMemory() {
  multiply_once();
  malloc_trim(0);
  // Sets VmHWM to what is resident now (proc(5), clear_refs); where that is refused, memory that
  // was larger before hides some of the growth.
  std::ofstream("/proc/self/clear_refs") << "5";
  before_ = largest_resident();
}

Bytes ResidentMemory::grown() const { return {largest_resident() - before_}; }

void keep_freed_memory() {
  // glibc gives the emptied heaps of threads back whatever the thresholds say: all share the first.
  mallopt(M_ARENA_MAX, 1);
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
}

}  // namespace headway
