// headway-execute-cuda: runs a Program for real on this machine's first CUDA device and writes what
// it measured. The reference of a check is run by the CPU's kernels.
#include <CLI/CLI.hpp>
#include <iostream>

#include "kernels/execute/device_executor.hpp"
#include "kernels/execute/execute_program.hpp"
#include "sim/core/error.hpp"

namespace headway {
namespace {

int run(ExecuteArguments& arguments) {
  take_execute_options(arguments);
  const Program program = read_program_file(arguments.program);
  if (const std::string why = not_on_device(program); !why.empty()) {
    throw InvalidInput(arguments.program, "", why);
  }
  // First, because what its tokens choose is what the program's repeat.
  std::optional<ExecutionResult> reference = run_reference(arguments);
  ExecuteOptions& options = arguments.options;
  if (reference && !reference->routing.empty()) options.routing = &reference->routing;
  const DeviceExecution execution = execute_on_device(program, options);
  if (!execution.note.empty()) std::cerr << "note: " << execution.note << '\n';
  if (program.grid.size() > 1 && execution.note.empty()) {
    std::cerr << "note: " << program.grid.size() << " ranks have " << execution.multiprocessors
              << " multiprocessors of the device each\n";
  }
  return check_and_write(arguments, program, execution.result, std::move(reference));
}

}  // namespace
}  // namespace headway

int main(int count, char** values) try {
  headway::ExecuteArguments arguments;
  CLI::App app("Runs a Program for real on a CUDA device and writes what it measured.",
               "headway-execute-cuda");
  headway::add_execute_options(app, arguments);
  app.footer("example: headway-execute-cuda program.json --output execution.json --steps 20");
  return headway::execute_main(app, count, values, [&] { return headway::run(arguments); });
} catch (...) {
  return headway::kExecuteMachineFailed;
}
