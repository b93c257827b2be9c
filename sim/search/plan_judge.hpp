// Whether a plan is legal, whether it fits, and what time it cannot undercut: all that is known of
// it without simulating it. Memory is exact and needs no clock; the bound is that of the same
// prices.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "sim/plan/open_job.hpp"
#include "sim/price/memory.hpp"
#include "sim/search/framework_reach.hpp"
#include "sim/search/plan_space.hpp"
#include "sim/simulate/price_book.hpp"

namespace headway {

enum class Verdict : std::uint8_t { kIllegal, kOverMemory, kFits };

struct JudgedPlan {
  PlanChoice choice;
  Verdict verdict = Verdict::kIllegal;
  std::string reason, message;  // of what is rejected; equal reasons are counted together
  Bytes need;                   // where it is legal
  Time bound;                   // where it fits
};

class PlanJudge {
 public:
  // Leaves this share of the device's memory free. REQUIRES: all outlive this; `prices` are of the
  // job's profile.
  PlanJudge(const OpenJob& job, const PlanSpace& space, const FrameworkReach& reach,
            const PriceBook& prices, double memory_margin);

  // The plans of a row of the space, those with a larger micro-batch than one that does not fit
  // left out. Ends early where `stopped` says so.
  std::vector<JudgedPlan> judge_row(const PlanChoice& row,
                                    const std::function<bool()>& stopped) const;
  // REQUIRES: the choice is legal.
  Job job_of(const PlanChoice& choice) const;
  Bytes allowed() const { return allowed_; }

 private:
  void judge(JudgedPlan& plan) const;
  std::optional<Job> legal_job(JudgedPlan& plan) const;

  const OpenJob& job_;
  const PlanSpace& space_;
  const FrameworkReach& reach_;
  const PriceBook& prices_;
  Bytes allowed_;
};

// What the step needs of the device's memory: the sum of its lines, or what the allocator holds for
// them.
Bytes needed_memory(const MemoryReport& memory);

}  // namespace headway
