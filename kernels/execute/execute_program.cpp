#include "kernels/execute/execute_program.hpp"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <iostream>

#include "kernels/execute/execution_json.hpp"
#include "sim/core/error.hpp"
#include "sim/core/file.hpp"
#include "sim/program/lifetime.hpp"
#include "sim/program/program_json.hpp"

namespace headway {
namespace {

// A CPU holds 16-bit types in 32 bits, and copies what it communicates.
constexpr double kHeldPerDeclaredByte = 3;

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

int exit_code_of(Outcome outcome, const std::optional<CheckReport>& check) {
  if (outcome == Outcome::kFailed) return kExecuteMachineFailed;
  if (outcome == Outcome::kDeadlock) return kExecuteCheckFailed;
  return check && !check->passed ? kExecuteCheckFailed : kExecuteAnswered;
}

}  // namespace

void add_execute_options(CLI::App& app, ExecuteArguments& arguments) {
  app.add_option("PROGRAM", arguments.program, "the Program, as `headway simulate --program`")
      ->required();
  app.add_option("--reference", arguments.reference,
                 "the Program of the same step on one rank, to compare with");
  app.add_option("--output", arguments.output, "where the measurements go; - is standard output")
      ->required();
  app.add_option("--steps", arguments.options.steps, "training steps")
      ->check(CLI::Range(1, 100000));
  app.add_option("--warm-up", arguments.options.warm_up, "steps before those")
      ->check(CLI::Range(0, 100000));
  app.add_option("--seed", arguments.options.seed, "of weights, data and dropout");
  app.add_option("--learning-rate", arguments.options.learning_rate, "instead of the Program's");
  app.add_option("--adam-epsilon", arguments.options.optimizer.epsilon, "AdamW's epsilon");
  app.add_option("--memory-limit", arguments.memory_limit, "bytes of each rank; 0: none");
  app.add_option("--patience", arguments.patience_s, "seconds without progress that end the run")
      ->check(CLI::PositiveNumber);
}

void take_execute_options(ExecuteArguments& arguments) {
  ExecuteOptions& options = arguments.options;
  options.memory_limit = {arguments.memory_limit};
  options.patience = std::chrono::milliseconds(std::llround(arguments.patience_s * 1e3));
  options.checked = !arguments.reference.empty();
}

Program read_program_file(const std::string& path) {
  return read_program(JsonNode::parse_file(path));
}

Program read_host_program(const std::string& path) {
  Program program = read_program_file(path);
  require_memory(program);
  return program;
}

std::optional<ExecutionResult> run_reference(const ExecuteArguments& arguments) {
  if (arguments.reference.empty()) return std::nullopt;
  ExecutionResult reference = execute(read_host_program(arguments.reference), arguments.options);
  if (reference.outcome != Outcome::kFinished) {
    throw MachineFailure("the reference run failed: " + reference.messages.front());
  }
  return reference;
}

int check_and_write(const ExecuteArguments& arguments, const Program& program,
                    const ExecutionResult& result, std::optional<ExecutionResult> reference) {
  std::optional<CheckReport> check;
  if (!arguments.reference.empty() && result.outcome == Outcome::kFinished) {
    if (!reference) reference = run_reference(arguments);
    check = check_execution(program, result, *reference);
  }
  const std::string text = execution_json(result, check);
  if (arguments.output == "-") {
    std::cout << text << std::flush;
  } else {
    write_file(arguments.output, text);
  }
  return exit_code_of(result.outcome, check);
}

int execute_main(CLI::App& app, int count, char** values, const std::function<int()>& run) {
  try {
    app.parse(count, values);
    return run();
  } catch (const CLI::Success& success) {
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    app.exit(error);
    return kExecuteBadInput;
  } catch (const InvalidInput& error) {
    std::cerr << error.what() << '\n';
    return kExecuteBadInput;
  } catch (const std::exception& error) {
    std::cerr << app.get_name() << ": " << error.what() << '\n';
    return kExecuteMachineFailed;
  }
}

}  // namespace headway
