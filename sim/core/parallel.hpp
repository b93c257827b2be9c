// Work shared out among the threads of a process.
#pragma once

#include <cstddef>
#include <functional>

namespace headway {

// Runs work(i) for i below `count` on up to so many threads; what the first of them throws ends the
// rest early, and is rethrown.
void in_parallel(std::size_t count, int threads, const std::function<void(std::size_t)>& work);

}  // namespace headway
