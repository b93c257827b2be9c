#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <ostream>
#include <sstream>
#include <thread>

#include "sim/commands/command.hpp"
#include "sim/commands/job_options.hpp"
#include "sim/core/quantity.hpp"
#include "sim/formats/deepspeed.hpp"
#include "sim/formats/megatron.hpp"
#include "sim/formats/shell_arguments.hpp"
#include "sim/formats/torchtitan.hpp"
#include "sim/search/plan_report.hpp"

namespace headway {

namespace {

constexpr const char* kObjectives[] = {"time", "cost", "memory"};  // in the order of Objective

struct PlanArguments {
  JobOptions job;
  std::string json, objective = "time", launched_by, memory_margin = "6 %";
  std::vector<std::string> fixed, excluded;
  std::optional<double> tokens;
  int top = 10, threads = 1;
};

void add_options(CLI::App& app, PlanArguments& arguments) {
  arguments.job.add_to(app);
  app.get_option("--gpus")->description("GPUs; N..M tries every doubling from N to M");
  app.add_option("--json", arguments.json, "write the answer as JSON; - is standard output")
      ->type_name("FILE");
  app.add_option("--top", arguments.top, "how many plans to show")->check(CLI::Range(1, 1000));
  app.add_option("--objective", arguments.objective, "what is to be small")
      ->check(CLI::IsMember({"time", "cost", "memory"}));
  app.add_option("--for", arguments.launched_by,
                 "a framework that must be able to launch the plan; any: whatever can be simulated")
      ->type_name("FRAMEWORK");
  app.add_option("--memory-margin", arguments.memory_margin,
                 "share of the device's memory to leave free")
      ->type_name("PERCENT");
  app.add_option("--fix", arguments.fixed, "a key of the plan that is not to be varied")
      ->allow_extra_args(false)
      ->type_name("KEY=VALUE");
  app.add_option("--exclude", arguments.excluded, "a value that is not to be tried")
      ->allow_extra_args(false)
      ->type_name("KEY=VALUE");
  app.add_option("--tokens", arguments.tokens, "to train on: days, GPU hours, $ and kWh")
      ->check(CLI::PositiveNumber);
  arguments.threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  app.add_option("--threads", arguments.threads, "threads")->check(CLI::Range(1, 1024));
  app.footer(
      "The job's plan leaves keys open by \"auto\", a list or {\"min\":, \"max\":}; where it "
      "leaves "
      "none open, those\nthat it does not give are.\n"
      "example: headway plan --model llama3-70b --cluster dgx-h100 --gpus 512 --global-batch 1024 "
      "--for megatron-core");
}

// "tp=8" or "plan.tp=8".
std::optional<PlanValue> read_value(const std::string& text, const std::string& option,
                                    Problems& problems) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size()) {
    problems.add(option, "", "'" + text + "' is no KEY=VALUE");
    return std::nullopt;
  }
  std::string key = text.substr(0, equals);
  if (key.starts_with("plan.")) key = key.substr(5);
  return PlanValue{key, as_json(text.substr(equals + 1)), option};
}

// "6 %", "6%" or "0.06".
double read_share(const std::string& text, Problems& problems) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  std::string unit(stop, end);
  std::erase(unit, ' ');
  if (unit == "%") value /= 100;
  if (error != std::errc() || (unit != "%" && !unit.empty()) || !(value >= 0 && value < 1)) {
    problems.add("--memory-margin", "", "'" + text + "' is no share; expected 0 % to 99 %");
    return 0;
  }
  return value;
}

int read_count(const std::string& text, Problems& problems) {
  int value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || value < 1) {
    problems.add("--gpus", "", "'" + text + "' is no count of GPUs; expected N or N..M");
    return 0;
  }
  return value;
}

// Takes "--gpus 64..4096" out of the job's options: 64, 128, ..., 4096.
std::vector<int> take_sizes(std::vector<JobOverride>& overrides, Problems& problems) {
  std::vector<int> sizes;
  const auto option =
      std::find_if(overrides.begin(), overrides.end(), [](const JobOverride& change) {
        return change.key == "cluster.gpus" && change.option == "--gpus";
      });
  if (option == overrides.end()) return sizes;
  const std::size_t dots = option->value.find("..");
  const int first = read_count(option->value.substr(0, dots), problems);
  const int last =
      dots == std::string::npos ? first : read_count(option->value.substr(dots + 2), problems);
  if (first > last && last > 0)
    problems.add("--gpus", "", "'" + option->value + "' goes down; expected N..M with N below M");
  overrides.erase(option);
  for (std::int64_t size = first; first > 0 && size <= last; size *= 2)
    sizes.push_back(static_cast<int>(size));
  return sizes;
}

PlanQuestion read_question(const PlanArguments& arguments) {
  Problems problems;
  JobOptions::Source job = arguments.job.source();
  PlanQuestion question{.job = std::move(job.document), .overrides = std::move(job.overrides)};
  question.gpus = take_sizes(question.overrides, problems);
  question.launched_by = arguments.launched_by;
  for (const std::string& text : arguments.fixed) {
    if (auto value = read_value(text, "--fix", problems)) question.space.fixed.push_back(*value);
  }
  for (const std::string& text : arguments.excluded) {
    if (auto value = read_value(text, "--exclude", problems))
      question.space.excluded.push_back(*value);
  }
  question.search.top = arguments.top;
  question.search.threads = arguments.threads;
  question.search.memory_margin = read_share(arguments.memory_margin, problems);
  const auto objective =
      std::find(std::begin(kObjectives), std::end(kObjectives), arguments.objective);
  question.search.objective = static_cast<Objective>(objective - std::begin(kObjectives));
  problems.throw_if_any();
  return question;
}

// Ctrl-C ends the search with the best so far; a second one ends the program.
std::atomic<bool> interrupted{false};  // NOLINT: a signal handler sees nothing else

class InterruptHandler {
 public:
  InterruptHandler() : before_(std::signal(SIGINT, &InterruptHandler::note)) {
    interrupted = false;
  }
  ~InterruptHandler() { std::signal(SIGINT, before_); }
  InterruptHandler(const InterruptHandler&) = delete;
  InterruptHandler& operator=(const InterruptHandler&) = delete;

 private:
  static void note(int signal) {
    interrupted = true;
    std::signal(signal, SIG_DFL);
  }
  void (*before_)(int);
};

// On a terminal: what is done, how fast, the best so far, and how long it may still take.
class Progress {
 public:
  explicit Progress(std::ostream& err) : err_(err) {}

  void show(const SearchProgress& progress) {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point now = Clock::now();
    if (progress.simulating != simulating_ || begin_ == Clock::time_point{}) {
      simulating_ = progress.simulating;
      begin_ = now;
    }
    constexpr std::chrono::milliseconds kEvery(100);
    if (now - shown_ < kEvery) return;
    shown_ = now;
    const double seconds = std::chrono::duration<double>(now - begin_).count();
    const double rate = seconds > 0 ? static_cast<double>(progress.done) / seconds : 0;
    char text[160];
    std::snprintf(text, sizeof text, "\r%lld plans %s, %.0f a second",
                  static_cast<long long>(progress.done), simulating_ ? "simulated" : "judged",
                  rate);
    err_ << text;
    if (progress.best) err_ << ", best so far " << to_text(*progress.best);
    if (rate > 0) {
      const auto left =
          static_cast<double>(std::max<std::int64_t>(0, progress.most - progress.done));
      std::snprintf(text, sizeof text, ", %s %.0f s left", simulating_ ? "at most" : "about",
                    left / rate);
      err_ << text;
    }
    err_ << "        " << std::flush;
    dirty_ = true;
  }
  void end() {
    if (dirty_) err_ << "\r" << std::string(100, ' ') << "\r" << std::flush;
  }

 private:
  std::ostream& err_;
  bool simulating_ = false, dirty_ = false;
  std::chrono::steady_clock::time_point begin_{}, shown_{};
};

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// How the plan's framework is told to run it: Megatron-LM's arguments, else the lines of the file
// that the framework reads. Nothing where it has no such file, or the file cannot say the plan:
// `problem` then says what.
std::vector<std::string> launch_of(const Job& job, std::string& problem) {
  const std::string& framework = job.software.framework;
  try {
    if (framework.starts_with("megatron")) {
      std::vector<std::string> words =
          shell_arguments(export_megatron(job, "the plan"), "the plan");
      words.insert(words.begin(), "torchrun");
      return words;
    }
    if (framework == "deepspeed") return lines_of(export_deepspeed(job, "the plan"));
    if (framework == "torchtitan") return lines_of(export_torchtitan(job, "the plan"));
  } catch (const InvalidInput& error) {  // said by `headway export` in full
    problem = error.problems().front().text();
  }
  return {};
}

}  // namespace

int plan_command(const CommandLine& line) {
  PlanArguments arguments;
  CLI::App app(
      "Searches what a job leaves open: the best plans, what they lose to, what was "
      "rejected and why.",
      "headway plan");
  add_options(app, arguments);
  if (const ParseResult parsed = parse(app, line); !parsed.proceed) return parsed.exit_code;

  PlanQuestion question = read_question(arguments);
  Progress progress(line.err);
  if (isatty(STDERR_FILENO) != 0)
    question.search.progress = [&](const SearchProgress& now) { progress.show(now); };
  question.search.stop = &interrupted;
  question.search.processes = line.processes;
  const PlanAnswer found = [&] {
    const InterruptHandler handler;
    return answer(question);
  }();
  progress.end();
  for (const std::string& note : found.notes) line.err << "note: " << note << '\n';
  PlanReportOptions report;
  report.search = question.search;
  report.tokens = arguments.tokens;
  std::string launch_problem;
  report.launch = [&](const Job& job) { return launch_of(job, launch_problem); };
  // All processes have the same answer; the first one gives it.
  if (line.processes != nullptr && line.processes->rank() > 0) return kAnswered;
  if (!arguments.json.empty()) write_answer(arguments.json, plan_json(found, report), line);
  if (arguments.json != "-") line.out << plan_text(found, report);
  if (!launch_problem.empty())
    line.err << "note: not every plan has launch arguments: " << launch_problem << '\n';
  return kAnswered;
}

}  // namespace headway
