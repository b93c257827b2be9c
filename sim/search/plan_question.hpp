// "I have this model and this cluster: which plan?" One question may ask for several sizes of the
// cluster; its answer holds the best plans over all of them, what was rejected and why, how the
// choice holds where machine or data turn out worse, and, where nothing fits, the nearest that
// does.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/plan/job.hpp"
#include "sim/search/plan_search.hpp"
#include "sim/search/sensitivity.hpp"

namespace headway {

struct PlanQuestion {
  JsonNode job;
  std::vector<JobOverride> overrides = {};
  // A framework that must be able to launch the plan; "any"; "": the job's.
  std::string launched_by = {};
  std::vector<int> gpus = {};  // sizes of the cluster; empty: the job's
  SpaceOptions space = {};
  SearchOptions search = {};
};

// One size of the cluster.
struct ScaleAnswer {
  int gpus = 0;
  SearchCounts counts;
  std::optional<FoundPlan> best;  // first of its plans; nothing where none fits
};

struct NearestFeasible {
  std::string change;  // "on 128 GPUs", "with recompute full in place of none"
  FoundPlan plan;
};

struct PlanAnswer {
  std::vector<std::string> notes;
  std::vector<std::string> open;  // keys
  std::string launched_by;
  SearchResult result;  // over all sizes; `rejected` of all together
  std::vector<ScaleAnswer> scales;
  std::vector<Sensitivity> sensitivity;
  std::optional<NearestFeasible> nearest;
};

// Throws InvalidInput with every problem of the question.
PlanAnswer answer(const PlanQuestion& question);

// The keys of a job's plan that every answer states, resolved, each with its JSON text.
std::vector<std::pair<std::string, std::string>> plan_values(const Job& job);

}  // namespace headway
