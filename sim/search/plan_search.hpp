// The best plans of a space, exactly: every plan is judged (legal? does it fit?), each that fits
// gets a time that it cannot undercut, and from the most promising on they are simulated, sixteen
// at a time, until no bound is left below the worst of the best. What is ranked is the simulation
// itself, so the answer is that of simulating them all; a test holds the two equal. The same
// answer, counts included, on any number of threads and processes.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "sim/cost/profile.hpp"
#include "sim/plan/open_job.hpp"
#include "sim/report/step_report.hpp"
#include "sim/search/framework_reach.hpp"
#include "sim/search/plan_space.hpp"
#include "sim/search/rejected_plans.hpp"
#include "sim/search/shared_work.hpp"
#include "sim/simulate/price_book.hpp"

namespace headway {

enum class Objective : std::uint8_t { kTime, kCost, kMemory };

// legal = over_memory + pruned + simulated.
struct SearchCounts {
  std::int64_t legal = 0, over_memory = 0, pruned = 0, simulated = 0;
  std::int64_t illegal = 0;
};

struct SearchProgress {
  bool simulating = false;        // else judging
  std::int64_t done = 0;          // plans judged, or simulated
  std::int64_t most = 0;          // judging: of about so many; simulating: at most so many
  std::optional<Time> best = {};  // so far
};

struct SearchOptions {
  int top = 10;
  Objective objective = Objective::kTime;
  double memory_margin = 0.06;  // share of the device's memory to be left free
  int threads = 1;
  SearchProcesses* processes = nullptr;  // that share the candidates; nullptr: this one alone
  bool front = true;                     // whether to find the front of time and memory too
  bool prune = true;                     // false: simulate all that fit
  std::function<void(const SearchProgress&)> progress;  // from one thread at a time
  const std::atomic<bool>* stop = nullptr;              // set: end soon with the best so far
};

// Where a plan's time goes that another plan might save.
struct LosesTo {
  Time bubble, exposed_communication, recompute;
};

struct FoundPlan {
  PlanChoice choice;
  std::string text;  // a job's `plan`
  Job job;
  StepReport report;
  double memory_margin = 0;  // share of the device's memory that is left free
  bool fastest = false;      // of all
  bool tie = false;          // its interval overlaps the fastest one's
  LosesTo loses_to = {};
};

struct SearchResult {
  SearchCounts counts;
  std::vector<RejectedPlans> rejected;  // most frequent first
  // The best ones, those that tie with the best first: by memory margin, then fewer moving parts.
  std::vector<FoundPlan> plans;
  // Of all plans those that none beats in both time and memory, fastest first.
  std::vector<FoundPlan> front;
  bool interrupted = false;
};

// REQUIRES: all outlive the call; `prices` are of `profile`, which is the job's.
SearchResult search_plans(const OpenJob& job, const PlanSpace& space, const FrameworkReach& reach,
                          const PriceBook& prices, const SearchOptions& options);

}  // namespace headway
