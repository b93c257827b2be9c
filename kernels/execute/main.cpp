// headway-execute-cpu: runs a Program for real on this machine's CPU and writes what it measured.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>

#include "kernels/execute/execution_json.hpp"
#include "sim/core/error.hpp"
#include "sim/core/file.hpp"
#include "sim/program/lifetime.hpp"
#include "sim/program/program_json.hpp"

namespace headway {
namespace {

// As the commands of the program (sim/commands/command.hpp).
constexpr int kAnswered = 0;
constexpr int kMachineFailed = 1;
constexpr int kBadInput = 2;
constexpr int kCheckFailed = 4;

// A CPU holds 16-bit types in 32 bits, and copies what it communicates.
constexpr double kHeldPerDeclaredByte = 3;

struct Arguments {
  std::string program, reference, output;
  ExecuteOptions options;
  double patience_s = 60;
  std::int64_t memory_limit = 0;
};

void add_options(CLI::App& app, Arguments& arguments) {
  app.add_option("PROGRAM", arguments.program, "the Program, as `headway simulate --program`")
      ->required();
  app.add_option("--reference", arguments.reference,
                 "the Program of the same step on one rank, to compare with");
  app.add_option("--output", arguments.output, "where the measurements go; - is standard output")
      ->required();
  app.add_option("--steps", arguments.options.steps, "training steps")
      ->check(CLI::Range(1, 100000));
  app.add_option("--seed", arguments.options.seed, "of weights, data and dropout");
  app.add_option("--learning-rate", arguments.options.learning_rate, "instead of the Program's");
  app.add_option("--adam-epsilon", arguments.options.optimizer.epsilon, "AdamW's epsilon");
  app.add_option("--memory-limit", arguments.memory_limit, "bytes of each rank; 0: none");
  app.add_option("--patience", arguments.patience_s, "seconds without progress that end the run")
      ->check(CLI::PositiveNumber);
  app.footer("example: headway-execute-cpu program.json --output execution.json --steps 2");
}

// Throws MachineFailure where the ranks together need more memory than there is.
void require_memory(const Program& program) {
  double needed = 0;
  for (int rank = 0; rank < program.grid.size(); ++rank) {
    const RankKind& kind = program.kinds[static_cast<std::size_t>(program.kind_of(rank))];
    needed += static_cast<double>(memory_use(program, kind).peak.count) * kHeldPerDeclaredByte;
  }
  const double there =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGE_SIZE));
  if (needed > there) {
    throw MachineFailure("the ranks need about " + std::to_string(std::llround(needed / 1e6)) +
                         " MB together; this machine has " +
                         std::to_string(std::llround(there / 1e6)) + " MB");
  }
}

Program read(const std::string& path) {
  Program program = read_program(JsonNode::parse_file(path));
  require_memory(program);
  return program;
}

int run(Arguments& arguments) {
  ExecuteOptions& options = arguments.options;
  options.memory_limit = {arguments.memory_limit};
  options.patience = std::chrono::milliseconds(std::llround(arguments.patience_s * 1e3));
  const Program program = read(arguments.program);
  const ExecutionResult result = execute(program, options);
  std::optional<CheckReport> check;
  if (!arguments.reference.empty() && result.outcome == Outcome::kFinished) {
    const ExecutionResult reference = execute(read(arguments.reference), options);
    if (reference.outcome != Outcome::kFinished) {
      throw MachineFailure("the reference run failed: " + reference.messages.front());
    }
    check = check_execution(program, result, reference);
  }
  const std::string text = execution_json(result, check);
  if (arguments.output == "-") {
    std::cout << text << std::flush;
  } else {
    write_file(arguments.output, text);
  }
  if (result.outcome == Outcome::kFailed) return kMachineFailed;
  if (result.outcome == Outcome::kDeadlock) return kCheckFailed;
  return check && !check->passed ? kCheckFailed : kAnswered;
}

// The exit code, with every failure told.
int run_or_tell(Arguments& arguments) {
  try {
    return run(arguments);
  } catch (const InvalidInput& error) {
    std::cerr << error.what() << '\n';
    return kBadInput;
  } catch (const std::exception& error) {
    std::cerr << "headway-execute-cpu: " << error.what() << '\n';
    return kMachineFailed;
  }
}

// Ends the process, whatever a rank that was left behind is still doing.
[[noreturn]] void leave(int code) {
  std::cerr.flush();
  std::fflush(nullptr);
  _exit(code);
}

}  // namespace
}  // namespace headway

int main(int count, char** values) try {
  headway::Arguments arguments;
  CLI::App app("Runs a Program for real on CPU and writes what it measured.",
               "headway-execute-cpu");
  headway::add_options(app, arguments);
  try {
    app.parse(count, values);
  } catch (const CLI::Success& success) {
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    app.exit(error);
    return headway::kBadInput;
  }
  headway::leave(headway::run_or_tell(arguments));
} catch (...) {
  return headway::kMachineFailed;
}
