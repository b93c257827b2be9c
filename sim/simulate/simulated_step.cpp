#include "sim/simulate/simulated_step.hpp"

#include <algorithm>
#include <utility>

#include "sim/cluster/cluster_description.hpp"
#include "sim/program/training_step.hpp"
#include "sim/simulate/background.hpp"
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
Timeline steady_mini_batches(const TaskGraph& graph, const Job& job, const Profile& profile,
                             const StepOptions& options) {
  const Timeline alone = simulate(graph, engine_options(options));
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

// The cluster with room for all jobs: the job's own begins at its first GPU.
Topology with_room(const Job& job, const std::vector<BackgroundJob>& background) {
  int gpus = job.gpus();
  for (const BackgroundJob& other : background) {
    gpus = std::max(gpus, other.first_gpu + other.job->gpus());
  }
  return gpus == job.gpus() ? job.topology : Topology(job.topology.description(), gpus);
}

}  // namespace

void play(SimulatedStep& step, const Job& job, const Profile& profile, const StepOptions& options) {
  step.timeline = play(step.program, job, profile, options, step.lowered);
}

Timeline play(const Program& program, const Job& job, const Profile& profile,
              const StepOptions& options, LoweredStep& lowered) {
  const Topology topology = with_room(job, options.background);
  const MachineWhatIf others_machine{{}, options.machine.degraded_links};
  std::vector<Program> others;
  for (const BackgroundJob& other : options.background) others.push_back(lower(*other.job));
  std::vector<LoweringInput> inputs = {{.program = program,
                                        .topology = topology,
                                        .profile = profile,
                                        .software = job.software,
                                        .machine = options.machine,
                                        .unfolded = options.unfolded,
                                        .prices = options.prices}};
  for (std::size_t i = 0; i < others.size(); ++i) {
    const BackgroundJob& other = options.background[i];
    inputs.push_back({.program = others[i],
                      .topology = topology,
                      .profile = *other.profile,
                      .software = other.job->software,
                      .machine = others_machine,
                      .unfolded = options.unfolded,
                      .first_gpu = other.first_gpu});
  }
  std::vector<LoweredStep> steps = lower_together(inputs);
  lowered = std::move(steps.front());
  const SimulateOptions engine = engine_options(options);
  if (!others.empty()) {
    std::vector<const TaskGraph*> beside;
    for (std::size_t i = 1; i < steps.size(); ++i) beside.push_back(&steps[i].graph);
    return play_beside(lowered.graph, beside, engine);
  }
  if (program.updates_every_micro_batch)
    return steady_mini_batches(lowered.graph, job, profile, options);
  return program.steps_overlap ? steady_step(lowered.graph, engine)
                               : simulate(lowered.graph, engine);
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
