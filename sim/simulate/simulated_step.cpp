#include "sim/simulate/simulated_step.hpp"

#include <utility>

#include "sim/program/training_step.hpp"
#include "sim/simulate/steady_step.hpp"

namespace headway {

SimulatedStep simulate_step(const Job& job, const Profile& profile, const StepOptions& options) {
  SimulatedStep step;
  step.program = lower(job);
  play(step, job, profile, options);
  return step;
}

namespace {

SimulateOptions engine_options(const StepOptions& options) {
  SimulateOptions engine;
  engine.detail = options.detail;
  engine.critical_path = options.critical_path;
  return engine;
}

// Where every micro-batch is a mini-batch nothing ends with the step (PipeDream): the step is what
// as many mini-batches take once the pipeline is full, that is what they add to a run that has
// filled and drained it. Spans are those of a run of the step's mini-batches alone.
Timeline steady_mini_batches(const SimulatedStep& step, const Job& job, const Profile& profile,
                             const StepOptions& options) {
  const Timeline alone = simulate(step.lowered.graph, engine_options(options));
  if (!alone.deadlock.empty()) return alone;
  constexpr std::int64_t kFills =
      2;  // of the pipeline, before the steady state is taken for granted
  StepOptions totals = options;
  totals.detail = Detail::kTotals;
  const auto run = [&](std::int64_t micro_batches) {
    Job longer = job;
    longer.global_batch = job.global_batch / job.plan.micro_batches * micro_batches;
    longer.plan.micro_batches = micro_batches;
    const Program program = lower(longer);
    const LoweredStep lowered = lower_to_tasks({.program = program,
                                                .topology = job.topology,
                                                .profile = profile,
                                                .software = job.software,
                                                .machine = options.machine,
                                                .unfolded = options.unfolded,
                                                .prices = options.prices});
    return simulate(lowered.graph, engine_options(totals));
  };
  const std::int64_t filled = kFills * job.plan.pp;
  Timeline steady = beyond(run(filled + job.plan.micro_batches), run(filled));
  steady.spans = alone.spans;
  return steady;
}

}  // namespace

void play(SimulatedStep& step, const Job& job, const Profile& profile, const StepOptions& options) {
  step.lowered = lower_to_tasks({.program = step.program,
                                 .topology = job.topology,
                                 .profile = profile,
                                 .software = job.software,
                                 .machine = options.machine,
                                 .unfolded = options.unfolded,
                                 .prices = options.prices});
  const SimulateOptions engine = engine_options(options);
  if (step.program.updates_every_micro_batch) {
    step.timeline = steady_mini_batches(step, job, profile, options);
  } else if (step.program.steps_overlap) {
    step.timeline = steady_step(step.lowered.graph, engine);
  } else {
    step.timeline = simulate(step.lowered.graph, engine);
  }
}

std::string describe(const SimulatedStep& step, const Wait& wait) {
  const auto device = static_cast<std::size_t>(wait.device);
  const RankKind& kind =
      step.program.kinds[static_cast<std::size_t>(step.lowered.device_kind[device])];
  std::string text = kind.name + " (rank " + std::to_string(step.lowered.device_rank[device]) + ")";
  const auto& instance = step.lowered.graph.instances[static_cast<std::size_t>(wait.instance)];
  const Issue& issue = kind.order[static_cast<std::size_t>(instance.label)];
  const Pass& pass = kind.passes[static_cast<std::size_t>(issue.pass)];
  text += ", " + pass.name;
  if (issue.micro_batch >= 0) text += std::to_string(issue.micro_batch);
  const auto& origins = step.lowered.origins[static_cast<std::size_t>(instance.task_template)];
  if (wait.task >= 0 && static_cast<std::size_t>(wait.task) < origins.size()) {
    const TaskOrigin& origin = origins[static_cast<std::size_t>(wait.task)];
    text += ", " + step.program.templates[static_cast<std::size_t>(origin.template_index)]
                       .operations[static_cast<std::size_t>(origin.operation)]
                       .name;
  }
  return text + ": waits for " + wait.what;
}

}  // namespace headway
