// The commands of the program: each is one file with one function, given its arguments and the
// streams it may write to, returning the exit code. Answers go to `out`, errors and notes to `err`.
//   0 answered; 1 the machine failed; 2 bad input; 3 does not fit and --require-fit was given;
//   4 a check failed or the schedule deadlocks
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace CLI {  // NOLINT(readability-identifier-naming): the library's own
class App;
}

namespace headway {

inline constexpr int kAnswered = 0;
inline constexpr int kMachineFailed = 1;
inline constexpr int kBadInput = 2;
inline constexpr int kDoesNotFit = 3;
inline constexpr int kCheckFailed = 4;

struct StepReport;
class SearchProcesses;

struct CommandLine {
  std::vector<std::string> arguments;  // after the command's name
  std::ostream& out;
  std::ostream& err;
  SearchProcesses* processes = nullptr;  // that were started together; nullptr: this one alone
};

struct Command {
  std::string name;
  std::string summary;
  int (*run)(const CommandLine& line);
};

int simulate_command(const CommandLine& line);
int plan_command(const CommandLine& line);
int whatif_command(const CommandLine& line);
int explain_command(const CommandLine& line);
int execute_command(const CommandLine& line);
int calibrate_command(const CommandLine& line);
int crosscheck_command(const CommandLine& line);
int compare_command(const CommandLine& line);
int validate_command(const CommandLine& line);
int fit_command(const CommandLine& line);
int topology_command(const CommandLine& line);
int import_command(const CommandLine& line);
int export_command(const CommandLine& line);
int list_command(const CommandLine& line);
int doctor_command(const CommandLine& line);

// All of them, in the order of `headway --help`.
const std::vector<Command>& commands();

// Runs a whole command line ("simulate job.json --json -") as main() does: finds the command, turns
// InvalidInput into exit code 2 with one line per problem, MachineFailure into 1.
int run_command_line(const CommandLine& line);

// Parses with CLI11; help is printed to `out`. Nothing where the command should go on, else the
// exit code. CLI11's own errors become one line that names the option and, for an unknown one, the
// nearest.
struct ParseResult {
  bool proceed = true;
  int exit_code = kAnswered;
};
ParseResult parse(CLI::App& app, const CommandLine& line);

// What `simulate` exits with: a deadlock is a failed check, whatever fits.
int exit_code_of(const StepReport& report, bool require_fit);

// Wall-clock seconds since the program was loaded.
double seconds_since_start();

// Writes an answer where the user wants it: "-" is standard output, anything else a file.
void write_answer(const std::string& path, const std::string& text, const CommandLine& line);

}  // namespace headway
