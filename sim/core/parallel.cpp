#include "sim/core/parallel.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "sim/core/heap.hpp"

namespace headway {

void in_parallel(std::size_t count, int threads, const std::function<void(std::size_t)>& work) {
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::exception_ptr failure;
  const auto run = [&] {
    try {
      for (std::size_t i = next++; i < count; i = next++) work(i);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
      next = count;
    }
  };
  const auto run_beside = [&] {
    use_huge_pages_in_thread();
    run();
  };
  std::vector<std::thread> others;
  const auto more =
      static_cast<int>(std::min<std::size_t>(count, static_cast<std::size_t>(threads)));
  for (int t = 1; t < more; ++t) others.emplace_back(run_beside);
  run();
  for (std::thread& thread : others) thread.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace headway
