#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <future>
#include <ostream>
#include <set>
#include <sstream>

#include "sim/commands/command.hpp"
#include "sim/commands/job_options.hpp"
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
  std::vector<std::string> degrade, slow;
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
  app.add_option("--degrade", arguments.degrade, "leave a kind of link this share of its bandwidth")
      ->allow_extra_args(false)
      ->type_name("LINK=SHARE");
  app.add_option("--slow", arguments.slow, "a rank computes slower by this factor")
      ->allow_extra_args(false)
      ->type_name("RANK=FACTOR");
  app.footer("example: headway simulate job.json --tp 4 --trace step.json.gz");
}

struct Factor {
  std::string name;
  double value = 1;
};

// "nic=0.5". Adds a problem where it is no such pair or out of range.
std::optional<Factor> read_factor(const std::string& text, const std::string& option, double min,
                                  double max, Problems& problems) {
  const std::size_t equals = text.find('=');
  if (equals != std::string::npos && equals > 0) {
    const char* const begin = text.c_str() + equals + 1;
    char* end = nullptr;
    const double value = std::strtod(begin, &end);
    if (end != begin && *end == '\0' && value >= min && value <= max) {
      return Factor{text.substr(0, equals), value};
    }
  }
  std::ostringstream range;
  range << min << " to " << max;
  problems.add(option, "", "'" + text + "' is no NAME=NUMBER with a number from " + range.str());
  return std::nullopt;
}

// The kinds of links that the job's cluster has.
std::vector<std::string> link_kinds_of(const Topology& topology) {
  std::set<std::string> kinds;
  for (const TopologyLink& link : topology.links()) kinds.insert(link.kind);
  return {kinds.begin(), kinds.end()};
}

MachineWhatIf read_machine(const SimulateArguments& arguments, const Job& job) {
  constexpr double kLeastShare = 0.001, kMostSlowing = 1000;  // beyond, it is a broken machine
  Problems problems;
  MachineWhatIf machine;
  std::vector<std::string> kinds;
  if (!arguments.degrade.empty()) kinds = link_kinds_of(job.topology);
  for (const std::string& text : arguments.degrade) {
    const auto factor = read_factor(text, "--degrade", kLeastShare, 1, problems);
    if (!factor) continue;
    if (std::find(kinds.begin(), kinds.end(), factor->name) == kinds.end()) {
      problems.add(
          "--degrade", "",
          "this cluster has no links of kind '" + factor->name + "'; expected " + any_of(kinds));
    }
    machine.degraded_links[factor->name] = factor->value;
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
  std::optional<WallClock> wall_clock;
  if (arguments.timing) {
    const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - start;
    wall_clock = {wall.count(), seconds_since_start()};
  }

  if (!arguments.program.empty()) write_answer(arguments.program, to_json(step.program), line);
  if (!arguments.trace.empty()) write_trace(arguments.trace, step, line);
  if (!arguments.json.empty())
    write_answer(arguments.json, result_json(job, report, wall_clock), line);
  if (arguments.json != "-" && arguments.program != "-" && arguments.trace != "-") {
    line.out << summary(job, report);
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
