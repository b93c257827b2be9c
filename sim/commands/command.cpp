#include "sim/commands/command.hpp"

#include <CLI/CLI.hpp>
#include <new>
#include <ostream>

#include "sim/core/error.hpp"
#include "sim/core/file.hpp"

namespace headway {

namespace {

constexpr const char* kVersion = HEADWAY_VERSION;

void print_help(std::ostream& out) {
  out << "headway " << kVersion
      << ": how long one step of parallel training takes, whether it fits, and why\n\n"
         "usage: headway COMMAND [OPTIONS]; headway COMMAND --help says more\n\n";
  for (const Command& command : commands()) {
    out << "  " << command.name << std::string(12 - command.name.size(), ' ') << command.summary
        << '\n';
  }
  out << "\nexample: headway simulate --model llama3-70b --cluster dgx-h100 --gpus 512 --tp 8 --pp 4 "
         "--global-batch 1024\n";
}

int run(const Command& command, const CommandLine& line) {
  try {
    return command.run({{line.arguments.begin() + 1, line.arguments.end()}, line.out, line.err});
  } catch (const InvalidInput& error) {
    for (const Problem& problem : error.problems()) line.err << "headway: " << problem.text() << '\n';
    return kBadInput;
  } catch (const MachineFailure& error) {
    line.err << "headway: " << error.what() << '\n';
    return kMachineFailed;
  } catch (const std::bad_alloc&) {
    line.err << "headway: out of memory\n";
    return kMachineFailed;
  }
}

}  // namespace

const std::vector<Command>& commands() {
  static const std::vector<Command> table = {
      {"simulate", "plays one training step out and says how long it takes and why", simulate_command},
      {"validate", "simulates measured runs and prints how far off it is", validate_command},
      {"topology", "prints a cluster's graph: summary, routes, Graphviz", topology_command},
      {"import", "turns another tool's file into ours", import_command},
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

ParseResult parse(CLI::App& app, const CommandLine& line) {
  std::vector<std::string> reversed(line.arguments.rbegin(), line.arguments.rend());
  try {
    app.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    line.out << app.help();
    return {false, kAnswered};
  } catch (const CLI::ParseError& error) {
    line.err << "headway: " << error.what();
    for (const std::string& argument : line.arguments) {
      if (!argument.starts_with("--")) continue;
      std::vector<std::string> known;
      for (const CLI::Option* option : app.get_options()) {
        for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
      }
      const std::string asked = argument.substr(0, argument.find('='));
      if (std::find(known.begin(), known.end(), asked) != known.end()) continue;
      const std::string near = nearest(asked, known);
      if (!near.empty()) line.err << " (did you mean " << near << "?)";
      break;
    }
    line.err << '\n';
    return {false, kBadInput};
  }
  return {};
}

void write_answer(const std::string& path, const std::string& text, const CommandLine& line) {
  if (path == "-") {
    line.out << text;
    line.out.flush();
    if (!line.out) throw MachineFailure("standard output: writing failed");
  } else {
    write_file(path, text);
  }
}

}  // namespace headway
