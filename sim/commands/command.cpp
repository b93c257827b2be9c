#include "sim/commands/command.hpp"

#include <CLI/CLI.hpp>
#include <chrono>
#include <exception>
#include <new>
#include <ostream>

#include "sim/core/error.hpp"
#include "sim/core/file.hpp"

namespace headway {

namespace {

constexpr const char* kVersion = HEADWAY_VERSION;

// Taken while the program is loaded.
const std::chrono::steady_clock::time_point kStart = std::chrono::steady_clock::now();

void print_help(std::ostream& out) {
  out << "headway " << kVersion
      << ": how long one step of parallel training takes, whether it fits, and why\n\n"
         "usage: headway COMMAND [OPTIONS]; headway COMMAND --help says more\n\n";
  for (const Command& command : commands()) {
    out << "  " << command.name << std::string(12 - command.name.size(), ' ') << command.summary
        << '\n';
  }
  out << "\nexample: headway simulate --model llama3-70b --cluster dgx-h100 --gpus 512 --tp 8 "
         "--pp 4 --sequence-length 8192 --global-batch 1024\n";
}

int run(const Command& command, const CommandLine& line) {
  try {
    const int exit_code = command.run(
        {{line.arguments.begin() + 1, line.arguments.end()}, line.out, line.err, line.processes});
    line.out.flush();
    if (!line.out) throw MachineFailure("standard output: writing failed");
    return exit_code;
  } catch (const InvalidInput& error) {
    for (const Problem& problem : error.problems())
      line.err << "headway: " << problem.text() << '\n';
    return kBadInput;
  } catch (const MachineFailure& error) {
    line.err << "headway: " << error.what() << '\n';
    return kMachineFailed;
  } catch (const std::bad_alloc&) {
    line.err << "headway: out of memory\n";
    return kMachineFailed;
  } catch (const std::exception& error) {
    line.err << "headway: " << error.what() << '\n';
    return kMachineFailed;
  }
}

}  // namespace

const std::vector<Command>& commands() {
  static const std::vector<Command> table = {
      {"simulate", "plays one training step out and says how long it takes and why",
       simulate_command},
      {"plan", "searches what a job leaves open: which degrees, which schedule, and why",
       plan_command},
      {"whatif", "a job for every combination of values of some fields, as a table",
       whatif_command},
      {"explain", "why a step takes as long as it does, and what more of a resource would buy",
       explain_command},
      {"execute", "runs one training step for real (small models) and checks its numbers",
       execute_command},
      {"crosscheck", "simulates jobs and runs them for real, side by side", crosscheck_command},
      {"calibrate", "measures this machine and writes its profile", calibrate_command},
      {"compare", "puts two results, traces or jobs side by side", compare_command},
      {"validate", "simulates measured runs and prints how far off it is", validate_command},
      {"fit", "makes a profile from measured points, or checks the profiles against them",
       fit_command},
      {"topology", "prints a cluster's graph: summary, routes, Graphviz", topology_command},
      {"import", "turns another tool's file into ours", import_command},
      {"export", "writes a job as another tool's file", export_command},
      {"list", "the models, clusters, profiles, schedules and frameworks that ship", list_command},
      {"doctor", "what this machine has, what is missing and how to get it", doctor_command},
  };
  return table;
}

int run_command_line(const CommandLine& line) {
  if (line.arguments.empty()) {
    print_help(line.err);
    return kBadInput;
  }
  const std::string& first = line.arguments.front();
  if (first == "--help" || first == "-h" || first == "help") {
    print_help(line.out);
    return kAnswered;
  }
  if (first == "--version") {
    line.out << "headway " << kVersion << '\n';
    return kAnswered;
  }
  std::vector<std::string> names;
  for (const Command& command : commands()) {
    if (command.name == first) return run(command, line);
    names.push_back(command.name);
  }
  const std::string near = nearest(first, names);
  line.err << "headway: there is no command '" << first << "'; expected " << any_of(names)
           << (near.empty() ? "" : " (did you mean " + near + "?)") << '\n';
  return kBadInput;
}

namespace {

// CLI11 takes what it does not know for words without a place; of these the options are named, each
// with the nearest that the command has. Empty where nothing was left over.
std::string unknown_arguments(const CLI::App& app) {
  std::vector<std::string> known;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  }
  const std::vector<std::string> left_over = app.remaining();
  std::string text;
  for (const std::string& argument : left_over) {
    if (!argument.starts_with('-') || argument == "-") continue;
    const std::string option = argument.substr(0, argument.find('='));
    const std::string near = nearest(option, known);
    text += "headway: there is no option " + option +
            (near.empty() ? "" : " (did you mean " + near + "?)") + "; " + app.get_name() +
            " --help lists them\n";
  }
  if (text.empty() && !left_over.empty()) {
    text = "headway: '" + left_over.front() + "' has no place here; " + app.get_name() +
           " --help says what is expected\n";
  }
  return text;
}

}  // namespace

double seconds_since_start() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - kStart).count();
}

ParseResult parse(CLI::App& app, const CommandLine& line) {
  app.allow_extras();
  std::vector<std::string> reversed(line.arguments.rbegin(), line.arguments.rend());
  std::string complaint;
  try {
    app.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    line.out << app.help();
    return {false, kAnswered};
  } catch (const CLI::ParseError& error) {
    complaint = std::string("headway: ") + error.what() + '\n';
  }
  // An unknown option is the likelier reason for whatever else is wrong.
  if (const std::string unknown = unknown_arguments(app); !unknown.empty()) complaint = unknown;
  if (complaint.empty()) return {};
  line.err << complaint;
  return {false, kBadInput};
}

void write_answer(const std::string& path, const std::string& text, const CommandLine& line) {
  if (path == "-") {
    line.out << text;
  } else {
    write_file(path, text);
  }
}

}  // namespace headway
