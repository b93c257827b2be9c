// The best plans of a space, exactly: every plan is judged (legal? does it fit?), each that fits
// gets a time that it cannot undercut, and from the most promising on they are simulated, sixteen
// at a time, until no bound is left below the worst of the best. What is ranked is the simulation
// itself, so the answer is that of simulating them all; a test holds the two equal. The same
// answer, counts included, on any number of threads.
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
  std::int64_t most = 0;          // simulating: at most so many
  std::optional<Time> best = {};  // so far
};

struct SearchOptions {
  int top = 10;
  Objective objective = Objective::kTime;
  double memory_margin = 0.06;  // share of the device's memory to be left free
  int threads = 1;
  bool front = true;  // whether to find the front of time and memory too
  bool prune = true;  // false: simulate all that fit
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

// Plans that were rejected for one reason.
struct RejectedPlans {
  std::string reason;
  std::int64_t count = 0;
  std::string nearest_miss;  // the one that came closest, and what would make it fit
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

// What the step needs of the device's memory: the sum of its lines, or what the allocator holds for
// them.
Bytes needed_memory(const MemoryReport& memory);

// The best first: those whose interval overlaps the fastest one's are one tie, by memory margin,
// then fewer moving parts. With kCost by GPU time (at one price, by price), with kMemory by memory
// alone.
void rank_plans(std::vector<FoundPlan>& plans, Objective objective);

// Runs work(i) for i below `count` on up to so many threads; rethrows what the first of them
// throws.
void in_parallel(std::size_t count, int threads, const std::function<void(std::size_t)>& work);

// "tp 4, pp 8, schedule interleaved, vpp 5, micro_batch 2".
std::string choice_words(const std::vector<std::string>& keys, const PlanChoice& choice);

// The value of a plan that is smaller the better it is: seconds, GPU seconds or bytes.
double cost_of(const FoundPlan& plan, Objective objective);

// How many mechanisms a plan switches on: of two equal plans the simpler one is better.
int moving_parts(const ParallelPlan& plan);

}  // namespace headway
