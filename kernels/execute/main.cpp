// headway-execute-cpu: runs a Program for real on this machine's CPU and writes what it measured.
// Ranks are threads, or with --mpi processes: then it starts itself once for each by mpirun, unless
// an mpirun has started it.
#include <sys/prctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <iostream>

#include "kernels/execute/execute_program.hpp"
#include "kernels/execute/launch_ranks.hpp"
#include "kernels/execute/resident_memory.hpp"
#ifdef HEADWAY_MPI
#include "kernels/execute/process_executor.hpp"
#endif
#include "sim/core/error.hpp"

namespace headway {
namespace {

struct Arguments : ExecuteArguments {
  bool mpi = false, pin = false;
};

void add_options(CLI::App& app, Arguments& arguments) {
  add_execute_options(app, arguments);
  app.add_flag("--mpi", arguments.mpi,
               "ranks as processes: started by mpirun, or this is one that mpirun started");
  app.add_flag("--pin", arguments.pin, "with --mpi: each rank keeps to a core of its own");
  app.footer("example: headway-execute-cpu program.json --output execution.json --steps 2");
}

#ifdef HEADWAY_MPI
// This process is one rank.
int run_rank(const Arguments& arguments) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  auto world = std::make_unique<MpiWorld>();
  tell_launcher_when_stopped(world->rank());
  if (arguments.pin) keep_to_core(world->local_rank());
  const Program program = read_host_program(arguments.program);
  const int rank = world->rank();
  const LastWords last_words = {
      [rank](const std::string& message) { tell_launcher(rank, message); },
      [] { _exit(kExecuteMachineFailed); }};
  const ExecutionResult result =
      execute_in_processes(program, arguments.options, *world, last_words);
  if (result.outcome == Outcome::kFailed) _exit(kExecuteMachineFailed);
  world.reset();
  return rank == 0 ? check_and_write(arguments, program, result) : kExecuteAnswered;
}
// Starts this program once for each rank. Where they failed the result is what they told.
int start_ranks(const Arguments& arguments, const std::vector<std::string>& words) {
  const Program program = read_host_program(arguments.program);
  const int ranks = program.grid.size();
  std::vector<std::string> command = words;
  command[0] = std::filesystem::read_symlink("/proc/self/exe").string();
  command.push_back("--pin");
  LaunchedRanks launched = launch_ranks(ranks, command);
  if (launched.exit_code == kExecuteAnswered || launched.exit_code == kExecuteCheckFailed ||
      launched.exit_code == kExecuteBadInput) {
    return launched.exit_code;
  }
  ExecutionResult result;
  result.outcome = Outcome::kFailed;
  for (std::size_t rank = 0; rank < launched.messages.size(); ++rank) {
    const std::string& told = launched.messages[rank];
    const std::string name = "rank " + std::to_string(rank);
    result.messages.push_back(told.starts_with(name) ? told
                              : told.empty()         ? name + " ended without a word"
                                                     : name + ": " + told);
  }
  return check_and_write(arguments, program, result);
}

int run_processes(const Arguments& arguments, const std::vector<std::string>& words) {
  return started_by_mpirun() ? run_rank(arguments) : start_ranks(arguments, words);
}
#else
int run_processes(const Arguments&, const std::vector<std::string>&) {
  throw MachineFailure(
      "built without MPI; install libopenmpi-dev and openmpi-bin, and build again");
}
#endif

int run(Arguments& arguments, const std::vector<std::string>& words) {
  ExecuteOptions& options = arguments.options;
  take_execute_options(arguments);
  keep_freed_memory();
  if (arguments.mpi) return run_processes(arguments, words);
  const Program program = read_host_program(arguments.program);
  // First, because what its tokens choose is what the program's repeat.
  std::optional<ExecutionResult> reference = run_reference(arguments);
  if (reference && !reference->routing.empty()) options.routing = &reference->routing;
  const ExecutionResult result = execute(program, options);
  return check_and_write(arguments, program, result, std::move(reference));
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
  headway::leave(headway::execute_main(app, count, values, [&] {
    return headway::run(arguments, {values, values + count});
  }));
} catch (...) {
  return headway::kExecuteMachineFailed;
}
