#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iomanip>
#include <ostream>
#include <sstream>

#include "sim/commands/calibration.hpp"
#include "sim/commands/child_program.hpp"
#include "sim/commands/command.hpp"
#include "sim/commands/execution.hpp"
#include "sim/core/json_writer.hpp"
#include "sim/core/quantity.hpp"
#include "sim/plan/job.hpp"
#include "sim/program/training_step.hpp"
#include "sim/report/stage_times.hpp"
#include "sim/report/step_report.hpp"
#include "sim/report/trace.hpp"
#include "sim/simulate/measured_step.hpp"

namespace headway {

namespace {

struct CrosscheckArguments {
  std::vector<std::string> jobs;
  std::string profile, json, traces;
  ExecutionRequest request{.steps = 20, .warm_up = 3};
  bool threads = false;
};

struct NamedJob {
  std::string name;
  Job job;
};

// One job, both ways.
struct Crosschecked {
  std::string name;
  int ranks = 1;
  StepReport predicted, measured;
  std::vector<StageTime> predicted_stages, measured_stages;  // measured: by rank
  std::vector<int> stage_of_rank;               // which of the predicted stages a rank is in
  double spread = 0;                            // quartiles of the measured steps over their median
  std::vector<Bytes> predicted_peak, resident;  // by process

  double step_error() const {
    return predicted.iteration.seconds() / measured.iteration.seconds() - 1;
  }
  // Of the process that is furthest off.
  double memory_error() const {
    double worst = 0;
    for (std::size_t p = 0; p < resident.size(); ++p) {
      const double error = static_cast<double>(predicted_peak[p].count) /
                               static_cast<double>(std::max<std::int64_t>(resident[p].count, 1)) -
                           1;
      if (std::fabs(error) > std::fabs(worst)) worst = error;
    }
    return worst;
  }
};

void add_options(CLI::App& app, CrosscheckArguments& arguments) {
  app.add_option("jobs", arguments.jobs, "jobs, or files with a list of named ones under \"jobs\"")
      ->required()
      ->type_name("JOB.json...");
  app.add_option("--backend", arguments.request.backend, "what they run on")
      ->check(CLI::IsMember(backends()));
  app.add_option("--profile", arguments.profile,
                 "of this machine; without it a quick calibration comes first");
  app.add_option("--steps", arguments.request.steps, "measured steps, of which the median counts")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  app.add_option("--warm-up", arguments.request.warm_up, "steps before those")
      ->check(CLI::Range(0, 100000))
      ->capture_default_str();
  app.add_flag("--threads", arguments.threads, "ranks as threads instead of processes");
  app.add_option("--json", arguments.json, "write all figures; - is standard output");
  app.add_option("--traces", arguments.traces,
                 "folder for two traces of each job, JOB.simulated.json and JOB.measured.json");
  app.footer("example: headway crosscheck job.json --backend cpu --profile my-machine.json");
}

// Of two the shorter, as the executor chooses the step whose timeline it keeps.
Time median_of(std::vector<Time> durations) {
  std::sort(durations.begin(), durations.end());
  return durations[(durations.size() - 1) / 2];
}

// Its own problems are told by the job's reader.
Job job_of(const JsonNode& node, const std::string& name) {
  Problems problems;
  JobReading reading = read_job(node, {}, problems);
  for (const NotYetBuilt& missing : reading.not_built) {
    problems.add(name, missing.pointer, missing.rule + " is not built yet in this version");
  }
  problems.throw_if_any();
  return std::move(*reading.job);
}

std::vector<NamedJob> read_jobs(const std::vector<std::string>& files) {
  std::vector<NamedJob> jobs;
  for (const std::string& file : files) {
    const JsonNode document = JsonNode::parse_file(file);
    const auto list = document.is_object() ? document.find("jobs") : std::nullopt;
    if (!list) {
      jobs.push_back({std::filesystem::path(file).stem().string(), job_of(document, file)});
      continue;
    }
    Problems problems;
    ObjectReader reader(document, problems);
    reader.string("about");
    const auto elements = reader.array("jobs");
    reader.finish();
    for (const JsonNode& node : elements ? elements->elements() : std::vector<JsonNode>{}) {
      ObjectReader named(node, problems);
      const std::string name = named.require_string("name");
      const auto job = named.object("job");
      named.finish();
      problems.throw_if_any();
      if (job) jobs.push_back({name, job_of(*job, file)});
    }
    problems.throw_if_any();
  }
  return jobs;
}

double spread_of(std::vector<Time> durations) {
  std::sort(durations.begin(), durations.end());
  const std::size_t n = durations.size();
  const Time quartiles = durations[3 * (n - 1) / 4] - durations[(n - 1) / 4];
  return quartiles.seconds() / durations[(n - 1) / 2].seconds();
}

void write_traces(const std::string& folder, const std::string& name,
                  const SimulatedStep& simulated, const SimulatedStep& measured,
                  const CommandLine& line) {
  std::filesystem::create_directories(folder);
  const std::string path = (std::filesystem::path(folder) / name).string();
  write_answer(path + ".simulated.json", trace_json(simulated), line);
  write_answer(path + ".measured.json", trace_json(measured), line);
}

Crosschecked crosscheck(const NamedJob& named, const Profile& profile,
                        const CrosscheckArguments& arguments, const CommandLine& line) {
  Crosschecked checked;
  checked.name = named.name;
  checked.ranks = named.job.gpus();
  StepOptions options;
  options.detail = Detail::kTasks;
  const SimulatedStep simulated = simulate_step(named.job, profile, options);
  checked.predicted = report_step(named.job, profile, simulated);
  checked.predicted_stages = stage_times(simulated);

  ExecutionRequest request = arguments.request;
  request.mpi = !arguments.threads && checked.ranks > 1 && request.backend == "cpu";
  const auto execution = execute_job(named.job, simulated.program, request);
  if (!execution) throw MachineFailure(named.name + ": no result; do not start it by mpirun");
  if (execution->outcome != "finished") {
    for (const std::string& message : execution->messages) line.err << message << '\n';
    throw MachineFailure(named.name + ": the execution " + execution->outcome);
  }
  const SimulatedStep measured = measured_step(simulated.program, execution->timeline);
  checked.measured = report_step(named.job, profile, measured);
  // On a device the timeline is of a step of its own, with an event around every operation.
  checked.measured.iteration = median_of(execution->durations);
  checked.measured_stages = stage_times(measured);
  checked.spread = spread_of(execution->durations);
  checked.resident = execution->resident;
  checked.predicted_peak.assign(checked.resident.size(), {});
  for (int rank = 0; rank < checked.ranks; ++rank) {
    const int kind = simulated.program.kind_of(rank);
    const auto& stages = checked.predicted.memory.per_stage;
    const auto stage = std::find_if(stages.begin(), stages.end(),
                                    [&](const StageMemory& each) { return each.kind == kind; });
    const std::size_t process = checked.resident.size() == 1 ? 0 : static_cast<std::size_t>(rank);
    checked.predicted_peak[process] += stage->peak;
    const int own = simulated.lowered.partition.rank_class[static_cast<std::size_t>(rank)];
    checked.stage_of_rank.push_back(own);
  }
  if (!arguments.traces.empty()) {
    write_traces(arguments.traces, named.name, simulated, measured, line);
  }
  return checked;
}

std::string percent(double share) {
  std::ostringstream text;
  text << std::showpos << std::fixed << std::setprecision(1) << 100 * share << " %";
  return text.str();
}

void print_pair(const std::string& what, Time predicted, Time measured, const CommandLine& line) {
  line.out << "  " << std::left << std::setw(32) << what << std::right << std::setw(12)
           << to_text(predicted) << std::setw(12) << to_text(measured);
  if (measured > Time::zero()) {
    line.out << std::setw(10) << percent(predicted.seconds() / measured.seconds() - 1);
  }
  line.out << '\n';
}

void print_stages(const Crosschecked& checked, const CommandLine& line) {
  for (std::size_t r = 0; r < checked.measured_stages.size(); ++r) {
    const StageTime& measured = checked.measured_stages[r];
    const StageTime& predicted =
        checked.predicted_stages[static_cast<std::size_t>(checked.stage_of_rank[r])];
    const std::string rank = "rank " + std::to_string(measured.rank) + " ";
    print_pair(rank + "forward", predicted.forward, measured.forward, line);
    print_pair(rank + "backward", predicted.backward, measured.backward, line);
    print_pair(rank + "optimizer and other", predicted.other, measured.other, line);
    print_pair(rank + "idle", predicted.idle, measured.idle, line);
  }
}

void print_communication(const Crosschecked& checked, const CommandLine& line) {
  for (const CommunicationLine& measured : checked.measured.communication) {
    for (const CommunicationLine& predicted : checked.predicted.communication) {
      if (predicted.kind != measured.kind || predicted.group != measured.group ||
          predicted.bytes_per_rank.count != measured.bytes_per_rank.count) {
        continue;
      }
      print_pair(measured.kind + " " + measured.group + " " + std::to_string(measured.count) +
                     " x " + to_text(measured.bytes_per_rank),
                 predicted.time, measured.time, line);
    }
  }
}

void print(const Crosschecked& checked, const CommandLine& line) {
  line.out << checked.name << " on " << checked.ranks << (checked.ranks == 1 ? " rank" : " ranks")
           << std::setw(30) << "predicted" << std::setw(12) << "measured" << '\n';
  print_pair("step", checked.predicted.iteration, checked.measured.iteration, line);
  line.out << "  spread of the measured steps    " << percent(checked.spread) << '\n';
  print_stages(checked, line);
  print_communication(checked, line);
  for (std::size_t p = 0; p < checked.resident.size(); ++p) {
    line.out << "  memory of process " << p << std::setw(25) << to_text(checked.predicted_peak[p])
             << std::setw(12) << to_text(checked.resident[p]) << '\n';
  }
}

// Sorted absolute values: their median and 90th percentile.
std::pair<double, double> median_and_p90(std::vector<double> errors) {
  for (double& error : errors) error = std::fabs(error);
  std::sort(errors.begin(), errors.end());
  const auto at = [&](double share) {
    return errors[static_cast<std::size_t>(
        std::llround(share * static_cast<double>(errors.size() - 1)))];
  };
  return {at(0.5), at(0.9)};
}

void print_summary(const std::vector<Crosschecked>& all, const CommandLine& line) {
  std::vector<double> steps, memory;
  for (const Crosschecked& checked : all) {
    steps.push_back(checked.step_error());
    memory.push_back(checked.memory_error());
  }
  const auto [median, p90] = median_and_p90(steps);
  const auto [memory_median, memory_p90] = median_and_p90(memory);
  line.out << all.size() << " jobs: step time off by " << percent(median)
           << " in the median, 90th percentile " << percent(p90) << "; memory by "
           << percent(memory_median) << " and " << percent(memory_p90) << '\n';
}

void write_stage(JsonWriter& json, const char* key, const StageTime& stage) {
  json.key(key).begin_object(true);
  json.field("forward_s", stage.forward.seconds()).field("backward_s", stage.backward.seconds());
  json.field("other_s", stage.other.seconds()).field("idle_s", stage.idle.seconds());
  json.end_object();
}

std::string crosscheck_json(const std::vector<Crosschecked>& all, const Profile& profile) {
  JsonWriter json(1);
  json.begin_object().field("profile", profile.sources);
  json.key("jobs").begin_array();
  for (const Crosschecked& checked : all) {
    json.begin_object().field("name", checked.name).field("ranks", checked.ranks);
    json.field("predicted_s", checked.predicted.iteration.seconds());
    json.field("measured_s", checked.measured.iteration.seconds());
    json.field("error", checked.step_error()).field("spread", checked.spread);
    json.field("memory_error", checked.memory_error());
    const Breakdown& parts = checked.measured.breakdown;
    const Time waits = parts.tp + parts.cp + parts.ep + parts.pp + parts.dp + parts.bubble;
    json.field("communication_and_bubble",
               waits.seconds() / std::max(parts.total().seconds(), 1e-12));
    json.key("ranks_s").begin_array();
    for (std::size_t r = 0; r < checked.measured_stages.size(); ++r) {
      json.begin_object().field("rank", checked.measured_stages[r].rank);
      write_stage(json, "predicted",
                  checked.predicted_stages[static_cast<std::size_t>(checked.stage_of_rank[r])]);
      write_stage(json, "measured", checked.measured_stages[r]);
      json.end_object();
    }
    json.end_array().key("processes").begin_array();
    for (std::size_t p = 0; p < checked.resident.size(); ++p) {
      json.begin_object(true).field("predicted_bytes", checked.predicted_peak[p].count);
      json.field("measured_bytes", checked.resident[p].count).end_object();
    }
    json.end_array().end_object();
  }
  json.end_array().end_object();
  return json.text();
}

}  // namespace

int crosscheck_command(const CommandLine& line) {
  CrosscheckArguments arguments;
  CLI::App app("Simulates jobs and runs them for real, and puts both side by side.",
               "headway crosscheck");
  add_options(app, arguments);
  if (const ParseResult parsed = parse(app, line); !parsed.proceed) return parsed.exit_code;
  const std::vector<NamedJob> jobs = read_jobs(arguments.jobs);
  Profile profile;
  if (arguments.profile.empty()) {
    const TemporaryDirectory kept;
    CalibrationRequest request;
    request.quick = true;
    request.measurements = kept.file("measurements");
    if (arguments.threads) request.transport = "threads";
    profile = calibrate(arguments.request.backend, request, line);
  } else {
    profile = read_profile(arguments.profile);
  }
  std::vector<Crosschecked> all;
  for (const NamedJob& job : jobs) {
    all.push_back(crosscheck(job, profile, arguments, line));
    if (arguments.json != "-") print(all.back(), line);
  }
  if (arguments.json != "-") print_summary(all, line);
  if (!arguments.json.empty()) write_answer(arguments.json, crosscheck_json(all, profile), line);
  return kAnswered;
}

}  // namespace headway
