// What a user learns of one training step: time with its interval, throughput, where the time goes,
// what it communicates, whether it fits and why not, how sure all of that is. The keys of a result
// file.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/core/units.hpp"
#include "sim/cost/evidence.hpp"
#include "sim/engine/critical_path.hpp"
#include "sim/model/transformer.hpp"
#include "sim/plan/job.hpp"
#include "sim/price/memory.hpp"
#include "sim/simulate/simulated_step.hpp"

namespace headway {

// Where the time of the rank that waits least goes; the parts add up to the iteration.
struct Breakdown {
  Time compute, tp, cp, ep, pp, dp, bubble, optimizer, host, other;
  Time total() const {
    return compute + tp + cp + ep + pp + dp + bubble + optimizer + host + other;
  }
};

// One kind of communication of that rank.
struct CommunicationLine {
  std::string kind;   // "all_reduce", "send"
  std::string group;  // "tp"
  int size = 1;
  Bytes bytes_per_rank;    // of one operation
  std::int64_t count = 0;  // per step
  std::string algorithm, protocol;
  Time time;     // of all of them, alone
  Time exposed;  // of it, while the compute stream waits
};

// A part of the critical path: the chain of work, messages and launches, each of which began when
// the one before it ended. Nothing on it waits, so it has no bubble.
struct CausePart {
  std::string cause;
  Time time;
};

struct StepReport {
  Time iteration;
  Time interval_low, interval_high;  // 90 %
  double tokens_per_s = 0, tokens_per_s_per_gpu = 0, samples_per_s = 0;
  double model_flops_per_s_per_gpu = 0;
  double mfu = 0, hfu = 0;
  int gpus = 0, dp = 0;
  Breakdown breakdown;
  double bubble_fraction = 0;
  MemoryReport memory;
  std::vector<CommunicationLine> communication;
  std::vector<CausePart> critical_path;  // adds up to the iteration; where it was asked for
  Evidence evidence;
  std::optional<double> energy_j, cost_usd;
  std::int64_t events = 0;
  int rank_classes = 0;
  std::vector<std::string> deadlock;  // the cycle of waits; empty where the step ends
};

struct ReportOptions {
  FlopsConvention flops = FlopsConvention::kHeadway;
};

// `memory`: what report_memory says of the step's Program; without it, it is asked.
StepReport report_step(const Job& job, const Profile& profile, const SimulatedStep& step,
                       MemoryReport memory, const ReportOptions& options);
StepReport report_step(const Job& job, const Profile& profile, const SimulatedStep& step,
                       const ReportOptions& options = {});

}  // namespace headway
