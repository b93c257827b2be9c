#include "sim/validate/validation.hpp"

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <variant>

#include "sim/core/json_writer.hpp"
#include "sim/core/parallel.hpp"
#include "sim/cost/profile.hpp"
#include "sim/plan/job.hpp"
#include "sim/report/step_report.hpp"
#include "sim/simulate/price_book.hpp"
#include "sim/simulate/simulated_step.hpp"
#include "sim/validate/anchor.hpp"
#include "sim/validate/assumed_values.hpp"

namespace headway {

namespace {

using Outcome = std::variant<PredictedRun, SkippedRun>;

// The profiles of all runs, read once, with what is priced by them; simulations only read them.
class Prices {
 public:
  explicit Prices(const Correction& correction) : correction_(correction) {}

  const PriceBook& of(const std::string& profile) {
    const std::lock_guard lock(mutex_);
    std::unique_ptr<Entry>& entry = entries_[profile];
    if (!entry) entry = std::make_unique<Entry>(read_profile(profile), correction_);
    return entry->book;
  }
  const Correction& correction() const { return correction_; }

 private:
  struct Entry {
    Profile profile;
    PriceBook book;
    Entry(Profile read, const Correction& correction)
        : profile(std::move(read)), book(profile, correction) {}
  };
  Correction correction_;
  std::mutex mutex_;
  std::map<std::string, std::unique_ptr<Entry>> entries_;
};

std::map<std::string, std::string> properties_of(const Job& job) {
  const auto number = [](std::int64_t value) { return std::to_string(value); };
  return {{"gpu", job.profile},
          {"gpus", number(job.gpus())},
          {"tp", number(job.plan.tp)},
          {"pp", number(job.plan.pp)},
          {"micro_batch", number(job.plan.micro_batch)},
          {"sequence_length", number(job.sequence_length)},
          {"dp_kind", std::string(name(job.plan.dp_kind))},
          {"schedule", job.plan.pp == 1 ? "none" : job.plan.schedule},
          {"recompute", std::string(name(job.plan.recompute))},
          {"precision", std::string(name(job.precision))},
          {"framework", job.software.framework},
          {"attention", std::string(name(job.software.attention))}};
}

// The predicted memory of the stage that holds most, in the kind that was measured.
double predicted_memory(const MemoryReport& memory, const std::string& kind) {
  if (kind == "reserved") return static_cast<double>(memory.reserved.count);
  if (kind == "device") return static_cast<double>(memory.device.count);
  return static_cast<double>(memory.allocated.count);
}

PredictedRun predict(const MeasuredRun& run, const Job& job, const PriceBook& prices) {
  const Profile& profile = prices.profile();
  StepOptions options;
  options.prices = &prices;
  const SimulatedStep step = simulate_step(job, profile, options);
  const StepReport report = report_step(job, profile, step);
  PredictedRun predicted;
  predicted.predicted_s = report.iteration.seconds();
  predicted.interval_low_s = report.interval_low.seconds();
  predicted.interval_high_s = report.interval_high.seconds();
  if (run.memory_peak) {
    predicted.measured_bytes = static_cast<double>(run.memory_peak->count);
    predicted.predicted_bytes = predicted_memory(report.memory, run.memory_kind);
  }
  predicted.fits = report.memory.fits;
  predicted.properties = properties_of(job);
  return predicted;
}

// REQUIRES: the job read without problems, and the overrides are legal in it.
Job reread(const MeasuredRun& run, const std::vector<JobOverride>& overrides) {
  Problems problems;
  JobReading reading = read_job(run.job, overrides, problems);
  problems.throw_if_any();
  return *std::move(reading.job);
}

Outcome run_one(const MeasuredRun& run, Prices& prices) {
  const auto skip = [&](const std::string& why) { return SkippedRun{run.id, run.file, why}; };
  try {
    Problems problems;
    JobReading reading = read_job(run.job, {}, problems);
    problems.throw_if_any();
    if (!reading.not_built.empty()) {
      std::string why = "not built yet: ";
      for (std::size_t i = 0; i < reading.not_built.size(); ++i) {
        why += (i > 0 ? ", " : "") + reading.not_built[i].rule;
      }
      return skip(why);
    }
    const PriceBook& book = prices.of(reading.job->profile);
    const std::vector<JobOverride> decided =
        decide_assumed(run, *reading.job, book.profile().device);
    Job job = decided.empty() ? std::move(*reading.job) : reread(run, decided);
    job.software = corrected(std::move(job.software), prices.correction());
    PredictedRun predicted = predict(run, job, book);
    for (const JobOverride& each : decided) predicted.decided[each.key] = each.value;
    predicted.id = run.id;
    predicted.file = run.file;
    predicted.group = run.group;
    predicted.reliability = run.reliability;
    predicted.used_in_fit = used_in_fit(run.id);
    if (run.iteration_time) predicted.measured_s = run.iteration_time->seconds();
    predicted.out_of_memory = run.out_of_memory;
    predicted.identity = run.job.text();
    return predicted;
  } catch (const InvalidInput& error) {
    return skip(error.problems().front().text());
  }
}

void write_figures(JsonWriter& json, const ErrorFigures& figures) {
  json.field("count", figures.count).field("mape", figures.mape);
  json.field("signed_mean", figures.signed_mean).field("p95", figures.p95);
  json.key("worst").begin_object(true).field("id", figures.worst_id);
  json.field("error", figures.worst_error).end_object();
  json.field("within_interval", figures.within_interval);
}

void write_memory(JsonWriter& json, const MemoryFigures& memory) {
  json.field("count", memory.count).field("mape", memory.mape);
  json.field("signed_mean", memory.signed_mean);
  json.key("out_of_memory").begin_object(true).field("right", memory.right);
  json.field("missed", memory.missed).field("false_alarm", memory.false_alarm).end_object();
}

void write_run(JsonWriter& json, const PredictedRun& run) {
  json.begin_object(true).field("id", run.id).field("source", run.file);
  if (run.measured_s) json.field("measured_s", *run.measured_s);
  json.field("predicted_s", *run.predicted_s).key("interval_s").begin_array(true);
  json.value(run.interval_low_s).value(run.interval_high_s).end_array();
  if (run.measured_s) json.field("error", run.error());
  if (run.measured_bytes) {
    json.field("measured_bytes", *run.measured_bytes)
        .field("predicted_bytes", *run.predicted_bytes);
  }
  json.field("fits", run.fits).field("used_in_fit", run.used_in_fit);
  for (const auto& [key, value] : run.decided) json.field("assumed " + key, value);
  json.end_object();
}

std::string percent(double share) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %%", share * 100);
  return text;
}

std::string cell(const std::string& text, std::size_t width, bool right) {
  if (text.size() >= width) return text;
  const std::string padding(width - text.size(), ' ');
  return right ? padding + text : text + padding;
}

std::string figures_row(const std::string& title, const ErrorFigures& figures) {
  return cell(title, 26, false) + cell(std::to_string(figures.count), 6, true) +
         cell(percent(figures.mape), 10, true) + cell(percent(figures.signed_mean), 10, true) +
         cell(percent(figures.p95), 10, true) + cell(percent(figures.within_interval), 10, true) +
         "  " + figures.worst_id + " " + percent(figures.worst_error) + "\n";
}

std::string skipped_text(const std::vector<SkippedRun>& skipped) {
  std::map<std::string, int> reasons;
  for (const SkippedRun& run : skipped) ++reasons[run.why];
  std::string text;
  for (const auto& [why, count] : reasons) text += "  " + std::to_string(count) + "  " + why + "\n";
  return text;
}

}  // namespace

Validation validate(const std::vector<MeasuredRun>& runs, const ValidationOptions& options) {
  Prices prices(options.anchor ? anchored_by(*options.anchor) : Correction{});
  std::vector<std::optional<Outcome>> outcomes(runs.size());
  std::size_t done = 0;
  std::mutex progress_mutex;
  in_parallel(runs.size(), options.threads, [&](std::size_t i) {
    outcomes[i] = run_one(runs[i], prices);
    const std::lock_guard lock(progress_mutex);
    ++done;
    if (options.progress) options.progress(done, runs.size());
  });

  Validation validation;
  for (std::optional<Outcome>& outcome : outcomes) {
    if (auto* predicted = std::get_if<PredictedRun>(&*outcome)) {
      validation.runs.push_back(std::move(*predicted));
    } else {
      validation.skipped.push_back(std::get<SkippedRun>(std::move(*outcome)));
    }
  }
  validation.table = tabulate(validation.runs, options.low);
  return validation;
}

std::string validation_json(const Validation& validation) {
  const ErrorTable& table = validation.table;
  JsonWriter json;
  json.begin_object();
  write_figures(json, table.all);
  json.field("noise", table.noise);
  json.key("by").begin_object();
  for (const auto& [property, values] : table.by) {
    json.key(property).begin_object();
    for (const auto& [value, figures] : values) {
      json.key(value).begin_object(true);
      write_figures(json, figures);
      json.end_object();
    }
    json.end_object();
  }
  json.end_object();
  json.key("memory").begin_object();
  write_memory(json, table.memory);
  json.key("by_source").begin_object();
  for (const auto& [source, memory] : table.memory_by_source) {
    json.key(source).begin_object(true);
    write_memory(json, memory);
    json.end_object();
  }
  json.end_object().end_object();
  json.key("decisions").begin_object();
  for (const auto& [source, decisions] : table.decisions) {
    json.key(source).begin_object(true).field("groups", decisions.groups);
    json.field("top1", decisions.top1).field("mean_regret", decisions.mean_regret);
    json.field("worst_regret", decisions.worst_regret);
    json.field("kendall_tau", decisions.kendall_tau).end_object();
  }
  json.end_object();
  json.key("with_fit_rows").begin_object(true);
  write_figures(json, table.with_fit_rows);
  json.end_object();
  json.key("runs").begin_array();
  for (const PredictedRun& run : validation.runs) write_run(json, run);
  json.end_array();
  json.key("skipped").begin_array();
  for (const SkippedRun& run : validation.skipped) {
    json.begin_object(true).field("id", run.id).field("why", run.why).end_object();
  }
  json.end_array().end_object();
  return json.text();
}

std::string validation_text(const Validation& validation) {
  const ErrorTable& table = validation.table;
  std::string text = cell("runs not used in a fit", 26, false) + cell("count", 6, true) +
                     cell("MAPE", 10, true) + cell("mean", 10, true) + cell("p95", 10, true) +
                     cell("inside", 10, true) + "  worst\n";
  text += figures_row("all", table.all);
  const auto sources = table.by.find("source");
  if (sources != table.by.end()) {
    for (const auto& [source, figures] : sources->second) {
      text += figures_row("  " + source, figures);
    }
  }
  text += figures_row("with rows used in fits", table.with_fit_rows);
  for (const auto& [source, decisions] : table.decisions) {
    text += "decisions, " + source + ": " + std::to_string(decisions.groups) +
            " groups, best plan found in " + percent(decisions.top1) + ", mean regret " +
            percent(decisions.mean_regret) + ", worst " + percent(decisions.worst_regret) +
            ", Kendall tau ";
    char tau[16];
    std::snprintf(tau, sizeof tau, "%.2f", decisions.kendall_tau);
    text += std::string(tau) + "\n";
  }
  for (const auto& [source, memory] : table.memory_by_source) {
    if (memory.count > 0) {
      text += "memory, " + source + ": " + std::to_string(memory.count) + " runs, MAPE " +
              percent(memory.mape) + ", mean " + percent(memory.signed_mean) + "\n";
    }
  }
  const MemoryFigures& memory = table.memory;
  text += "out-of-memory verdicts: " + std::to_string(memory.right) + " right, " +
          std::to_string(memory.missed) + " missed, " + std::to_string(memory.false_alarm) +
          " false alarms\n";
  if (!validation.skipped.empty()) {
    text += std::to_string(validation.skipped.size()) + " runs skipped:\n" +
            skipped_text(validation.skipped);
  }
  return text;
}

}  // namespace headway
