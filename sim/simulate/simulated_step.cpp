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

void play(SimulatedStep& step, const Job& job, const Profile& profile, const StepOptions& options) {
  step.lowered = lower_to_tasks({.program = step.program,
                                 .topology = job.topology,
                                 .profile = profile,
                                 .software = job.software,
                                 .machine = options.machine,
                                 .unfolded = options.unfolded,
                                 .prices = options.prices});
  SimulateOptions engine_options;
  engine_options.detail = options.detail;
  engine_options.critical_path = options.critical_path;
  step.timeline = step.program.steps_overlap ? steady_step(step.lowered.graph, engine_options)
                                             : simulate(step.lowered.graph, engine_options);
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
