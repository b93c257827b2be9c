// Plays a Program without a clock: every rank's operations with all they wait for (stream order,
// after, joins, ports, host, collectives and messages as joint events). What cannot be reached is a
// deadlock.
#pragma once

#include <string>
#include <vector>

#include "sim/program/program.hpp"

namespace headway {

struct PlayedProgram {
  std::int64_t operations = 0;
  // "rank 1, 0B2, layer.backward: mlp.second_dgrad": the first of each rank that never starts.
  std::vector<std::string> stuck;
};

// REQUIRES: check(program) passes.
PlayedProgram play(const Program& program);

}  // namespace headway
