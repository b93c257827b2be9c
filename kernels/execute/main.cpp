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

#include "kernels/execute/execution_json.hpp"
#include "kernels/execute/launch_ranks.hpp"
#include "kernels/execute/resident_memory.hpp"
#ifdef HEADWAY_MPI
#include "kernels/execute/process_executor.hpp"
#endif
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
  bool mpi = false, pin = false;
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
  app.add_option("--warm-up", arguments.options.warm_up, "steps before those")
      ->check(CLI::Range(0, 100000));
  app.add_option("--seed", arguments.options.seed, "of weights, data and dropout");
  app.add_option("--learning-rate", arguments.options.learning_rate, "instead of the Program's");
  app.add_option("--adam-epsilon", arguments.options.optimizer.epsilon, "AdamW's epsilon");
  app.add_option("--memory-limit", arguments.memory_limit, "bytes of each rank; 0: none");
  app.add_option("--patience", arguments.patience_s, "seconds without progress that end the run")
      ->check(CLI::PositiveNumber);
  app.add_flag("--mpi", arguments.mpi,
               "ranks as processes: started by mpirun, or this is one that mpirun started");
  app.add_flag("--pin", arguments.pin, "with --mpi: each rank keeps to a core of its own");
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

int exit_code_of(Outcome outcome, const std::optional<CheckReport>& check) {
  if (outcome == Outcome::kFailed) return kMachineFailed;
  if (outcome == Outcome::kDeadlock) return kCheckFailed;
  return check && !check->passed ? kCheckFailed : kAnswered;
}

// The reference run, where one is asked for.
std::optional<ExecutionResult> reference_of(const Arguments& arguments) {
  if (arguments.reference.empty()) return std::nullopt;
  ExecutionResult reference = execute(read(arguments.reference), arguments.options);
  if (reference.outcome != Outcome::kFinished) {
    throw MachineFailure("the reference run failed: " + reference.messages.front());
  }
  return reference;
}

// Compares a finished result with the reference, where there is one, and writes it.
int check_and_write(const Arguments& arguments, const Program& program,
                    const ExecutionResult& result,
                    std::optional<ExecutionResult> reference = std::nullopt) {
  std::optional<CheckReport> check;
  if (!arguments.reference.empty() && result.outcome == Outcome::kFinished) {
    if (!reference) reference = reference_of(arguments);
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

#ifdef HEADWAY_MPI
// This process is one rank.
int run_rank(const Arguments& arguments) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  auto world = std::make_unique<MpiWorld>();
  tell_launcher_when_stopped(world->rank());
  if (arguments.pin) keep_to_core(world->local_rank());
  const Program program = read(arguments.program);
  const int rank = world->rank();
  const LastWords last_words = {
      [rank](const std::string& message) { tell_launcher(rank, message); },
      [] { _exit(kMachineFailed); }};
  const ExecutionResult result =
      execute_in_processes(program, arguments.options, *world, last_words);
  if (result.outcome == Outcome::kFailed) _exit(kMachineFailed);
  world.reset();
  return rank == 0 ? check_and_write(arguments, program, result) : kAnswered;
}
// Starts this program once for each rank. Where they failed the result is what they told.
int start_ranks(const Arguments& arguments, const std::vector<std::string>& words) {
  const Program program = read(arguments.program);
  const int ranks = program.grid.size();
  std::vector<std::string> command = words;
  command[0] = std::filesystem::read_symlink("/proc/self/exe").string();
  command.push_back("--pin");
  LaunchedRanks launched = launch_ranks(ranks, command);
  if (launched.exit_code == kAnswered || launched.exit_code == kCheckFailed ||
      launched.exit_code == kBadInput) {
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
  options.memory_limit = {arguments.memory_limit};
  options.patience = std::chrono::milliseconds(std::llround(arguments.patience_s * 1e3));
  options.checked = !arguments.reference.empty();
  keep_freed_memory();
  if (arguments.mpi) return run_processes(arguments, words);
  const Program program = read(arguments.program);
  // First, because what its tokens choose is what the program's repeat.
  std::optional<ExecutionResult> reference = reference_of(arguments);
  if (reference && !reference->routing.empty()) options.routing = &reference->routing;
  const ExecutionResult result = execute(program, options);
  return check_and_write(arguments, program, result, std::move(reference));
}

// The exit code, with every failure told.
int run_or_tell(Arguments& arguments, const std::vector<std::string>& words) {
  try {
    return run(arguments, words);
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
  headway::leave(headway::run_or_tell(arguments, {values, values + count}));
} catch (...) {
  return headway::kMachineFailed;
}
