#include <CLI/CLI.hpp>
#include <chrono>
#include <ctime>
#include <ostream>

#include "sim/commands/command.hpp"
#include "sim/commands/job_options.hpp"
#include "sim/program/program_json.hpp"
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
  std::vector<std::string> degrade, slow;
};

void add_options(CLI::App& app, SimulateArguments& arguments) {
  arguments.job.add_to(app);
  app.add_option("--json", arguments.json, "write the result as JSON; - is standard output");
  app.add_option("--trace", arguments.trace, "write a Chrome/Perfetto trace (.json or .json.gz)");
  app.add_option("--program", arguments.program, "write the Program as JSON");
  app.add_option("--detail", arguments.detail, "of the trace")
      ->check(CLI::IsMember({"segment", "operation"}));
  app.add_option("--flops", arguments.flops, "convention of the model FLOPs")
      ->check(CLI::IsMember({"headway", "megatron", "palm", "sc21", "korthikanti", "foundry"}));
  app.add_flag("--unfolded", arguments.unfolded, "simulate every rank on its own");
  app.add_flag("--print-job", arguments.print_job, "print the fully resolved job and stop");
  app.add_flag("--require-fit", arguments.require_fit, "exit with 3 where it does not fit");
  app.add_flag("--timing", arguments.timing, "add wall-clock figures");
  app.add_option("--degrade", arguments.degrade, "leave a kind of link this share of its bandwidth")
      ->type_name("LINK=SHARE");
  app.add_option("--slow", arguments.slow, "a rank computes slower by this factor")
      ->type_name("RANK=FACTOR");
  app.footer("example: headway simulate job.json --tp 4 --trace step.json.gz");
}

// "nic=0.5" -> ("nic", 0.5). Adds a problem where it is no such pair or out of range.
std::optional<std::pair<std::string, double>> read_factor(const std::string& text,
                                                          const std::string& option, double min,
                                                          double max, Problems& problems) {
  const std::size_t equals = text.find('=');
  char* end = nullptr;
  const double value = equals == std::string::npos ? 0 : std::strtod(text.c_str() + equals + 1, &end);
  if (end == nullptr || *end != '\0' || end == text.c_str() + equals + 1 || !(value >= min) ||
      !(value <= max)) {
    problems.add(option, "", "'" + text + "' is no NAME=NUMBER with a number from " +
                 std::to_string(min) + " to " + std::to_string(max));
    return std::nullopt;
  }
  return std::pair(text.substr(0, equals), value);
}

MachineWhatIf read_machine(const SimulateArguments& arguments, const Job& job) {
  Problems problems;
  MachineWhatIf machine;
  for (const std::string& text : arguments.degrade) {
    if (const auto pair = read_factor(text, "--degrade", 0.001, 1, problems)) {
      std::vector<std::string> kinds;
      for (const TopologyLink& link : job.topology.links()) kinds.push_back(link.kind);
      std::sort(kinds.begin(), kinds.end());
      kinds.erase(std::unique(kinds.begin(), kinds.end()), kinds.end());
      if (std::find(kinds.begin(), kinds.end(), pair->first) == kinds.end()) {
        problems.add("--degrade", "", "there is no link kind '" + pair->first + "'; expected " +
                     any_of(kinds));
      }
      machine.degraded_links[pair->first] = pair->second;
    }
  }
  for (const std::string& text : arguments.slow) {
    if (const auto pair = read_factor(text, "--slow", 1, 1000, problems)) {
      char* end = nullptr;
      const long rank = std::strtol(pair->first.c_str(), &end, 10);
      if (*end != '\0' || pair->first.empty() || rank < 0 || rank >= job.gpus()) {
        problems.add("--slow", "", "'" + pair->first + "' is no rank; expected 0 to " +
                     std::to_string(job.gpus() - 1));
        continue;
      }
      machine.slow_ranks[static_cast<int>(rank)] = pair->second;
    }
  }
  problems.throw_if_any();
  return machine;
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

  const Job job = arguments.job.read();
  print_notes(job, line);
  if (arguments.print_job) {
    write_answer("-", resolved_job_json(job, 2), line);
    return kAnswered;
  }
  const auto start = std::chrono::steady_clock::now();
  const Profile profile = read_profile(job.profile);
  StepOptions options;
  options.unfolded = arguments.unfolded;
  options.machine = read_machine(arguments, job);
  if (!arguments.trace.empty()) {
    options.detail = arguments.detail == "operation" ? Detail::kTasks : Detail::kInstances;
  }
  const SimulatedStep step = simulate_step(job, profile, options);
  const StepReport report =
      report_step(job, profile, step, {.flops = *flops_convention_named(arguments.flops)});
  std::optional<WallClock> wall_clock;
  if (arguments.timing) {
    const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - start;
    wall_clock = {wall.count(), static_cast<double>(std::clock()) / CLOCKS_PER_SEC};
  }

  if (!arguments.program.empty()) write_answer(arguments.program, to_json(step.program), line);
  if (!arguments.trace.empty()) write_trace(arguments.trace, step, line);
  if (!arguments.json.empty()) write_answer(arguments.json, result_json(job, report, wall_clock), line);
  if (arguments.json != "-" && arguments.program != "-" && arguments.trace != "-") {
    line.out << summary(job, report);
    if (wall_clock) {
      line.out << "simulated in " << wall_clock->library_s * 1e3 << " ms (process "
               << wall_clock->process_s * 1e3 << " ms), " << report.events << " events\n";
    }
  }
  if (!report.deadlock.empty()) return kCheckFailed;
  return arguments.require_fit && !report.memory.fits ? kDoesNotFit : kAnswered;
}

}  // namespace headway
