#include "sim/search/plan_search.hpp"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "sim/core/heap.hpp"
#include "sim/price/memory.hpp"
#include "sim/program/training_step.hpp"
#include "sim/search/step_bound.hpp"
#include "sim/simulate/simulated_step.hpp"

namespace headway {

namespace {

// Rows judged, and plans simulated, between two looks at what has been found: of a fixed size, so
// that what is pruned does not depend on the threads.
constexpr std::size_t kRows = 64;
constexpr std::size_t kRound = 16;

enum class Verdict : std::uint8_t { kIllegal, kOverMemory, kFits };

struct Judged {
  PlanChoice choice;
  Verdict verdict = Verdict::kIllegal;
  std::string reason, message;  // of what is rejected
  Bytes need;
  Time bound;
};

// What a plan is ranked by; the smaller, the better.
struct Rank {
  std::int64_t first = 0, second = 0;
  friend auto operator<=>(const Rank&, const Rank&) = default;
};

struct Simulated {
  std::size_t judged = 0;
  Time time;
  Rank rank;
};

// "tp: 16 does not divide the 96 attention heads" -> "tp: N does not divide the N attention heads":
// the same fault of many plans.
std::string without_numbers(const std::string& message) {
  std::string text;
  for (std::size_t i = 0; i < message.size(); ++i) {
    const bool digit = message[i] >= '0' && message[i] <= '9';
    const bool inside_word =
        i > 0 && (std::isalpha(static_cast<unsigned char>(message[i - 1])) != 0);
    if (!digit || inside_word) {
      text += message[i];
      continue;
    }
    text += 'N';
    while (i + 1 < message.size() && message[i + 1] >= '0' && message[i + 1] <= '9') ++i;
  }
  return text;
}

std::string last_key(const std::string& pointer) {
  const std::size_t slash = pointer.rfind('/');
  const std::string key = slash == std::string::npos ? pointer : pointer.substr(slash + 1);
  return key.empty() || key == "plan" ? "" : key + ": ";
}

std::string largest_line(const StageMemory& stage) {
  const std::pair<const char*, Bytes> lines[] = {{"parameters", stage.parameters},
                                                 {"gradients", stage.gradients},
                                                 {"optimizer state", stage.optimizer},
                                                 {"activations", stage.activations},
                                                 {"buffers", stage.buffers},
                                                 {"workspace", stage.workspace},
                                                 {"context", stage.context}};
  return std::max_element(std::begin(lines), std::end(lines),
                          [](const auto& a, const auto& b) { return a.second < b.second; })
      ->first;
}

std::string gib(Bytes bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f GiB", bytes.gib());
  return text;
}

// Whether the intervals of two plans meet, in what is compared.
bool overlaps(const FoundPlan& a, const FoundPlan& b, Objective objective) {
  const double weight_a = objective == Objective::kCost ? a.report.gpus : 1;
  const double weight_b = objective == Objective::kCost ? b.report.gpus : 1;
  return a.report.interval_low.seconds() * weight_a <=
             b.report.interval_high.seconds() * weight_b &&
         b.report.interval_low.seconds() * weight_b <= a.report.interval_high.seconds() * weight_a;
}

class PlanSearch {
 public:
  PlanSearch(const OpenJob& job, const PlanSpace& space, const FrameworkReach& reach,
             const PriceBook& prices, const SearchOptions& options)
      : job_(job), space_(space), reach_(reach), prices_(prices), options_(options) {
    const auto capacity = static_cast<double>(prices.profile().device.memory.count);
    allowed_ = Bytes{static_cast<std::int64_t>(capacity * (1 - options.memory_margin))};
  }

  SearchResult run() {
    judge_all();
    order_by_bound();
    simulate_best();
    if (options_.front && !stopped()) simulate_front();
    count();
    answer();
    explain_rejections();
    result_.interrupted = stopped();
    return std::move(result_);
  }

 private:
  bool stopped() const { return options_.stop != nullptr && options_.stop->load(); }

  // -- Judging
  // ---------------------------------------------------------------------------------------

  void judge_all() {
    std::vector<PlanChoice> rows;
    space_.for_each_row([&](const PlanChoice& row) {
      rows.push_back(row);
      if (rows.size() == kRows) judge_rows(rows);
      return !stopped();
    });
    judge_rows(rows);
  }

  void judge_rows(std::vector<PlanChoice>& rows) {
    std::vector<std::vector<Judged>> found(rows.size());
    in_parallel(rows.size(), options_.threads,
                [&](std::size_t i) { found[i] = judge_row(rows[i]); });
    for (std::vector<Judged>& some : found) {
      std::move(some.begin(), some.end(), std::back_inserter(judged_));
    }
    rows.clear();
    if (options_.progress) options_.progress({.done = static_cast<std::int64_t>(judged_.size())});
  }

  std::vector<Judged> judge_row(const PlanChoice& row) const {
    std::vector<Judged> plans;
    for (const std::string& micro_batch : space_.micro_batches(row)) {
      if (stopped()) break;
      Judged plan;
      plan.choice = row;
      if (!micro_batch.empty()) plan.choice.back() = micro_batch;
      judge(plan);
      plans.push_back(std::move(plan));
      if (plans.back().verdict == Verdict::kOverMemory && space_.ends_with_memory()) break;
    }
    return plans;
  }

  void judge(Judged& plan) const {
    const std::optional<Job> job = legal_job(plan);
    if (!job) return;
    try {
      const Program program = lower(*job);
      const MemoryReport memory = report_memory(*job, program, prices_.profile().device);
      plan.need = needed_memory(memory);
      if (plan.need > allowed_) {
        plan.verdict = Verdict::kOverMemory;
        plan.reason =
            "over memory, most of it " +
            largest_line(memory.per_stage[static_cast<std::size_t>(memory.fullest_stage)]);
        return;
      }
      plan.bound = least_step_time(*job, program, prices_);
      plan.verdict = Verdict::kFits;
    } catch (const InvalidInput& error) {  // the profile lacks a price
      plan.reason = without_numbers(error.problems().front().message);
      plan.message = error.problems().front().message;
    }
  }

  // The job with the plan; nothing where it is illegal, with the reason.
  std::optional<Job> legal_job(Judged& plan) const {
    Problems problems;
    JobReading reading =
        job_.with_plan(JsonNode::parse_text(space_.plan_text(plan.choice), "plan"), problems);
    const auto refuse = [&](const std::string& key, const std::string& message) {
      plan.reason = key + without_numbers(message);
      plan.message = message;
      return std::nullopt;
    };
    if (!problems.empty()) {
      const Problem& first = problems.list().front();
      return refuse(last_key(first.pointer), first.message);
    }
    if (!reading.not_built.empty()) {
      return refuse("", reading.not_built.front().rule + " is not built yet in this version");
    }
    if (const std::string why = launch_refusal(reach_, *reading.job); !why.empty()) {
      return refuse("", why);
    }
    return std::move(reading.job);
  }

  // -- Simulating
  // -------------------------------------------------------------------------------------

  Rank rank_of(const Judged& plan, Time time) const {
    if (options_.objective == Objective::kMemory) return {plan.need.count, time.picoseconds};
    return {time.picoseconds, 0};
  }

  void order_by_bound() {
    for (std::size_t i = 0; i < judged_.size(); ++i) {
      if (judged_[i].verdict == Verdict::kFits) order_.push_back(i);
    }
    std::stable_sort(order_.begin(), order_.end(), [&](std::size_t a, std::size_t b) {
      return rank_of(judged_[a], judged_[a].bound) < rank_of(judged_[b], judged_[b].bound);
    });
  }

  // The rank that a plan must not exceed to be among the best.
  std::optional<Rank> threshold() const {
    const auto top = static_cast<std::size_t>(options_.top);
    if (!options_.prune || simulated_.size() < top || top == 0) return std::nullopt;
    std::vector<Rank> ranks;
    ranks.reserve(simulated_.size());
    for (const Simulated& plan : simulated_) ranks.push_back(plan.rank);
    std::nth_element(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(top) - 1,
                     ranks.end());
    return ranks[top - 1];
  }

  void simulate_best() {
    std::size_t next = 0;
    while (next < order_.size()) {
      if (stopped() && !simulated_.empty()) return;
      const std::optional<Rank> limit = threshold();
      std::vector<std::size_t> round;
      for (; next < order_.size() && round.size() < kRound; ++next) {
        const Judged& plan = judged_[order_[next]];
        if (limit && rank_of(plan, plan.bound) > *limit) break;
        round.push_back(order_[next]);
      }
      if (round.empty()) return;
      simulate_round(round);
    }
  }

  // Plans that no simulated one beats in both time and memory, going by their bounds.
  void simulate_front() {
    std::vector<std::size_t> order = order_;
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return judged_[a].bound < judged_[b].bound;
    });
    while (!stopped()) {
      std::vector<std::size_t> round;
      Bytes least_in_round = Bytes{std::numeric_limits<std::int64_t>::max()};
      for (const std::size_t index : order) {
        if (round.size() == kRound) break;
        if (is_simulated_.contains(index) || is_beaten(judged_[index])) continue;
        // Of those in one round a faster bound with less memory will likely beat the others.
        if (judged_[index].need >= least_in_round) continue;
        least_in_round = judged_[index].need;
        round.push_back(index);
      }
      if (round.empty()) return;
      simulate_round(round);
    }
  }

  bool is_beaten(const Judged& plan) const {
    return std::any_of(simulated_.begin(), simulated_.end(), [&](const Simulated& other) {
      return other.time <= plan.bound && judged_[other.judged].need <= plan.need;
    });
  }

  void simulate_round(const std::vector<std::size_t>& round) {
    std::vector<Time> times(round.size());
    in_parallel(round.size(), options_.threads, [&](std::size_t i) {
      Judged plan = judged_[round[i]];
      const Job job = *legal_job(plan);
      StepOptions options;
      options.prices = &prices_;
      const SimulatedStep step = simulate_step(job, prices_.profile(), options);
      times[i] = step.timeline.deadlock.empty() ? step.timeline.makespan : Time::max();
    });
    for (std::size_t i = 0; i < round.size(); ++i) {
      is_simulated_.insert(round[i]);
      simulated_.push_back({round[i], times[i], rank_of(judged_[round[i]], times[i])});
      if (!best_ || times[i] < *best_) best_ = times[i];
    }
    if (options_.progress) {
      options_.progress({.simulating = true,
                         .done = static_cast<std::int64_t>(simulated_.size()),
                         .most = static_cast<std::int64_t>(order_.size()),
                         .best = best_});
    }
  }

  // -- Answering
  // --------------------------------------------------------------------------------------

  void count() {
    SearchCounts& counts = result_.counts;
    for (const Judged& plan : judged_) {
      if (plan.verdict == Verdict::kIllegal) ++counts.illegal;
      if (plan.verdict == Verdict::kOverMemory) ++counts.over_memory;
    }
    counts.simulated = static_cast<std::int64_t>(simulated_.size());
    counts.pruned = static_cast<std::int64_t>(order_.size()) - counts.simulated;
    counts.legal = counts.over_memory + counts.pruned + counts.simulated;
  }

  void answer() {
    std::vector<Simulated> ranked = simulated_;
    std::erase_if(ranked, [](const Simulated& plan) { return plan.time == Time::max(); });
    std::sort(ranked.begin(), ranked.end(), [](const Simulated& a, const Simulated& b) {
      return a.rank != b.rank ? a.rank < b.rank : a.judged < b.judged;
    });
    std::vector<Simulated> best = ranked;
    best.resize(std::min(best.size(), static_cast<std::size_t>(options_.top)));
    std::vector<Simulated> front = options_.front ? front_of(ranked) : std::vector<Simulated>{};
    std::vector<Simulated> wanted = best;
    wanted.insert(wanted.end(), front.begin(), front.end());
    std::vector<std::optional<FoundPlan>> found(wanted.size());
    in_parallel(wanted.size(), options_.threads,
                [&](std::size_t i) { found[i] = report(wanted[i]); });
    for (std::size_t i = 0; i < found.size(); ++i) {
      (i < best.size() ? result_.plans : result_.front).push_back(std::move(*found[i]));
    }
    mark_ties();
  }

  std::vector<Simulated> front_of(std::vector<Simulated> plans) const {
    std::stable_sort(plans.begin(), plans.end(), [&](const Simulated& a, const Simulated& b) {
      if (a.time != b.time) return a.time < b.time;
      return judged_[a.judged].need < judged_[b.judged].need;
    });
    std::vector<Simulated> front;
    for (const Simulated& plan : plans) {
      if (front.empty() || judged_[plan.judged].need < judged_[front.back().judged].need)
        front.push_back(plan);
    }
    return front;
  }

  FoundPlan report(const Simulated& simulated) const {
    Judged plan = judged_[simulated.judged];
    FoundPlan found{.choice = plan.choice,
                    .text = space_.plan_text(plan.choice),
                    .job = *legal_job(plan),
                    .report = {}};
    StepOptions options;
    options.prices = &prices_;
    options.critical_path = true;
    const SimulatedStep step = simulate_step(found.job, prices_.profile(), options);
    found.report = report_step(found.job, prices_.profile(), step);
    const auto capacity = static_cast<double>(found.report.memory.capacity.count);
    found.memory_margin = 1 - static_cast<double>(plan.need.count) / capacity;
    const Breakdown& parts = found.report.breakdown;
    found.loses_to.bubble = parts.bubble;
    found.loses_to.exposed_communication = parts.tp + parts.cp + parts.ep + parts.pp + parts.dp;
    // What is executed beyond the model's own operations is computed again.
    if (found.report.hfu > 0 && found.job.plan.recompute != Recompute::kNothing) {
      const double again = std::max(0.0, 1 - found.report.mfu / found.report.hfu);
      found.loses_to.recompute = Time::from_seconds(parts.compute.seconds() * again);
    }
    return found;
  }

  void mark_ties() {
    rank_plans(result_.plans, options_.objective);
    std::vector<FoundPlan>& front = result_.front;
    for (FoundPlan& plan : front) plan.tie = overlaps(plan, front.front(), Objective::kTime);
    if (!front.empty()) front.front().fastest = true;
  }

  // -- Rejections
  // -------------------------------------------------------------------------------------

  void explain_rejections() {
    struct Group {
      std::int64_t count = 0;
      std::size_t nearest = 0;
      std::int64_t distance = std::numeric_limits<std::int64_t>::max();
    };
    std::map<std::string, Group> groups;
    for (std::size_t i = 0; i < judged_.size(); ++i) {
      const Judged& plan = judged_[i];
      if (plan.verdict == Verdict::kFits) continue;
      Group& group = groups[plan.reason];
      ++group.count;
      // Over memory: by how much; illegal: in how many keys it differs from the answer.
      const std::int64_t distance = plan.verdict == Verdict::kOverMemory ? plan.need.count
                                    : result_.plans.empty()
                                        ? 0
                                        : differences(plan.choice, result_.plans.front().choice);
      if (distance >= group.distance) continue;
      group.distance = distance;
      group.nearest = i;
    }
    for (const auto& [reason, group] : groups) {
      result_.rejected.push_back({reason, group.count, miss_words(judged_[group.nearest])});
    }
    std::stable_sort(result_.rejected.begin(), result_.rejected.end(),
                     [](const auto& a, const auto& b) { return a.count > b.count; });
  }

  std::string miss_words(const Judged& plan) const {
    const std::string words = choice_words(space_.keys(), plan.choice) + ": ";
    if (plan.verdict == Verdict::kIllegal) return words + plan.message;
    std::string text = words + "needs " + gib(plan.need) + " of " + gib(allowed_);
    const Judged* best = nullptr;
    for (const Judged& other : judged_) {
      if (other.verdict != Verdict::kFits || differences(other.choice, plan.choice) != 1) continue;
      if (best == nullptr || other.bound < best->bound) best = &other;
    }
    if (best != nullptr) text += "; would fit with " + change_words(plan.choice, best->choice);
    return text;
  }

  // Keys that are one decision: how much is recomputed, how the pipeline is run.
  static std::string decision_of(const std::string& key) {
    if (key == "recompute_layers") return "recompute";
    return key == "vpp" ? "schedule" : key;
  }

  int differences(const PlanChoice& a, const PlanChoice& b) const {
    std::set<std::string> decisions;
    for (std::size_t i = 0; i < a.size(); ++i) {
      if (a[i] != b[i]) decisions.insert(decision_of(space_.keys()[i]));
    }
    return static_cast<int>(decisions.size());
  }

  std::string change_words(const PlanChoice& from, const PlanChoice& to) const {
    PlanChoice changed(to.size());
    std::set<std::string> decisions;
    for (std::size_t i = 0; i < to.size(); ++i) {
      if (from[i] != to[i]) decisions.insert(decision_of(space_.keys()[i]));
    }
    for (std::size_t i = 0; i < to.size(); ++i) {
      if (decisions.contains(decision_of(space_.keys()[i]))) changed[i] = to[i];
    }
    return choice_words(space_.keys(), changed);
  }

  const OpenJob& job_;
  const PlanSpace& space_;
  const FrameworkReach& reach_;
  const PriceBook& prices_;
  const SearchOptions& options_;
  Bytes allowed_;
  std::vector<Judged> judged_;
  std::vector<std::size_t> order_;  // of those that fit, by what they cannot undercut
  std::vector<Simulated> simulated_;
  std::set<std::size_t> is_simulated_;
  std::optional<Time> best_;
  SearchResult result_;
};

}  // namespace

SearchResult search_plans(const OpenJob& job, const PlanSpace& space, const FrameworkReach& reach,
                          const PriceBook& prices, const SearchOptions& options) {
  return PlanSearch(job, space, reach, prices, options).run();
}

void in_parallel(std::size_t count, int threads, const std::function<void(std::size_t)>& work) {
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::exception_ptr failure;
  const auto run = [&] {
    try {
      for (std::size_t i = next++; i < count; i = next++) work(i);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
    }
  };
  std::vector<std::thread> others;
  const auto more =
      static_cast<int>(std::min<std::size_t>(count, static_cast<std::size_t>(threads)));
  const auto run_beside = [&] {
    use_huge_pages_in_thread();
    run();
  };
  for (int t = 1; t < more; ++t) others.emplace_back(run_beside);
  run();
  for (std::thread& thread : others) thread.join();
  if (failure) std::rethrow_exception(failure);
}

double cost_of(const FoundPlan& plan, Objective objective) {
  switch (objective) {
    case Objective::kTime:
      return plan.report.iteration.seconds();
    case Objective::kCost:
      return plan.report.iteration.seconds() * plan.report.gpus;
    case Objective::kMemory:
      return static_cast<double>(needed_memory(plan.report.memory).count);
  }
  return 0;
}

void rank_plans(std::vector<FoundPlan>& plans, Objective objective) {
  if (plans.empty()) return;
  // Of equal plans the one that is enumerated first: the sort is stable.
  std::stable_sort(plans.begin(), plans.end(), [&](const FoundPlan& a, const FoundPlan& b) {
    return cost_of(a, objective) < cost_of(b, objective);
  });
  const Objective compared = objective == Objective::kCost ? objective : Objective::kTime;
  const auto fastest =
      std::min_element(plans.begin(), plans.end(), [&](const FoundPlan& a, const FoundPlan& b) {
        return cost_of(a, compared) < cost_of(b, compared);
      });
  for (FoundPlan& plan : plans) {
    plan.fastest = &plan == &*fastest;
    plan.tie = overlaps(plan, *fastest, compared);
  }
  if (objective == Objective::kMemory) return;
  std::stable_sort(plans.begin(), plans.end(), [](const FoundPlan& a, const FoundPlan& b) {
    if (a.tie != b.tie) return a.tie;
    if (!a.tie) return false;
    if (a.memory_margin != b.memory_margin) return a.memory_margin > b.memory_margin;
    return moving_parts(a.job.plan) < moving_parts(b.job.plan);
  });
}

Bytes needed_memory(const MemoryReport& memory) { return std::max(memory.peak, memory.device); }

std::string choice_words(const std::vector<std::string>& keys, const PlanChoice& choice) {
  std::string words;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (choice[i].empty()) continue;
    std::string value = choice[i];
    if (value.size() >= 2 && value.front() == '"') value = value.substr(1, value.size() - 2);
    words += (words.empty() ? "" : ", ") + keys[i] + " " + value;
  }
  return words;
}

int moving_parts(const ParallelPlan& plan) {
  int parts = 0;
  for (const bool part :
       {plan.tp > 1, plan.pp > 1, plan.cp > 1, plan.ep > 1, plan.vpp > 1,
        plan.pp > 1 && plan.schedule != "1f1b", plan.sequence_parallel && plan.tp > 1,
        plan.recompute != Recompute::kNothing, plan.recompute_layers > 0,
        plan.dp * plan.cp > 1 && plan.dp_kind != DataParallelKind::kDdp}) {
    parts += part ? 1 : 0;
  }
  return parts;
}

}  // namespace headway
