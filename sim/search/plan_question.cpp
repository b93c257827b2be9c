#include "sim/search/plan_question.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "sim/core/json_writer.hpp"
#include "sim/search/plan_ranking.hpp"

namespace headway {

namespace {

// A cluster is grown up to so many times its size in search of a plan that fits.
constexpr int kMostGrowth = 16;
// Plans among which the one nearest to the question is looked for where it has none itself.
constexpr int kNearestAmong = 64;

bool bounded_by(const std::string& framework) { return !framework.empty() && framework != "any"; }

std::string json_word(std::string_view word) {
  JsonWriter writer(0);
  writer.value(word);
  return writer.text();
}

// Profiles and what is priced with them, read once.
class Prices {
 public:
  const PriceBook& of(const std::string& profile) {
    std::unique_ptr<Entry>& entry = entries_[profile];
    if (!entry) entry = std::make_unique<Entry>(read_profile(profile));
    return entry->book;
  }

 private:
  struct Entry {
    Profile profile;
    PriceBook book;
    explicit Entry(Profile read) : profile(std::move(read)), book(profile) {}
  };
  std::map<std::string, std::unique_ptr<Entry>> entries_;
};

class Asking {
 public:
  explicit Asking(const PlanQuestion& question) : question_(question) {}

  PlanAnswer run() {
    std::vector<std::optional<int>> sizes(question_.gpus.begin(), question_.gpus.end());
    if (sizes.empty()) sizes.emplace_back();
    std::vector<SearchResult> results;
    for (const std::optional<int>& size : sizes) {
      results.push_back(search(size, question_.space, question_.search, {}));
      if (results.back().interrupted) break;
    }
    collect(results);
    if (answer_.result.interrupted) return std::move(answer_);
    if (answer_.result.plans.empty()) {
      find_nearest(sizes.back());
    } else {
      const std::vector<FoundPlan>& plans = answer_.result.plans;
      answer_.sensitivity =
          hold_against_trials(plans, prices_.of(plans.front().job.profile).profile(),
                              question_.search.objective, question_.search.threads);
    }
    return std::move(answer_);
  }

 private:
  std::vector<JobOverride> overrides_for(std::optional<int> gpus,
                                         const std::vector<JobOverride>& more) const {
    std::vector<JobOverride> overrides = question_.overrides;
    if (bounded_by(question_.launched_by))
      overrides.push_back({"software.framework", question_.launched_by, "--for"});
    if (gpus) {
      overrides.push_back({"cluster.nodes", "null", "--gpus"});
      overrides.push_back({"cluster.gpus", std::to_string(*gpus), "--gpus"});
    }
    overrides.insert(overrides.end(), more.begin(), more.end());
    return overrides;
  }

  OpenJob read(std::optional<int> gpus, const std::vector<JobOverride>& more) const {
    Problems problems;
    std::optional<OpenJob> job = OpenJob::read(question_.job, overrides_for(gpus, more), problems);
    problems.throw_if_any();
    for (const NotYetBuilt& missing : job->not_built()) {
      problems.add(question_.job.file(), missing.pointer,
                   missing.rule + " is not built yet in this version");
    }
    problems.throw_if_any();
    return std::move(*job);
  }

  SearchResult search(std::optional<int> gpus, const SpaceOptions& space_options,
                      const SearchOptions& options, const std::vector<JobOverride>& more) {
    const OpenJob job = read(gpus, more);
    const FrameworkReach& reach =
        framework_reach(question_.launched_by == "any" ? "any" : job.software().framework);
    Problems problems;
    const PlanSpace space(job, reach, space_options, problems);
    problems.throw_if_any();
    if (answer_.open.empty()) {
      answer_.open = space.keys();
      answer_.launched_by =
          question_.launched_by.empty() ? job.software().framework : question_.launched_by;
      answer_.notes = job.notes();
      if (space.by_default() && !space.keys().empty())
        answer_.notes.push_back("the job leaves no key of its plan open: the search is over " +
                                any_of_all(space.keys()));
    }
    return search_plans(job, space, reach, prices_.of(job.profile()), options);
  }

  static std::string any_of_all(const std::vector<std::string>& words) {
    std::string text;
    for (std::size_t i = 0; i < words.size(); ++i) {
      text += (i == 0 ? "" : i + 1 == words.size() ? " and " : ", ") + words[i];
    }
    return text;
  }

  // -- Several sizes of the cluster
  // -------------------------------------------------------------------------------------------

  void collect(std::vector<SearchResult>& results) {
    const bool several = !question_.gpus.empty() && results.size() > 1;
    for (std::size_t i = 0; i < results.size(); ++i) {
      ScaleAnswer scale;
      scale.gpus = question_.gpus.empty() ? 0 : question_.gpus[i];
      scale.counts = results[i].counts;
      if (!results[i].plans.empty()) scale.best = results[i].plans.front();
      if (scale.best) scale.gpus = scale.best->report.gpus;
      answer_.scales.push_back(std::move(scale));
    }
    answer_.result = std::move(results.front());
    if (!several) return;
    for (RejectedPlans& rejected : answer_.result.rejected)
      rejected.nearest_miss = on_gpus(question_.gpus.front()) + rejected.nearest_miss;
    for (std::size_t i = 1; i < results.size(); ++i) add(results[i], question_.gpus[i]);
    SearchResult& all = answer_.result;
    const Objective objective = question_.search.objective;
    std::stable_sort(all.plans.begin(), all.plans.end(),
                     [&](const FoundPlan& a, const FoundPlan& b) {
                       return cost_of(a, objective) < cost_of(b, objective);
                     });
    const auto top = static_cast<std::ptrdiff_t>(
        std::min(all.plans.size(), static_cast<std::size_t>(question_.search.top)));
    all.plans.erase(all.plans.begin() + top, all.plans.end());
    rank_plans(all.plans, objective);
    keep_front();
  }

  static std::string on_gpus(int gpus) { return "on " + std::to_string(gpus) + " GPUs, "; }

  void add(SearchResult& more, int gpus) {
    SearchResult& all = answer_.result;
    all.counts.legal += more.counts.legal;
    all.counts.illegal += more.counts.illegal;
    all.counts.over_memory += more.counts.over_memory;
    all.counts.pruned += more.counts.pruned;
    all.counts.simulated += more.counts.simulated;
    all.interrupted = all.interrupted || more.interrupted;
    for (RejectedPlans& rejected : more.rejected) {
      const auto same =
          std::find_if(all.rejected.begin(), all.rejected.end(),
                       [&](const RejectedPlans& each) { return each.reason == rejected.reason; });
      rejected.nearest_miss = on_gpus(gpus) + rejected.nearest_miss;
      if (same == all.rejected.end()) {
        all.rejected.push_back(std::move(rejected));
      } else {
        same->count += rejected.count;
      }
    }
    std::move(more.plans.begin(), more.plans.end(), std::back_inserter(all.plans));
    std::move(more.front.begin(), more.front.end(), std::back_inserter(all.front));
  }

  // Of the fronts of all sizes, what no other beats in time, GPUs and memory margin (and so in
  // cost, which is time by GPUs).
  void keep_front() {
    std::vector<FoundPlan>& front = answer_.result.front;
    const auto beats = [](const FoundPlan& a, const FoundPlan& b) {
      return a.report.iteration <= b.report.iteration && a.report.gpus <= b.report.gpus &&
             a.memory_margin >= b.memory_margin &&
             (a.report.iteration < b.report.iteration || a.report.gpus < b.report.gpus ||
              a.memory_margin > b.memory_margin);
    };
    std::vector<FoundPlan> kept;
    for (const FoundPlan& plan : front) {
      const bool beaten = std::any_of(front.begin(), front.end(),
                                      [&](const FoundPlan& other) { return beats(other, plan); });
      if (!beaten) kept.push_back(plan);
    }
    std::stable_sort(kept.begin(), kept.end(), [](const FoundPlan& a, const FoundPlan& b) {
      return a.report.iteration < b.report.iteration;
    });
    front = std::move(kept);
  }

  // -- Where nothing fits
  // -------------------------------------------------------------------------------------------

  void find_nearest(std::optional<int> gpus) {
    SearchOptions options = question_.search;
    options.top = kNearestAmong;
    options.front = false;
    const OpenJob job = read(gpus, {});
    const JobOverride free_plan = {"plan", freed_plan(job), "--fix"};
    if (take_nearest(job, search(gpus, {}, options, {free_plan}))) return;
    const int first = job.topology().gpus();
    for (int size = 2 * first; size <= kMostGrowth * first; size *= 2) {
      try {
        for (const bool free : {false, true}) {
          const SearchResult found = free ? search(size, {}, options, {free_plan})
                                          : search(size, question_.space, options, {});
          if (take_nearest(job, found)) return;
        }
      } catch (const InvalidInput&) {  // the cluster does not grow so far
        return;
      }
    }
  }

  // The job's plan without the keys that a search can vary.
  static std::string freed_plan(const OpenJob& job) {
    static const std::set<std::string> varied = {"tp",
                                                 "pp",
                                                 "dp",
                                                 "ep",
                                                 "etp",
                                                 "schedule",
                                                 "vpp",
                                                 "sequence_parallel",
                                                 "dp_kind",
                                                 "recompute",
                                                 "recompute_layers",
                                                 "stage_layers",
                                                 "micro_batch"};
    JsonWriter writer(0);
    writer.begin_object();
    if (const auto& plan = job.plan()) {
      for (const std::string& key : plan->keys()) {
        if (!varied.contains(key)) writer.key(key).raw(plan->find(key)->text());
      }
    }
    writer.end_object();
    return writer.text();
  }

  // What the question asks for, by key.
  std::map<std::string, std::string> asked(const OpenJob& job) const {
    std::map<std::string, std::string> values;
    if (const auto& plan = job.plan()) {
      for (const std::string& key : plan->keys()) values[key] = plan->find(key)->text();
    }
    for (const PlanValue& fixed : question_.space.fixed) values[fixed.key] = fixed.value;
    return values;
  }

  // The values of keys that the question neither gives nor leaves open.
  std::map<std::string, std::string> defaults(
      const OpenJob& job, const std::map<std::string, std::string>& wanted) const {
    JsonWriter writer(0);
    writer.begin_object();
    for (const auto& [key, value] : wanted) {
      const bool open =
          std::find(answer_.open.begin(), answer_.open.end(), key) != answer_.open.end();
      if (!open) writer.key(key).raw(value);
    }
    writer.end_object();
    Problems problems;
    const JobReading reading = job.with_plan(JsonNode::parse_text(writer.text(), "plan"), problems);
    std::map<std::string, std::string> values;
    if (!reading.job) return values;
    for (const auto& [key, value] : plan_values(*reading.job)) {
      const bool open =
          std::find(answer_.open.begin(), answer_.open.end(), key) != answer_.open.end();
      if (!open && key != "dp") values[key] = value;
    }
    return values;
  }

  // The plan that changes the least of what was asked.
  bool take_nearest(const OpenJob& job, const SearchResult& found) {
    std::map<std::string, std::string> wanted = asked(job);
    for (const auto& [key, value] : defaults(job, wanted)) wanted.try_emplace(key, value);
    std::size_t least = 0;
    for (const FoundPlan& plan : found.plans) {
      std::vector<std::string> changes;
      for (const auto& [key, value] : plan_values(plan.job)) {
        const auto other = wanted.find(key);
        const bool stays = other == wanted.end() || other->second == value ||
                           other->second == "\"auto\"" || other->second.starts_with("[") ||
                           other->second.starts_with("{");
        if (!stays)
          changes.push_back("plan." + key + " " + value + " in place of " + other->second);
      }
      if (answer_.nearest && changes.size() >= least) continue;
      least = changes.size();
      std::string text;
      if (plan.report.gpus != job.topology().gpus())
        text = "on " + std::to_string(plan.report.gpus) + " GPUs";
      for (const std::string& change : changes) text += (text.empty() ? "with " : ", ") + change;
      answer_.nearest = NearestFeasible{text, plan};
    }
    return answer_.nearest.has_value();
  }

  const PlanQuestion& question_;
  Prices prices_;
  PlanAnswer answer_;
};

}  // namespace

PlanAnswer answer(const PlanQuestion& question) { return Asking(question).run(); }

std::vector<std::pair<std::string, std::string>> plan_values(const Job& job) {
  const ParallelPlan& plan = job.plan;
  const auto number = [](std::int64_t value) { return std::to_string(value); };
  const auto truth = [](bool value) { return std::string(value ? "true" : "false"); };
  std::vector<std::pair<std::string, std::string>> values = {
      {"tp", number(plan.tp)},
      {"pp", number(plan.pp)},
      {"cp", number(plan.cp)},
      {"ep", number(plan.ep)},
      {"dp", number(plan.dp)},
      {"micro_batch", number(plan.micro_batch)},
      {"schedule", json_word(plan.schedule)},
      {"vpp", number(plan.vpp)},
      {"sequence_parallel", truth(plan.sequence_parallel)},
      {"dp_kind", json_word(name(plan.dp_kind))},
      {"recompute", json_word(name(plan.recompute))}};
  if (plan.cp > 1) values.emplace_back("cp_kind", json_word(name(plan.cp_kind)));
  if (plan.cp_kind == ContextParallelKind::kUlyssesRing)
    values.emplace_back("ulysses_degree", number(plan.ulysses_degree));
  if (plan.recompute_layers > 0)
    values.emplace_back("recompute_layers", number(plan.recompute_layers));
  return values;
}

}  // namespace headway
