// Bytes from one place of memory to another, by one core: "memory_copy/BYTES".
#include <cstring>
#include <vector>

#include "kernels/microbenchmarks/sampling.hpp"

namespace headway {
namespace {

void copy(benchmark::State& state) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  constexpr std::size_t kRotatedBytes = std::size_t{96} << 20;  // beyond the caches
  const std::size_t places = std::max<std::size_t>(1, kRotatedBytes / 2 / bytes);
  std::vector<char> from(bytes * places, 1), to(bytes * places, 2);
  std::size_t next = 0;
  report_samples(state, [&] {
    const std::size_t at = next++ % places * bytes;
    return timed([&] {
      std::memcpy(to.data() + at, from.data() + at, bytes);
      benchmark::ClobberMemory();
    });
  });
}

void add_all(bool quick) {
  for (std::int64_t bytes = 4096; bytes <= (64 << 20); bytes *= quick ? 64 : 4) {
    benchmark::RegisterBenchmark("memory_copy", copy)
        ->Arg(bytes)
        ->UseManualTime()
        ->Iterations(1)
        ->Unit(benchmark::kMicrosecond);
  }
}

}  // namespace
}  // namespace headway

int main(int count, char** values) {
  return headway::run_microbenchmarks(count, values, headway::add_all);
}
