#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <future>
#include <ostream>
#include <sstream>

#include "sim/cluster/link_names.hpp"
#include "sim/commands/command.hpp"
#include "sim/commands/job_options.hpp"
#include "sim/commands/machine_options.hpp"
#include "sim/core/heap.hpp"
#include "sim/program/program_json.hpp"
#include "sim/program/training_step.hpp"
#include "sim/report/json.hpp"
#include "sim/report/step_report.hpp"
#include "sim/report/text.hpp"
#include "sim/report/trace.hpp"
#include "sim/simulate/simulated_step.hpp"

namespace headway {

namespace {

struct SimulateArguments {
  JobOptions job;
  std::string json, trace, program, detail = "segment", flops = "headway";
  bool unfolded = false, print_job = false, require_fit = false, timing = false;
  std::vector<std::string> degrade, slow, background;
  std::optional<double> sigma;
  std::optional<int> draws;
  std::optional<std::int64_t> seed;
};

void add_options(CLI::App& app, SimulateArguments& arguments) {
  arguments.job.add_to(app);
  app.add_option("--json", arguments.json, "write the result as JSON; - is standard output")
      ->type_name("FILE");
  app.add_option("--trace", arguments.trace, "write a Chrome/Perfetto trace (.json or .json.gz)")
      ->type_name("FILE");
  app.add_option("--program", arguments.program, "write the Program as JSON")->type_name("FILE");
  app.add_option("--detail", arguments.detail, "of the trace")
      ->check(CLI::IsMember({"segment", "operation"}));
  app.add_option("--flops", arguments.flops, "convention of the model FLOPs")
      ->check(CLI::IsMember({"headway", "megatron", "palm", "sc21", "korthikanti", "foundry"}));
  app.add_flag("--unfolded", arguments.unfolded, "simulate every rank on its own");
  app.add_flag("--print-job", arguments.print_job, "print the fully resolved job and stop");
  app.add_flag("--require-fit", arguments.require_fit, "exit with 3 where it does not fit");
  app.add_flag("--timing", arguments.timing, "add wall-clock figures");
  app.add_option(kDegrade, arguments.degrade, kDegradeHelp)
      ->allow_extra_args(false)
      ->type_name("LINK=SHARE");
  app.add_option("--slow", arguments.slow, "a rank computes slower by this factor")
      ->allow_extra_args(false)
      ->type_name("RANK=FACTOR");
  app.add_option("--background", arguments.background,
                 "another job runs beside, step after step, from this GPU of the cluster on")
      ->allow_extra_args(false)
      ->type_name("JOB.json@GPU");
  app.add_option("--jitter", arguments.sigma,
                 "every GPU its own speed: the spread (sigma of the logarithm) of compute times, "
                 "such as 0.02; adds the distribution of the step time")
      ->type_name("SIGMA");
  app.add_option("--draws", arguments.draws, "of --jitter: steps drawn (100)");
  app.add_option("--seed", arguments.seed, "of --jitter (1)");
  app.footer("example: headway simulate job.json --tp 4 --trace step.json.gz");
}

MachineWhatIf read_machine(const SimulateArguments& arguments, const Job& job) {
  constexpr double kMostSlowing = 1000;  // beyond, it is a broken machine
  Problems problems;
  MachineWhatIf machine;
  machine.degraded_links = read_degraded(arguments.degrade, problems);
  if (!machine.degraded_links.empty()) {
    link_shares(job.topology, machine.degraded_links, kDegrade, problems);
  }
  for (const std::string& text : arguments.slow) {
    const auto factor = read_factor(text, "--slow", 1, kMostSlowing, problems);
    if (!factor) continue;
    int rank = -1;
    const char* const end = factor->name.data() + factor->name.size();
    const auto [stop, error] = std::from_chars(factor->name.data(), end, rank);
    if (error != std::errc() || stop != end || rank < 0 || rank >= job.gpus()) {
      problems.add(
          "--slow", "",
          "'" + factor->name + "' is no rank; expected 0 to " + std::to_string(job.gpus() - 1));
      continue;
    }
    machine.slow_ranks[rank] = factor->value;
  }
  problems.throw_if_any();
  return machine;
}

// Only one answer can be standard output's.
void check_outputs(const SimulateArguments& arguments) {
  Problems problems;
  std::string first;
  for (const auto& [option, path] :
       {std::pair("--json", &arguments.json), std::pair("--trace", &arguments.trace),
        std::pair("--program", &arguments.program)}) {
    if (*path != "-") continue;
    if (!first.empty()) {
      problems.add(option, "", "- is taken by " + first + " already; expected a file");
    }
    first = option;
  }
  problems.throw_if_any();
}

void write_trace(const std::string& path, const SimulatedStep& step, const CommandLine& line) {
  const std::string text = trace_json(step);
  write_answer(path, path.ends_with(".gz") ? gzip(text) : text, line);
}

}  // namespace

int simulate_command(const CommandLine& line) {
  SimulateArguments arguments;
  CLI::App app("Plays one training step out: its time, where the time goes, whether it fits.",
               "headway simulate");
  add_options(app, arguments);
  if (const ParseResult parsed = parse(app, line); !parsed.proceed) return parsed.exit_code;

  check_outputs(arguments);
  const Job job = arguments.job.read();
  print_notes(job, line);
  if (arguments.print_job) {
    write_answer("-", resolved_job_json(job, 2), line);
    return kAnswered;
  }
  const Profile profile = read_profile(job.profile);
  const auto start = std::chrono::steady_clock::now();
  StepOptions options;
  options.unfolded = arguments.unfolded;
  options.critical_path = true;
  options.machine = read_machine(arguments, job);
  const BackgroundJobs background(arguments.background, job);
  options.background = background.jobs();
  const std::optional<JitterOptions> jittered =
      read_jitter(arguments.sigma, arguments.draws, arguments.seed);
  if (!arguments.trace.empty()) {
    options.detail = arguments.detail == "operation" ? Detail::kTasks : Detail::kInstances;
  }
  SimulatedStep step;
  step.program = lower(job);
  // Memory needs no clock: it is read from the Program while that is played.
  auto memory = std::async(std::launch::async, [&] {
    use_huge_pages_in_thread();
    return report_memory(job, step.program, profile.device);
  });
  play(step, job, profile, options);
  const StepReport report = report_step(job, profile, step, memory.get(),
                                        {.flops = *flops_convention_named(arguments.flops)});
  std::vector<AddedField> added;
  std::string more;  // lines of the summary
  if (!options.background.empty()) {
    StepOptions alone = options;
    alone.background.clear();
    alone.detail = Detail::kTotals;
    LoweredStep lowered;
    const Time undisturbed = play(step.program, job, profile, alone, lowered).makespan;
    more += background_words(background, undisturbed);
    added.push_back({"background", background_json(background, undisturbed)});
  }
  if (jittered && report.deadlock.empty()) {
    const JitterReport drawn = jitter(step.program, job, profile, options, *jittered);
    more += jitter_words(*jittered, drawn, report.iteration);
    added.push_back({"jitter", jitter_json(*jittered, drawn)});
  }
  std::optional<WallClock> wall_clock;
  if (arguments.timing) {
    const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - start;
    wall_clock = {wall.count(), seconds_since_start()};
  }

  if (!arguments.program.empty()) write_answer(arguments.program, to_json(step.program), line);
  if (!arguments.trace.empty()) write_trace(arguments.trace, step, line);
  if (!arguments.json.empty())
    write_answer(arguments.json, result_json(job, report, wall_clock, added), line);
  if (arguments.json != "-" && arguments.program != "-" && arguments.trace != "-") {
    line.out << summary(job, report) << more;
    if (wall_clock) {
      line.out << "simulated in " << wall_clock->library_s * 1e3 << " ms (process "
               << wall_clock->process_s * 1e3 << " ms), " << report.events << " events\n";
    }
  }
  return exit_code_of(report, arguments.require_fit);
}

int exit_code_of(const StepReport& report, bool require_fit) {
  if (!report.deadlock.empty()) return kCheckFailed;
  return require_fit && !report.memory.fits ? kDoesNotFit : kAnswered;
}

}  // namespace headway
