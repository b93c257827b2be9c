#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <ostream>

#include "sim/commands/command.hpp"
#include "sim/commands/job_options.hpp"
#include "sim/core/file.hpp"
#include "sim/core/json_writer.hpp"
#include "sim/core/quantity.hpp"
#include "sim/engine/timeline_json.hpp"
#include "sim/program/program_json.hpp"
#include "sim/program/training_step.hpp"
#include "sim/report/json.hpp"
#include "sim/report/step_report.hpp"
#include "sim/report/text.hpp"
#include "sim/report/trace.hpp"
#include "sim/simulate/measured_step.hpp"

extern char** environ;

namespace headway {

namespace {

namespace fs = std::filesystem;

struct ExecuteArguments {
  JobOptions job;
  std::string backend = "cpu", json, trace;
  std::int64_t steps = 1, seed = 1;
  bool check = false;
};

void add_options(CLI::App& app, ExecuteArguments& arguments) {
  arguments.job.add_to(app);
  app.add_option("--backend", arguments.backend, "what it runs on")
      ->check(CLI::IsMember({"cpu", "cuda"}));
  app.add_option("--steps", arguments.steps, "training steps")->check(CLI::Range(1, 100000));
  app.add_option("--seed", arguments.seed, "of weights, data and dropout")
      ->check(CLI::Range(std::int64_t{0}, std::numeric_limits<std::int64_t>::max()));
  app.add_flag("--check", arguments.check, "compare loss and gradients with a run on one rank");
  app.add_option("--json", arguments.json, "write the result as JSON; - is standard output");
  app.add_option("--trace", arguments.trace, "write a Chrome/Perfetto trace (.json or .json.gz)");
  app.footer("example: headway execute job.json --backend cpu --check --trace measured.json");
}

// A directory of this run alone, removed with everything in it.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string pattern = (fs::temp_directory_path() / "headway-execute-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) {
      throw MachineFailure(pattern + ": " + std::strerror(errno));
    }
    path_ = pattern;
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  std::string file(const char* name) const { return (path_ / name).string(); }

 private:
  fs::path path_;
};

// The executor beside this program, else the one that the shell would find.
std::string executor_path(const std::string& name) {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  if (!error && fs::exists(self.parent_path() / name, error)) {
    return (self.parent_path() / name).string();
  }
  return name;
}

// Runs a program to its end with its standard output on our standard error. Returns its exit code.
int run_program(const std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  pid_t child = 0;
  const int failure =
      posix_spawnp(&child, pointers[0], &actions, nullptr, pointers.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failure != 0) {
    throw MachineFailure(words[0] + ": " + std::strerror(failure) +
                         "; it is built where OpenBLAS is (apt-get install libopenblas-dev)");
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) throw MachineFailure(words[0] + ": " + std::strerror(errno));
  }
  if (!WIFEXITED(status)) {
    throw MachineFailure(words[0] + " was ended by signal " + std::to_string(WTERMSIG(status)));
  }
  return WEXITSTATUS(status);
}

// What the executor wrote.
struct Execution {
  std::string outcome;
  std::vector<std::string> messages, deadlock;
  std::vector<double> losses;
  std::vector<Time> durations;
  std::optional<JsonNode> check;
  Timeline timeline;
};

Execution read_execution(const std::string& path) {
  Problems problems;
  ObjectReader reader(JsonNode::parse_file(path), problems);
  Execution execution;
  execution.outcome = reader.require_string("outcome");
  execution.messages = reader.strings("messages").value_or(std::vector<std::string>{});
  execution.deadlock = reader.strings("deadlock").value_or(std::vector<std::string>{});
  for (const JsonNode& node :
       reader.array("steps") ? reader.array("steps")->elements() : std::vector<JsonNode>{}) {
    ObjectReader step(node, problems);
    execution.losses.push_back(
        step.number("loss").value_or(std::numeric_limits<double>::quiet_NaN()));
    execution.durations.push_back({step.require_integer("duration_ps")});
  }
  execution.check = reader.object("check");
  reader.any("peak_bytes");
  if (const auto timeline = reader.object("timeline")) {
    execution.timeline = read_timeline(*timeline, problems);
  }
  reader.finish();
  problems.throw_if_any();
  return execution;
}

Execution execute(const ExecuteArguments& arguments, const Job& job, const Program& program) {
  const TemporaryDirectory directory;
  write_file(directory.file("program.json"), to_json(program));
  std::vector<std::string> words = {executor_path("headway-execute-cpu"),
                                    directory.file("program.json"),
                                    "--output",
                                    directory.file("execution.json"),
                                    "--steps",
                                    std::to_string(arguments.steps),
                                    "--seed",
                                    std::to_string(arguments.seed)};
  if (arguments.check) {
    write_file(directory.file("reference.json"), to_json(lower(reference_job(job))));
    words.insert(words.end(), {"--reference", directory.file("reference.json")});
    if (job.plan.optimizer == "adamw") {
      // AdamW's first step divides a gradient by its own size; this keeps small ones comparable.
      words.insert(words.end(), {"--adam-epsilon", "1e-4"});
    }
  }
  const int code = run_program(words);
  if (!fs::exists(directory.file("execution.json"))) {
    throw MachineFailure(words[0] + " wrote no result (exit code " + std::to_string(code) + ")");
  }
  return read_execution(directory.file("execution.json"));
}

StepReport measured_report(const Job& job, const Profile& profile, const SimulatedStep& step,
                           const Execution& execution) {
  StepReport report = report_step(job, profile, step);
  const auto [low, high] =
      std::minmax_element(execution.durations.begin(), execution.durations.end());
  report.interval_low = *low;
  report.interval_high = *high;
  return report;
}

std::string losses_json(const Execution& execution) {
  JsonWriter json(0);
  json.begin_array();
  for (const double loss : execution.losses) {
    if (std::isfinite(loss)) {
      json.value(loss);
    } else {
      json.null();
    }
  }
  json.end_array();
  return json.text();
}

bool passed(const Execution& execution) {
  if (!execution.check) return true;
  const auto verdict = execution.check->find("passed");
  return verdict && verdict->is_boolean() && verdict->boolean();
}

// One line of the check, and its problems.
void print_check(const Execution& execution, const CommandLine& line) {
  if (!execution.check) return;
  const JsonNode& check = *execution.check;
  const auto text = [](const JsonNode& node, const char* key) {
    const auto value = node.find(key);
    return !value ? std::string("?") : value->is_string() ? value->string() : value->text();
  };
  line.out << "check " << (passed(execution) ? "passed" : "FAILED") << ": loss off by "
           << text(check, "loss_error");
  if (const auto gradients = check.find("gradients"); gradients && gradients->is_object()) {
    line.out << ", gradients by at most " << text(*gradients, "worst") << " (limit "
             << text(*gradients, "limit") << ", at " << text(*gradients, "tensor") << ")";
  }
  line.out << ", " << text(check, "order_violations") << " of " << text(check, "order_demands")
           << " orders broken\n";
  const auto problems = check.find("problems");
  if (!problems || !problems->is_array()) return;
  for (const JsonNode& problem : problems->elements()) line.err << problem.string() << '\n';
}

}  // namespace

int execute_command(const CommandLine& line) {
  ExecuteArguments arguments;
  CLI::App app("Runs training steps of a job for real, and checks what they compute.",
               "headway execute");
  add_options(app, arguments);
  if (const ParseResult parsed = parse(app, line); !parsed.proceed) return parsed.exit_code;
  if (arguments.backend == "cuda") {
    throw InvalidInput("--backend", "", "cuda is not built yet; expected cpu");
  }
  const Job job = arguments.job.read();
  print_notes(job, line);
  Program program = lower(job);
  const Execution execution = execute(arguments, job, program);
  if (execution.outcome != "finished") {
    for (const std::string& wait : execution.deadlock) line.err << wait << '\n';
    for (const std::string& message : execution.messages) line.err << message << '\n';
    return execution.outcome == "deadlock" ? kCheckFailed : kMachineFailed;
  }
  const Profile profile = read_profile(job.profile);
  const SimulatedStep step = measured_step(std::move(program), execution.timeline);
  const StepReport report = measured_report(job, profile, step, execution);

  std::vector<AddedField> added = {{"losses", losses_json(execution)}};
  if (execution.check) added.push_back({"check", execution.check->text()});
  if (!arguments.trace.empty()) {
    const std::string text = trace_json(step);
    write_answer(arguments.trace, arguments.trace.ends_with(".gz") ? gzip(text) : text, line);
  }
  if (!arguments.json.empty()) {
    write_answer(arguments.json, result_json(job, report, std::nullopt, added), line);
  }
  if (arguments.json != "-" && arguments.trace != "-") {
    line.out << summary(job, report) << "measured over " << arguments.steps << " step"
             << (arguments.steps == 1 ? "" : "s") << " on " << job.gpus() << " ranks; loss "
             << execution.losses.front();
    if (execution.losses.size() > 1) line.out << " -> " << execution.losses.back();
    line.out << '\n';
    print_check(execution, line);
  }
  return passed(execution) ? kAnswered : kCheckFailed;
}

}  // namespace headway
