// How many copies of a token leave a rank where each destination gets it once, however many of its
// experts the token has chosen (DeepEP; DeepSeek-V3, arXiv 2412.19437, section 3.2.2): expected
// values for uniform choices, without replacement.
#pragma once

#include <cstdint>

#include "sim/plan/job.hpp"

namespace headway {

struct DispatchVolume {
  double ranks = 0;         // of the expert group
  double remote_nodes = 0;  // other than its own
};
// REQUIRES: the job has experts.
DispatchVolume dispatch_volume(const Job& job);

// Of `places` that share `experts` evenly, how many hold one of `chosen` of them.
double expected_places(std::int64_t experts, std::int64_t places, std::int64_t chosen);

}  // namespace headway
