#include <CLI/CLI.hpp>
#include <algorithm>
#include <ostream>

#include "sim/commands/command.hpp"
#include "sim/commands/execution.hpp"
#include "sim/commands/job_options.hpp"
#include "sim/core/json_writer.hpp"
#include "sim/core/quantity.hpp"
#include "sim/program/training_step.hpp"
#include "sim/report/json.hpp"
#include "sim/report/step_report.hpp"
#include "sim/report/text.hpp"
#include "sim/report/trace.hpp"
#include "sim/simulate/measured_step.hpp"

namespace headway {

namespace {

struct ExecuteArguments {
  JobOptions job;
  std::string json, trace;
  ExecutionRequest request;
};

void add_options(CLI::App& app, ExecuteArguments& arguments) {
  arguments.job.add_to(app);
  app.add_option("--backend", arguments.request.backend, "what it runs on")
      ->check(CLI::IsMember(backends()));
  app.add_option("--steps", arguments.request.steps, "training steps")
      ->check(CLI::Range(1, 100000));
  app.add_option("--warm-up", arguments.request.warm_up, "steps before those")
      ->check(CLI::Range(0, 100000));
  app.add_option("--seed", arguments.request.seed, "of weights, data and dropout")
      ->check(CLI::Range(std::int64_t{0}, std::numeric_limits<std::int64_t>::max()));
  app.add_flag("--check", arguments.request.check,
               "compare loss and gradients with a run on one rank");
  app.add_flag("--mpi", arguments.request.mpi,
               "ranks as processes, on a core each where there are enough; under an mpirun this is "
               "one of its processes");
  app.add_option("--json", arguments.json, "write the result as JSON; - is standard output");
  app.add_option("--trace", arguments.trace, "write a Chrome/Perfetto trace (.json or .json.gz)");
  app.footer("example: headway execute job.json --backend cpu --check --trace measured.json");
}

StepReport measured_report(const Job& job, const Profile& profile, const SimulatedStep& step,
                           const Execution& execution) {
  StepReport report = report_step(job, profile, step);
  const auto [low, high] =
      std::minmax_element(execution.durations.begin(), execution.durations.end());
  report.interval_low = *low;
  report.interval_high = *high;
  return report;
}

std::string losses_json(const Execution& execution) {
  JsonWriter json(0);
  json.begin_array();
  for (const double loss : execution.losses) {
    if (std::isfinite(loss)) {
      json.value(loss);
    } else {
      json.null();
    }
  }
  json.end_array();
  return json.text();
}

bool passed(const Execution& execution) {
  if (!execution.check) return true;
  const auto verdict = execution.check->find("passed");
  return verdict && verdict->is_boolean() && verdict->boolean();
}

// One line of the check, and its problems.
void print_check(const Execution& execution, const CommandLine& line) {
  if (!execution.check) return;
  const JsonNode& check = *execution.check;
  const auto text = [](const JsonNode& node, const char* key) {
    const auto value = node.find(key);
    return !value ? std::string("?") : value->is_string() ? value->string() : value->text();
  };
  line.out << "check " << (passed(execution) ? "passed" : "FAILED") << ": loss off by "
           << text(check, "loss_error");
  if (const auto gradients = check.find("gradients"); gradients && gradients->is_object()) {
    line.out << ", gradients by at most " << text(*gradients, "worst") << " (limit "
             << text(*gradients, "limit") << ", at " << text(*gradients, "tensor") << ")";
  }
  line.out << ", " << text(check, "order_violations") << " of " << text(check, "order_demands")
           << " orders broken\n";
  const auto problems = check.find("problems");
  if (!problems || !problems->is_array()) return;
  for (const JsonNode& problem : problems->elements()) line.err << problem.string() << '\n';
}

}  // namespace

int execute_command(const CommandLine& line) {
  ExecuteArguments arguments;
  CLI::App app("Runs training steps of a job for real, and checks what they compute.",
               "headway execute");
  add_options(app, arguments);
  if (const ParseResult parsed = parse(app, line); !parsed.proceed) return parsed.exit_code;
  const Job job = arguments.job.read();
  print_notes(job, line);
  Program program = lower(job);
  arguments.request.mpi = arguments.request.mpi || under_mpirun();
  require_possible(arguments.request);
  const auto answer = execute_job(job, program, arguments.request);
  if (!answer) return kAnswered;  // another process of the mpirun has it
  const Execution& execution = *answer;
  if (execution.outcome != "finished") {
    for (const std::string& wait : execution.deadlock) line.err << wait << '\n';
    for (const std::string& message : execution.messages) line.err << message << '\n';
    return execution.outcome == "deadlock" ? kCheckFailed : kMachineFailed;
  }
  const Profile profile = read_profile(job.profile);
  const SimulatedStep step = measured_step(std::move(program), execution.timeline);
  const StepReport report = measured_report(job, profile, step, execution);

  std::vector<AddedField> added = {{"losses", losses_json(execution)}};
  if (execution.check) added.push_back({"check", execution.check->text()});
  if (!arguments.trace.empty()) {
    const std::string text = trace_json(step);
    write_answer(arguments.trace, arguments.trace.ends_with(".gz") ? gzip(text) : text, line);
  }
  if (!arguments.json.empty()) {
    write_answer(arguments.json, result_json(job, report, std::nullopt, added), line);
  }
  if (arguments.json != "-" && arguments.trace != "-") {
    line.out << summary(job, report) << "measured over " << arguments.request.steps << " step"
             << (arguments.request.steps == 1 ? "" : "s") << " on " << job.gpus() << " ranks; loss "
             << execution.losses.front();
    if (execution.losses.size() > 1) line.out << " -> " << execution.losses.back();
    line.out << '\n';
    print_check(execution, line);
  }
  return passed(execution) ? kAnswered : kCheckFailed;
}

}  // namespace headway
