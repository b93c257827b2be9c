// Random jobs in which all families of parallelism meet: a model, a machine and a plan drawn from
// what the format allows, drawn again until it is legal. Equal seeds give equal jobs.
#pragma once

#include <random>
#include <string>

#include "sim/plan/job.hpp"

namespace headway {

struct RandomPlanLimits {
  int most_ranks = 8;
  std::string topology = "host-cpu";
  // fp64 on tiny models; else bf16 on small ones.
  bool executed = true;
};

// The text of a legal job, and the job.
struct RandomPlan {
  std::string text;
  Job job;
};
RandomPlan random_plan(std::mt19937& random, const RandomPlanLimits& limits);

}  // namespace headway
