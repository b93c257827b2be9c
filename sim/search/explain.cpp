#include "sim/search/explain.hpp"

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <optional>

#include "sim/core/json_writer.hpp"
#include "sim/core/quantity.hpp"
#include "sim/plan/open_job.hpp"
#include "sim/search/plan_report.hpp"
#include "sim/search/plan_search.hpp"

namespace headway {

namespace {

[[gnu::format(printf, 1, 2)]] std::string print(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  char text[512];
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return text;
}

struct CauseWords {
  const char* cause;
  const char* words;
};
// By the names of causes in a result.
constexpr CauseWords kCauses[] = {
    {"compute", "computing: matrix multiplications, attention and the kernels between them"},
    {"tp", "tensor-parallel communication that the next operation needs"},
    {"cp", "context-parallel communication that attention waits for"},
    {"ep", "tokens on their way to and from experts"},
    {"pp", "activations and gradients on their way between pipeline stages"},
    {"dp", "gradients and parameters exchanged between replicas"},
    {"optimizer", "the optimizer's update"},
    {"host", "the host, launching kernels later than the device could run them"},
    {"other", "everything else"},
};

std::string words_of(const std::string& cause) {
  for (const CauseWords& each : kCauses) {
    if (cause == each.cause) return each.words;
  }
  return cause;
}

Time time_on(const Machine& machine) {
  return simulate_step(machine.job, machine.profile).timeline.makespan;
}

class Explaining {
 public:
  Explaining(const JsonNode& job, const std::vector<JobOverride>& overrides, int threads)
      : node_(job), overrides_(overrides), threads_(threads) {}

  Explanation run() {
    Problems problems;
    JobReading reading = read_job(node_, overrides_, problems);
    for (const NotYetBuilt& missing : reading.not_built) {
      problems.add(node_.file(), missing.pointer,
                   missing.rule + " is not built yet in this version");
    }
    problems.throw_if_any();
    Explanation explanation{.job = std::move(*reading.job)};
    const Job& job = explanation.job;
    const Profile profile = read_profile(job.profile);
    StepOptions options;
    options.critical_path = true;
    explanation.report = report_step(job, profile, simulate_step(job, profile, options));
    if (!explanation.report.deadlock.empty()) return explanation;
    for (const Resource resource : resources()) {
      if (resource == Resource::kMemory) {
        if (auto gain = gain_of_memory(profile)) explanation.gains.push_back(std::move(*gain));
        continue;
      }
      if (const auto machine = with_factor(job, profile, resource, kMoreOfAResource)) {
        explanation.gains.push_back(
            {resource, explanation.report.iteration, time_on(*machine), ""});
      } else {
        explanation.without_effect.emplace_back(name(resource));
      }
    }
    std::stable_sort(explanation.gains.begin(), explanation.gains.end(),
                     [](const auto& a, const auto& b) { return a.share() > b.share(); });
    return explanation;
  }

 private:
  // The job's plan with the keys left open that trade memory for time.
  OpenJob read_half_open() const {
    Problems problems;
    std::optional<OpenJob> job = OpenJob::read(node_, overrides_, problems);
    problems.throw_if_any();
    JsonWriter writer(0);
    writer.begin_object();
    if (const auto& plan = job->plan()) {
      for (const std::string& key : plan->keys()) {
        if (key == "recompute" || key == "recompute_layers" || key == "micro_batch") continue;
        writer.key(key).raw(plan->find(key)->text());
      }
    }
    for (const char* key : {"recompute", "recompute_layers", "micro_batch"})
      writer.field(key, "auto");
    writer.end_object();
    std::vector<JobOverride> overrides = overrides_;
    overrides.push_back({"plan", writer.text(), "explain"});
    job = OpenJob::read(node_, overrides, problems);
    problems.throw_if_any();
    return std::move(*job);
  }

  std::optional<ResourceGain> gain_of_memory(const Profile& profile) const {
    const OpenJob job = read_half_open();
    ResourceGain gain;
    gain.resource = Resource::kMemory;
    std::string before;
    for (const double factor : {1.0, kMoreOfAResource}) {
      Profile roomier = profile;
      roomier.device.memory = Bytes{static_cast<std::int64_t>(
          std::llround(static_cast<double>(profile.device.memory.count) * factor))};
      const PriceBook prices(roomier);
      SearchOptions options;
      options.top = 1;
      options.memory_margin = 0;
      options.front = false;
      options.threads = threads_;
      Problems problems;
      const FrameworkReach& reach = framework_reach("any");
      const PlanSpace space(job, reach, {}, problems);
      const SearchResult found = search_plans(job, space, reach, prices, options);
      if (found.plans.empty()) return std::nullopt;
      const FoundPlan& best = found.plans.front();
      if (factor == 1.0) {
        gain.before = gain.after = best.report.iteration;
        before = plan_words(best.job);
      } else if (best.report.iteration < gain.before) {
        gain.after = best.report.iteration;
        gain.how = plan_words(best.job) + " becomes possible, in place of " + before;
      } else {
        gain.how = "no better choice becomes possible than " + before;
      }
    }
    return gain;
  }

  const JsonNode& node_;
  const std::vector<JobOverride>& overrides_;
  int threads_;
};

}  // namespace

Explanation explain(const JsonNode& job, const std::vector<JobOverride>& overrides, int threads) {
  return Explaining(job, overrides, threads).run();
}

std::string explanation_text(const Explanation& explanation) {
  const Job& job = explanation.job;
  const StepReport& report = explanation.report;
  std::string text =
      job.model.name + " on " + std::to_string(report.gpus) + " x " + job.profile + " (" +
      job.topology.name() + "), " + job.software.framework + "\n" + plan_words(job) +
      "\n\nstep        " + to_text(report.iteration) +
      "\nwhy         the chain of work, each part of which began when the one before "
      "it ended\n";
  for (const CausePart& part : report.critical_path) {
    text += print("  %5.1f %%  %-10s", part.time.seconds() / report.iteration.seconds() * 100,
                  to_text(part.time).c_str()) +
            words_of(part.cause) + "\n";
  }
  if (report.breakdown.bubble > Time::zero()) {
    text += print(
        "            the busiest rank stands still for %s of it (%.1f %%): the pipeline's "
        "bubble\n",
        to_text(report.breakdown.bubble).c_str(),
        report.breakdown.bubble.seconds() / report.iteration.seconds() * 100);
  }
  text += print("what %.0f %% more would buy\n", (kMoreOfAResource - 1) * 100);
  for (const ResourceGain& gain : explanation.gains) {
    text += print("  %5.2f %%  %-10s%s", gain.share() * 100, to_text(gain.after).c_str(),
                  std::string(words(gain.resource)).c_str());
    text += (gain.how.empty() ? "" : ": " + gain.how) + "\n";
  }
  return text;
}

std::string explanation_json(const Explanation& explanation) {
  const Job& job = explanation.job;
  const StepReport& report = explanation.report;
  JsonWriter json;
  json.begin_object().field("iteration_time_s", report.iteration.seconds());
  json.key("critical_path").begin_array();
  for (const CausePart& part : report.critical_path) {
    json.begin_object(true).field("cause", part.cause).field("time_s", part.time.seconds());
    json.field("words", words_of(part.cause)).end_object();
  }
  json.end_array().field("bubble_s", report.breakdown.bubble.seconds());
  json.key("gains").begin_array();
  for (const ResourceGain& gain : explanation.gains) {
    json.begin_object(true).field("resource", name(gain.resource));
    json.field("factor", kMoreOfAResource).field("before_s", gain.before.seconds());
    json.field("after_s", gain.after.seconds()).field("saved_share", gain.share());
    if (!gain.how.empty()) json.field("how", gain.how);
    json.end_object();
  }
  json.end_array().key("without_effect").begin_array(true);
  for (const std::string& resource : explanation.without_effect) json.value(resource);
  json.end_array().key("job").raw(resolved_job_json(job, 0));
  json.field("version", HEADWAY_VERSION).end_object();
  return json.text();
}

}  // namespace headway
