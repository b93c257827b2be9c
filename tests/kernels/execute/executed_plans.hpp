// The table of plans that are executed for real, and how a row becomes a job.
#pragma once

#include <string>
#include <vector>

#include "sim/plan/job.hpp"

namespace headway {

struct ExecutedPlan {
  std::string name;
  bool every_run;
  bool mutated;  // its mutations belong to every run too
  int steps;
  int gpus;
  std::string model, keys;  // JSON text

  // Throws InvalidInput where the row is no legal job.
  Job job() const;
};

// Throws InvalidInput with what is wrong in the table.
std::vector<ExecutedPlan> executed_plans();

// A job on `gpus` ranks of this machine's kind, from the text of the keys that matter.
Job small_job(const std::string& model, int gpus, const std::string& other_keys);

}  // namespace headway
