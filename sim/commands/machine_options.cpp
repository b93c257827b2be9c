#include "sim/commands/machine_options.hpp"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <thread>

#include "sim/cluster/cluster_description.hpp"
#include "sim/core/error.hpp"
#include "sim/core/json_writer.hpp"
#include "sim/core/quantity.hpp"

namespace headway {

namespace {

constexpr const char* kBackground = "--background";

std::string gpus_text(const BackgroundJob& job) {
  return "GPUs " + std::to_string(job.first_gpu) + " to " +
         std::to_string(job.first_gpu + job.job->gpus() - 1);
}

// Two jobs have no GPU in common, and whole nodes of one cluster hold them all.
void check_place(const BackgroundJob& job, const Job& beside,
                 const std::vector<BackgroundJob>& placed, Problems& problems) {
  const Topology& cluster = beside.topology;
  if (job.job->topology.name() != cluster.name()) {
    problems.add(kBackground, "",
                 "is on " + job.job->topology.name() + ", and the job on " + cluster.name() +
                     "; expected one cluster");
    return;
  }
  const int end = job.first_gpu + job.job->gpus();
  const auto meets = [&](int first, int gpus) {
    return job.first_gpu < first + gpus && first < end;
  };
  if (meets(0, beside.gpus())) {
    problems.add(kBackground, "",
                 gpus_text(job) + " are taken by the job, which has GPUs 0 to " +
                     std::to_string(beside.gpus() - 1));
  }
  for (const BackgroundJob& other : placed) {
    if (meets(other.first_gpu, other.job->gpus())) {
      problems.add(kBackground, "", gpus_text(job) + " and " + gpus_text(other) + " meet");
    }
  }
  const int per_node = cluster.gpus_per_node();
  if (job.first_gpu % per_node != 0 || beside.gpus() % per_node != 0) {
    problems.add(kBackground, "",
                 "jobs side by side must begin and end with whole nodes, of " +
                     std::to_string(per_node) + " GPUs");
  }
  const std::int64_t most = std::int64_t{cluster.description().max_servers} * per_node;
  if (end > most) {
    problems.add(
        kBackground, "",
        gpus_text(job) + ": " + cluster.name() + " has " + std::to_string(most) + " GPUs at most");
  }
}

std::string row(const std::string& label, const std::string& content) {
  return label + std::string(label.size() < 12 ? 12 - label.size() : 1, ' ') + content + "\n";
}

}  // namespace

std::optional<Factor> read_factor(const std::string& text, const std::string& option, double min,
                                  double max, Problems& problems) {
  const std::size_t equals = text.find('=');
  if (equals != std::string::npos && equals > 0) {
    const char* const begin = text.c_str() + equals + 1;
    char* end = nullptr;
    const double value = std::strtod(begin, &end);
    if (end != begin && *end == '\0' && value >= min && value <= max) {
      return Factor{text.substr(0, equals), value};
    }
  }
  std::ostringstream range;
  range << min << " to " << max;
  problems.add(option, "", "'" + text + "' is no NAME=NUMBER with a number from " + range.str());
  return std::nullopt;
}

std::map<std::string, double> read_degraded(const std::vector<std::string>& texts,
                                            Problems& problems) {
  std::map<std::string, double> shares;
  for (const std::string& text : texts) {
    const auto factor = read_factor(text, kDegrade, 0, 1, problems);
    if (factor) shares[factor->name] = factor->value;
  }
  return shares;
}

BackgroundJobs::BackgroundJobs(const std::vector<std::string>& texts, const Job& beside) {
  Problems problems;
  for (const std::string& text : texts) {
    const std::size_t at = text.rfind('@');
    int first = -1;
    if (at != std::string::npos) {
      const char* const end = text.data() + text.size();
      const auto [stop, error] = std::from_chars(text.data() + at + 1, end, first);
      if (error != std::errc() || stop != end) first = -1;
    }
    if (at == 0 || first < 0) {
      problems.add(kBackground, "",
                   "'" + text + "' is no JOB.json@GPU with the number of a GPU of the cluster");
      continue;
    }
    const std::string file = text.substr(0, at);
    JobReading reading = read_job(JsonNode::parse_file(file), {}, problems);
    for (const NotYetBuilt& missing : reading.not_built) {
      problems.add(file, missing.pointer, missing.rule + " is not built yet in this version");
    }
    if (!reading.job || !reading.not_built.empty()) continue;
    if (reading.job->plan.schedule == "pipedream" || beside.plan.schedule == "pipedream") {
      problems.add(kBackground, "", "a schedule whose steps overlap cannot have jobs beside it");
      continue;
    }
    read_.push_back(std::move(*reading.job));
    profiles_.push_back(read_profile(read_.back().profile));
    const BackgroundJob job{&read_.back(), &profiles_.back(), first};
    check_place(job, beside, jobs_, problems);
    jobs_.push_back(job);
    names_.push_back(file);
  }
  problems.throw_if_any();
}

std::string background_words(const BackgroundJobs& background, Time alone) {
  std::string text;
  for (std::size_t i = 0; i < background.jobs().size(); ++i) {
    text += row("beside", background.names()[i] + " on " + gpus_text(background.jobs()[i]));
  }
  return text + row("without", "the step takes " + to_text(alone));
}

std::string background_json(const BackgroundJobs& background, Time alone) {
  JsonWriter json(0);
  json.begin_object();
  json.key("jobs").begin_array();
  for (std::size_t i = 0; i < background.jobs().size(); ++i) {
    const BackgroundJob& job = background.jobs()[i];
    json.begin_object().field("job", background.names()[i]).field("first_gpu", job.first_gpu);
    json.field("gpus", job.job->gpus()).end_object();
  }
  json.end_array().field("iteration_time_without_s", alone.seconds()).end_object();
  return json.text();
}

std::optional<JitterOptions> read_jitter(std::optional<double> sigma, std::optional<int> draws,
                                         std::optional<std::int64_t> seed) {
  constexpr double kMostSigma = 1;  // beyond, GPUs differ threefold and more
  constexpr int kMostDraws = 100'000;
  Problems problems;
  if (!sigma && draws) problems.add("--draws", "", "needs --jitter");
  if (!sigma && seed) problems.add("--seed", "", "needs --jitter");
  if (sigma && !(*sigma > 0 && *sigma <= kMostSigma)) {
    problems.add("--jitter", "", "expected a number above 0, up to 1");
  }
  if (draws && (*draws < 1 || *draws > kMostDraws)) {
    problems.add("--draws", "", "expected 1 to " + std::to_string(kMostDraws));
  }
  if (seed && *seed < 0) problems.add("--seed", "", "expected 0 or more");
  problems.throw_if_any();
  if (!sigma) return std::nullopt;
  JitterOptions options;
  options.sigma = *sigma;
  options.draws = draws.value_or(options.draws);
  if (seed) options.seed = static_cast<std::uint64_t>(*seed);
  options.threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  return options;
}

std::string jitter_words(const JitterOptions& options, const JitterReport& report, Time even) {
  char text[160];
  std::snprintf(text, sizeof text, "GPUs spread by %.3g %%, %d draws: step ", options.sigma * 100,
                options.draws);
  std::string words = text;
  words += to_text(report.percentile(5)) + " (p5), " + to_text(report.percentile(50)) + " (p50), " +
           to_text(report.percentile(95)) + " (p95)";
  std::snprintf(text, sizeof text,
                "; on average +%.1f %%, where the slowest GPU computes %.1f %% longer",
                (report.mean().seconds() / even.seconds() - 1) * 100, (report.slowest - 1) * 100);
  return row("jitter", words + text);
}

std::string jitter_json(const JitterOptions& options, const JitterReport& report) {
  JsonWriter json(0);
  json.begin_object();
  json.field("sigma", options.sigma).field("draws", options.draws);
  json.field("seed", static_cast<std::int64_t>(options.seed));
  json.key("iteration_time_s").begin_object();
  json.field("p5", report.percentile(5).seconds()).field("p50", report.percentile(50).seconds());
  json.field("p95", report.percentile(95).seconds()).field("mean", report.mean().seconds());
  json.end_object().field("slowest_gpu", report.slowest).end_object();
  return json.text();
}

}  // namespace headway
