// Reads the `plan` of a job: every key of the format, by itself. What needs the model, the cluster
// or another key to be judged is plan_legality's.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/plan/job_section.hpp"
#include "sim/plan/parallel_plan.hpp"

namespace headway {

// A value is nothing where it was wrong or left open; then what depends on it is not judged.
struct PlanReading {
  ParallelPlan plan;
  std::optional<std::int64_t> tp, pp, cp, ep, etp, micro_batch;
  // As given; nothing where not given.
  std::optional<std::int64_t> dp, vpp, vpp_group, shard, ulysses_degree, tp_depth;
  std::optional<std::string> schedule;                    // nothing where it is wrong
  std::optional<std::string> schedule_deadlock;           // of a file: who waits for whom
  std::optional<std::vector<std::int64_t>> stage_layers;
  std::optional<Bytes> bucket;            // in bytes, until the gradients' type is known
  std::optional<Time> cycle_time;
  std::optional<std::string> grad_dtype;  // as given
  std::optional<std::string> param_gather_dtype;  // likewise
  std::string dp_kind;
  std::vector<NotYetBuilt> not_built;
  std::vector<std::string> expert_rules;  // not built, of /plan/moe: they matter to experts alone
  std::vector<std::string> notes;
  std::optional<double> zipf;            // exponent of the experts' loads
  std::optional<std::string> histogram;  // a file of counts [layer][expert]
};

PlanReading read_plan(JobSection& section);

// The largest degree, and the largest count of sequences, tokens or layers, that a job may name:
// far beyond any machine, and small enough that no product of three overflows.
inline constexpr std::int64_t kLargestDegree = 1 << 20;
inline constexpr std::int64_t kLargestCount = 1 << 24;

// What a value that this version cannot run is called: "sequence packing", "zero3".
void not_yet(std::vector<NotYetBuilt>& list, const JobSection& section, std::string_view key,
             std::string rule);

}  // namespace headway
