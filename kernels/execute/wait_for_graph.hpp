// Who waits for whom when nothing goes on, in the schedule's own words.
#pragma once

#include <string>
#include <vector>

#include "kernels/execute/execution_plan.hpp"

namespace headway {

// `begun` and `ended` by rank and operation. The cycle, each line waiting for the next and the last
// for the first; where a wait ends at someone who will never come, the chain that leads there.
std::vector<std::string> wait_cycle(const ExecutionPlan& plan,
                                    const std::vector<std::vector<char>>& begun,
                                    const std::vector<std::vector<char>>& ended);

// What one rank waits for, all its streams: "rank 1, 0F0, receive hidden (layer 4): waits for rank
// 0 to send". "rank 1 had finished" where it waits for nothing.
std::string waiting_words(const ExecutionPlan& plan, const std::vector<std::vector<char>>& begun,
                          const std::vector<std::vector<char>>& ended, int rank);

}  // namespace headway
