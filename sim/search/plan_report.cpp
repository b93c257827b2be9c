#include "sim/search/plan_report.hpp"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <map>

#include "sim/core/json_writer.hpp"
#include "sim/core/quantity.hpp"
#include "sim/report/json.hpp"

namespace headway {

namespace {

constexpr double kSecondsPerHour = 3600, kSecondsPerDay = 86400, kJoulesPerKilowattHour = 3.6e6;

[[gnu::format(printf, 1, 2)]] std::string print(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  char text[512];
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return text;
}

std::string row(const std::string& title, const std::string& words) {
  constexpr std::size_t kTitleWidth = 12;
  return title + std::string(kTitleWidth - title.size(), ' ') + words + "\n";
}

double percent(Time part, const FoundPlan& plan) {
  return part.seconds() / plan.report.iteration.seconds() * 100;
}

std::string joined(const std::vector<std::string>& words, const char* separator) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : separator) + word;
  return text;
}

const char* name_of(Objective objective) {
  switch (objective) {
    case Objective::kTime:
      return "time";
    case Objective::kCost:
      return "cost";
    case Objective::kMemory:
      return "memory";
  }
  return "";
}

// -- Text
// ----------------------------------------------------------------------------------------------

std::string losses(const FoundPlan& plan) {
  std::string text =
      print("bubble %.1f %%, communication %.1f %%", percent(plan.loses_to.bubble, plan),
            percent(plan.loses_to.exposed_communication, plan));
  if (plan.loses_to.recompute > Time::zero())
    text += print(", recompute %.1f %%", percent(plan.loses_to.recompute, plan));
  return text;
}

// The best one by what is compared: with kMemory too it is time.
const char* best_words(Objective objective) {
  return objective == Objective::kCost ? "the cheapest" : "the fastest";
}

std::string plan_rows(const std::vector<FoundPlan>& plans, Objective objective, bool several) {
  std::string text;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const FoundPlan& plan = plans[i];
    const std::string gpus = several ? std::to_string(plan.report.gpus) + " GPUs, " : "";
    text += print("%3zu %s %-9s MFU %4.1f %%  memory left %4.1f %%  ", i + 1, plan.tie ? "=" : " ",
                  to_text(plan.report.iteration).c_str(), plan.report.mfu * 100,
                  plan.memory_margin * 100);
    text += gpus + plan_words(plan.job) + "\n      loses " + losses(plan) +
            (plan.fastest ? std::string("; ") + best_words(objective) + "\n" : "\n");
  }
  return text;
}

std::string candidate_words(const SearchCounts& counts) {
  return std::to_string(counts.legal) + " legal: " + std::to_string(counts.over_memory) +
         " over memory, " + std::to_string(counts.pruned) + " pruned, " +
         std::to_string(counts.simulated) + " simulated; " + std::to_string(counts.illegal) +
         " illegal";
}

std::string rejected_words(const std::vector<RejectedPlans>& rejected) {
  constexpr std::size_t kShown = 6;
  std::string text = "rejected\n";
  for (std::size_t i = 0; i < std::min(kShown, rejected.size()); ++i) {
    const RejectedPlans& each = rejected[i];
    text += print("  %6lld  ", static_cast<long long>(each.count)) + each.reason +
            "\n          nearest: " + each.nearest_miss + "\n";
  }
  if (rejected.size() > kShown)
    text += "          and " + std::to_string(rejected.size() - kShown) + " more reasons\n";
  return text;
}

std::string scale_rows(const std::vector<ScaleAnswer>& scales) {
  std::string text = "size of the cluster\n";
  for (const ScaleAnswer& scale : scales) {
    text += print("  %6d GPUs  ", scale.gpus);
    if (!scale.best) {
      text += "no plan fits (" + std::to_string(scale.counts.over_memory) + " over memory, " +
              std::to_string(scale.counts.illegal) + " illegal)\n";
      continue;
    }
    const FoundPlan& best = *scale.best;
    text +=
        print("%-9s MFU %4.1f %%  ", to_text(best.report.iteration).c_str(), best.report.mfu * 100);
    if (best.report.cost_usd) text += print("%.4g $ a step  ", *best.report.cost_usd);
    text += plan_words(best.job) + "\n";
  }
  return text;
}

// Which of the plans stays the fastest.
std::string sensitivity_words(const PlanAnswer& answer, Objective objective) {
  std::string text;
  const std::string best = best_words(objective);
  const std::vector<FoundPlan>& plans = answer.result.plans;
  const auto fastest =
      std::find_if(plans.begin(), plans.end(), [](const FoundPlan& plan) { return plan.fastest; });
  const auto before = static_cast<std::size_t>(fastest - plans.begin());
  for (const Sensitivity& trial : answer.sensitivity) {
    const Time time = trial.times[before];
    text +=
        row(text.empty() ? "if" : "",
            trial.words + ": plan " + std::to_string(before + 1) + " takes " + to_text(time) +
                (trial.best == before ? ", and stays " + best + " of these"
                                      : "; plan " + std::to_string(trial.best + 1) + " is then " +
                                            best + ", " + to_text(trial.times[trial.best])));
  }
  return text;
}

// What dollars and kWh follow from.
std::string rates_words(const Topology& topology) {
  std::vector<std::string> rates;
  if (const auto price = topology.dollars_per_gpu_hour())
    rates.push_back(print("%.4g $ a GPU hour", *price));
  if (const auto watts = topology.watts_per_node())
    rates.push_back(print("%.4g kW a server", *watts / 1000));
  if (rates.empty()) return row("", topology.name() + " states neither a price nor watts");
  return row("", "at " + joined(rates, " and ") + "; sources: topology " + topology.name());
}

std::string training_words(const FoundPlan& plan, double tokens) {
  const TrainingRun run = training_run(plan.job, plan.report, tokens);
  std::string text =
      print("%.3g tokens: %.1f days, %.4g GPU hours", tokens, run.days, run.gpu_hours);
  if (run.dollars) text += print(", %.4g $", *run.dollars);
  if (run.kilowatt_hours) text += print(", %.4g kWh", *run.kilowatt_hours);
  return row("training", text) + rates_words(plan.job.topology);
}

// Of plans on as many GPUs that leave about as much memory the fastest alone; the whole front is in
// the JSON.
std::string front_rows(const std::vector<FoundPlan>& front, bool several) {
  const double worth_saying = several ? 0.1 : 0.02;  // of the device's memory
  std::string text = "front of time, memory left";
  text += several ? ", GPUs and cost\n" : "\n";
  std::map<int, double> shown;  // by GPUs
  for (const FoundPlan& plan : front) {
    const auto [before, is_first] = shown.try_emplace(plan.report.gpus, plan.memory_margin);
    if (!is_first && plan.memory_margin < before->second + worth_saying) continue;
    before->second = plan.memory_margin;
    text += print("  %-9s memory left %4.1f %%  ", to_text(plan.report.iteration).c_str(),
                  plan.memory_margin * 100);
    if (several) {
      text += print("%d GPUs", plan.report.gpus);
      if (plan.report.cost_usd) text += print(", %.4g $ a step", *plan.report.cost_usd);
      text += "  ";
    }
    text += plan_words(plan.job) + "\n";
  }
  return text;
}

// A file's lines hold blanks, a command's words none.
bool is_command(const std::vector<std::string>& arguments) {
  return std::none_of(arguments.begin(), arguments.end(),
                      [](const std::string& word) { return word.find(' ') != std::string::npos; });
}

// A command as a shell takes it, or the lines of a file.
std::string launch_words(const std::vector<std::string>& arguments) {
  if (!is_command(arguments)) return joined(arguments, "\n  ");
  std::vector<std::string> words;
  for (const std::string& word : arguments) {
    const bool special = word.find_first_of("()[]*|;&<>$'\"") != std::string::npos;
    words.push_back(special ? "'" + word + "'" : word);
  }
  return joined(words, " ");
}

std::string no_plan_words(const PlanAnswer& answer) {
  std::string text = "no plan found: ";
  text += answer.result.counts.legal == 0 ? "none is legal\n" : "none fits the memory\n";
  if (!answer.nearest) return text;
  const FoundPlan& plan = answer.nearest->plan;
  return text + row("nearest", answer.nearest->change + ": " + to_text(plan.report.iteration) +
                                   ", memory left " + print("%.1f %%", plan.memory_margin * 100) +
                                   ", " + plan_words(plan.job));
}

// -- JSON
// ----------------------------------------------------------------------------------------------

void write_plan(JsonWriter& json, const FoundPlan& plan) {
  json.key("plan").begin_object(true);
  for (const auto& [key, value] : plan_values(plan.job)) json.key(key).raw(value);
  // Whatever else the job or the choice gives.
  const JsonNode text = JsonNode::parse_text(plan.text, "plan");
  const auto stated = plan_values(plan.job);
  for (const std::string& key : text.keys()) {
    const bool is_stated = std::any_of(stated.begin(), stated.end(),
                                       [&](const auto& value) { return value.first == key; });
    if (!is_stated) json.key(key).raw(text.find(key)->text());
  }
  json.end_object();
}

void write_training(JsonWriter& json, const FoundPlan& plan, double tokens) {
  const TrainingRun run = training_run(plan.job, plan.report, tokens);
  json.key("training").begin_object(true).field("tokens", tokens).field("days", run.days);
  json.field("gpu_hours", run.gpu_hours);
  if (run.dollars) json.field("cost_usd", *run.dollars);
  if (run.kilowatt_hours) json.field("energy_kwh", *run.kilowatt_hours);
  if (const auto price = plan.job.topology.dollars_per_gpu_hour())
    json.field("usd_per_gpu_hour", *price);
  if (const auto watts = plan.job.topology.watts_per_node()) json.field("watts_per_server", *watts);
  json.end_object();
}

std::string indented(const std::string& json, int levels) {
  std::string text;
  for (const char c : json) {
    text += c;
    if (c == '\n') text.append(static_cast<std::size_t>(2 * levels), ' ');
  }
  while (!text.empty() && (text.back() == ' ' || text.back() == '\n')) text.pop_back();
  return text;
}

void write_found(JsonWriter& json, const FoundPlan& plan, const PlanReportOptions& options) {
  json.begin_object();
  write_plan(json, plan);
  json.key("result").raw(indented(result_json(plan.job, plan.report, std::nullopt), 3));
  json.field("tie", plan.tie).field("fastest", plan.fastest);
  json.key("loses_to").begin_object(true);
  json.field("bubble_s", plan.loses_to.bubble.seconds());
  json.field("exposed_communication_s", plan.loses_to.exposed_communication.seconds());
  json.field("recompute_s", plan.loses_to.recompute.seconds());
  json.field("memory_margin", plan.memory_margin).end_object();
  if (options.tokens) write_training(json, plan, *options.tokens);
  json.key("launch").begin_array(true);
  if (options.launch) {
    for (const std::string& argument : options.launch(plan.job)) json.value(argument);
  }
  json.end_array().end_object();
}

// One point of a front, or the best plan of a size.
void write_point(JsonWriter& json, const FoundPlan& plan) {
  json.field("gpus", plan.report.gpus);
  json.field("iteration_time_s", plan.report.iteration.seconds());
  json.field("memory_margin", plan.memory_margin);
  if (plan.report.cost_usd) json.field("cost_usd", *plan.report.cost_usd);
  write_plan(json, plan);
}

void write_counts(JsonWriter& json, const SearchCounts& counts) {
  json.key("candidates").begin_object(true).field("legal", counts.legal);
  json.field("over_memory", counts.over_memory).field("pruned", counts.pruned);
  json.field("simulated", counts.simulated).field("illegal", counts.illegal).end_object();
}

void write_scales(JsonWriter& json, const PlanAnswer& answer) {
  json.key("scales").begin_array();
  for (const ScaleAnswer& scale : answer.scales) {
    json.begin_object();
    write_counts(json, scale.counts);
    if (scale.best) {
      write_point(json, *scale.best);
    } else {
      json.field("gpus", scale.gpus).field("fits", false);
    }
    json.end_object();
  }
  json.end_array();
}

void write_sensitivity(JsonWriter& json, const PlanAnswer& answer) {
  json.key("sensitivity").begin_array();
  for (const Sensitivity& trial : answer.sensitivity) {
    json.begin_object(true).field("resource", trial.name).field("factor", trial.factor);
    json.field("fastest_plan", static_cast<std::int64_t>(trial.best));
    json.key("iteration_time_s").begin_array(true);
    for (const Time time : trial.times) json.value(time.seconds());
    json.end_array().end_object();
  }
  json.end_array();
}

}  // namespace

std::string plan_words(const Job& job) {
  const ParallelPlan& plan = job.plan;
  std::string text = print("tp %d x pp %d x dp %d", plan.tp, plan.pp, plan.dp);
  if (plan.cp > 1) text += print(" x cp %d (%s)", plan.cp, std::string(name(plan.cp_kind)).c_str());
  if (plan.ep > 1) text += print(", ep %d", plan.ep);
  if (plan.pp > 1) text += ", " + plan.schedule;
  if (plan.vpp > 1) text += print(" (vpp %d)", plan.vpp);
  text += print(", micro-batch %lld", static_cast<long long>(plan.micro_batch));
  if (plan.recompute != Recompute::kNothing) {
    text += ", recompute " + std::string(name(plan.recompute));
    if (plan.recompute_layers > 0)
      text += print(" of %lld layer%s a stage", static_cast<long long>(plan.recompute_layers),
                    plan.recompute_layers == 1 ? "" : "s");
  }
  if (plan.tp > 1 && plan.tp_overlap != TensorOverlap::kNothing)
    text += ", tp_overlap " + std::string(name(plan.tp_overlap));
  if (plan.dp * plan.cp > 1) {
    text += ", " + std::string(name(plan.dp_kind));
    if (plan.shard > 0) text += print(" over %d ranks", plan.shard);
  }
  return text;
}

TrainingRun training_run(const Job& job, const StepReport& step, double tokens) {
  TrainingRun run;
  const double seconds = tokens / step.tokens_per_s;
  run.days = seconds / kSecondsPerDay;
  run.gpu_hours = seconds / kSecondsPerHour * step.gpus;
  if (const auto price = job.topology.dollars_per_gpu_hour()) run.dollars = *price * run.gpu_hours;
  if (const auto watts = job.topology.watts_per_node()) {
    run.kilowatt_hours = *watts * job.topology.nodes() * seconds / kJoulesPerKilowattHour;
  }
  return run;
}

std::string plan_text(const PlanAnswer& answer, const PlanReportOptions& options) {
  const SearchResult& result = answer.result;
  const bool several = answer.scales.size() > 1;
  std::string text;
  if (!result.plans.empty()) {
    const Job& job = result.plans.front().job;
    text += job.model.name + " on " + (several ? "" : std::to_string(job.gpus()) + " x ") +
            job.profile + " (" + job.topology.name() + "), for " + answer.launched_by + "\n";
  }
  text += row("open", joined(answer.open, ", "));
  text += row("candidates", candidate_words(result.counts));
  if (result.interrupted) text += row("interrupted", "the best so far, not the best of all");
  if (several) text += scale_rows(answer.scales);
  if (result.plans.empty()) {
    text += no_plan_words(answer);
    if (!result.rejected.empty()) text += rejected_words(result.rejected);
    return text;
  }
  const bool tied = std::count_if(result.plans.begin(), result.plans.end(),
                                  [](const FoundPlan& plan) { return plan.tie; }) > 1;
  text += std::string("plans, the best by ") + name_of(options.search.objective);
  if (tied)
    text += std::string("; those marked = lie within the interval of ") +
            best_words(options.search.objective) + ": a tie, by memory left, then by simplicity";
  text += "\n" + plan_rows(result.plans, options.search.objective, several);
  text += sensitivity_words(answer, options.search.objective);
  if (options.tokens) text += training_words(result.plans.front(), *options.tokens);
  if (result.front.size() > 1) text += front_rows(result.front, several);
  if (!result.rejected.empty()) text += rejected_words(result.rejected);
  if (options.launch) {
    const std::vector<std::string> arguments = options.launch(result.plans.front().job);
    if (!arguments.empty()) text += "launch plan 1 with\n  " + launch_words(arguments) + "\n";
  }
  return text;
}

std::string plan_json(const PlanAnswer& answer, const PlanReportOptions& options) {
  const SearchResult& result = answer.result;
  JsonWriter json;
  json.begin_object();
  json.field("fits", !result.plans.empty());
  if (result.plans.empty()) {
    json.field("why", result.counts.legal == 0 ? "no plan of the space is legal"
                                               : "no legal plan fits the memory");
  }
  json.field("for", answer.launched_by).field("objective", name_of(options.search.objective));
  json.field("memory_margin", options.search.memory_margin);
  json.field("interrupted", result.interrupted);
  json.key("open").begin_array(true);
  for (const std::string& key : answer.open) json.value(key);
  json.end_array();
  write_counts(json, result.counts);
  json.key("rejected").begin_object();
  for (const RejectedPlans& rejected : result.rejected) {
    json.key(rejected.reason).begin_object(true).field("count", rejected.count);
    json.field("nearest_miss", rejected.nearest_miss).end_object();
  }
  json.end_object();
  json.key("plans").begin_array();
  for (const FoundPlan& plan : result.plans) write_found(json, plan, options);
  json.end_array();
  json.key("pareto").begin_array();
  for (const FoundPlan& plan : result.front) {
    json.begin_object();
    write_point(json, plan);
    json.end_object();
  }
  json.end_array();
  write_scales(json, answer);
  write_sensitivity(json, answer);
  if (answer.nearest) {
    json.key("nearest_feasible").begin_object().field("change", answer.nearest->change);
    write_point(json, answer.nearest->plan);
    json.end_object();
  }
  json.key("notes").begin_array();
  for (const std::string& note : answer.notes) json.value(note);
  json.end_array();
  json.field("version", HEADWAY_VERSION);
  json.end_object();
  return json.text();
}

}  // namespace headway
