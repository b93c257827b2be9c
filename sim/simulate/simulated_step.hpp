// One training step, from resolved job to timeline: lowered once to a Program, priced, folded,
// played.
#pragma once

#include <vector>

#include "sim/cost/profile.hpp"
#include "sim/engine/simulator.hpp"
#include "sim/engine/timeline.hpp"
#include "sim/plan/job.hpp"
#include "sim/program/program.hpp"
#include "sim/simulate/lowering.hpp"

namespace headway {

// A job whose steps follow one another on GPUs of its own, on the same network.
struct BackgroundJob {
  const Job* job = nullptr;
  const Profile* profile = nullptr;
  int first_gpu = 0;  // of the cluster: where its rank 0 sits
};

struct StepOptions {
  Detail detail = Detail::kTotals;
  bool unfolded = false;
  bool critical_path = false;  // whether Timeline::critical_path is wanted
  MachineWhatIf machine;
  std::vector<BackgroundJob> background;  // no two, nor the job itself, have a GPU in common
  const PriceBook* prices = nullptr;      // of the profile, shared by many steps; nullptr: its own
};

struct SimulatedStep {
  Program program;
  LoweredStep lowered;
  Timeline timeline;
};

// Throws InvalidInput where the profile lacks what an operation needs. A schedule that deadlocks is
// a result: Timeline::deadlock says who waits for whom.
SimulatedStep simulate_step(const Job& job, const Profile& profile,
                            const StepOptions& options = {});

// The second half of it: prices, folds and plays `step.program`, so that other readings of the
// Program can go on at the same time.
void play(SimulatedStep& step, const Job& job, const Profile& profile, const StepOptions& options);
Timeline play(const Program& program, const Job& job, const Profile& profile,
              const StepOptions& options, LoweredStep& lowered);

// A wait of a deadlock in the schedule's own words: "pipeline rank 2, 2F5, send hidden: waits for
// ...".
std::string describe(const SimulatedStep& step, const Wait& wait);

}  // namespace headway
