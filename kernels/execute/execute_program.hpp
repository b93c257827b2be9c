// What the executors' programs have in common: options, reading a Program and writing what came of
// it. Exit codes are those of the commands (sim/commands/command.hpp).
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "kernels/execute/reference_check.hpp"
#include "sim/program/program.hpp"

namespace CLI {
class App;
}

namespace headway {

constexpr int kExecuteAnswered = 0;
constexpr int kExecuteMachineFailed = 1;
constexpr int kExecuteBadInput = 2;
constexpr int kExecuteCheckFailed = 4;

struct ExecuteArguments {
  std::string program, reference, output;
  ExecuteOptions options;
  double patience_s = 60;
  std::int64_t memory_limit = 0;
};

void add_execute_options(CLI::App& app, ExecuteArguments& arguments);
// Puts what options say into `arguments.options`, once they have been read.
void take_execute_options(ExecuteArguments& arguments);

// Throws InvalidInput.
Program read_program_file(const std::string& path);
// Of ranks that live in the host's memory: throws MachineFailure too, where they need more than
// there is.
Program read_host_program(const std::string& path);

// The reference run on one CPU core, where one is asked for. Throws MachineFailure where it fails.
std::optional<ExecutionResult> run_reference(const ExecuteArguments& arguments);

// Compares a finished result with the reference, where there is one, and writes it. Returns the
// exit code.
int check_and_write(const ExecuteArguments& arguments, const Program& program,
                    const ExecutionResult& result,
                    std::optional<ExecutionResult> reference = std::nullopt);

// Reads the words of the program that `app` is named after and runs it, with every failure told.
// Returns the exit code.
int execute_main(CLI::App& app, int count, char** values, const std::function<int()>& run);

}  // namespace headway
