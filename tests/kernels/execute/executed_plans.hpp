// The table of plans that are executed for real, and how a row becomes a job.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/plan/job.hpp"
#include "sim/program/program.hpp"

namespace headway {

struct ExecutedPlan {
  std::string name;
  bool every_run;
  bool mutated;  // its mutations belong to every run too
  // It has experts, and no rounding changes which of them are chosen.
  bool routes_freely;
  int steps;
  int gpus;
  std::string model, keys;  // JSON text
  // The limit of the gradient's norm, where the lowered one would clip what must not be clipped.
  std::optional<double> clip_norm;

  // The row's Program, and the one of a single rank.
  Program program() const;
  Program reference() const;

  // Throws InvalidInput where the row is no legal job.
  Job job() const;
};

// Throws InvalidInput with what is wrong in the table.
std::vector<ExecutedPlan> executed_plans();

// A job on `gpus` ranks of this machine's kind, from the text of the keys that matter.
Job small_job(const std::string& model, int gpus, const std::string& other_keys);

}  // namespace headway
