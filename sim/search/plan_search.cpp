#include "sim/search/plan_search.hpp"

#include "sim/core/parallel.hpp"
#include <algorithm>
#include <set>
#include <utility>

#include "sim/search/plan_judge.hpp"
#include "sim/search/plan_ranking.hpp"
#include "sim/simulate/simulated_step.hpp"

namespace headway {

namespace {

// Rows judged, and plans simulated, between two looks at what has been found: of a fixed size, so
// that what is pruned does not depend on the threads.
constexpr std::size_t kRows = 64;
constexpr std::size_t kRound = 16;

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

class PlanSearch {
 public:
  PlanSearch(const OpenJob& job, const PlanSpace& space, const FrameworkReach& reach,
             const PriceBook& prices, const SearchOptions& options)
      : space_(space),
        prices_(prices),
        options_(options),
        judge_(job, space, reach, prices, options.memory_margin) {}

  SearchResult run() {
    judge_all();
    order_by_bound();
    simulate_best();
    if (options_.front && !stopped()) simulate_front();
    count();
    answer();
    const PlanChoice* best = result_.plans.empty() ? nullptr : &result_.plans.front().choice;
    result_.rejected = explain_rejections(space_, judged_, judge_.allowed(), best);
    result_.interrupted = stopped();
    return std::move(result_);
  }

 private:
  bool told_to_stop() const { return options_.stop != nullptr && options_.stop->load(); }
  // Whether the search is to end: the same in all processes between two shares of work.
  bool stopped() const { return options_.processes == nullptr ? told_to_stop() : stopped_; }

  using Work = std::function<void(std::size_t, ByteWriter&)>;
  using Put = std::function<void(std::size_t, ByteReader&)>;
  void share(std::size_t count, const Work& work, const Put& put) {
    stopped_ = told_to_stop();
    share_out(count, options_.threads, options_.processes, stopped_, work, put);
  }

  // -- Judging
  // ---------------------------------------------------------------------------------------

  void judge_all() {
    if (options_.progress) {
      space_.for_each_row([&](const PlanChoice&) {
        ++rows_;
        return true;
      });
    }
    std::vector<PlanChoice> rows;
    space_.for_each_row([&](const PlanChoice& row) {
      rows.push_back(row);
      if (rows.size() == kRows) judge_rows(rows);
      return !stopped();
    });
    judge_rows(rows);
  }

  void judge_rows(std::vector<PlanChoice>& rows) {
    const auto judge = [&](std::size_t i, ByteWriter& out) {
      for (const JudgedPlan& plan : judge_.judge_row(rows[i], [&] { return told_to_stop(); }))
        write(plan, out);
    };
    share(rows.size(), judge, [&](std::size_t i, ByteReader& in) {
      while (!in.at_end()) judged_.push_back(read_plan(rows[i], in));
    });
    rows_judged_ += rows.size();
    rows.clear();
    if (!options_.progress || rows_judged_ == 0) return;
    // Rows have as many plans as those before them, or so.
    const double each = static_cast<double>(judged_.size()) / static_cast<double>(rows_judged_);
    options_.progress({.done = static_cast<std::int64_t>(judged_.size()),
                       .most = static_cast<std::int64_t>(each * static_cast<double>(rows_))});
  }

  // Of a plan in a row: what the row does not say.
  static void write(const JudgedPlan& plan, ByteWriter& out) {
    out.add(plan.choice.empty() ? "" : plan.choice.back());
    out.add(static_cast<std::int64_t>(plan.verdict));
    out.add(plan.reason);
    out.add(plan.message);
    out.add(plan.need.count);
    out.add(plan.bound.picoseconds);
  }
  static JudgedPlan read_plan(const PlanChoice& row, ByteReader& in) {
    JudgedPlan plan;
    plan.choice = row;
    const std::string last = in.text();
    if (!row.empty()) plan.choice.back() = last;
    plan.verdict = static_cast<Verdict>(in.number());
    plan.reason = in.text();
    plan.message = in.text();
    plan.need = Bytes{in.number()};
    plan.bound = Time{in.number()};
    return plan;
  }

  // -- Simulating
  // -------------------------------------------------------------------------------------

  Rank rank_of(const JudgedPlan& plan, Time time) const {
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
        const JudgedPlan& plan = judged_[order_[next]];
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

  bool is_beaten(const JudgedPlan& plan) const {
    return std::any_of(simulated_.begin(), simulated_.end(), [&](const Simulated& other) {
      return other.time <= plan.bound && judged_[other.judged].need <= plan.need;
    });
  }

  void simulate_round(const std::vector<std::size_t>& round) {
    std::vector<Time> times(round.size());
    const auto simulate = [&](std::size_t i, ByteWriter& out) {
      const Job job = judge_.job_of(judged_[round[i]].choice);
      StepOptions options;
      options.prices = &prices_;
      const SimulatedStep step = simulate_step(job, prices_.profile(), options);
      const bool ends = step.timeline.deadlock.empty();
      out.add((ends ? step.timeline.makespan : Time::max()).picoseconds);
    };
    share(round.size(), simulate,
          [&](std::size_t i, ByteReader& in) { times[i] = Time{in.number()}; });
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
    for (const JudgedPlan& plan : judged_) {
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
    const JudgedPlan& plan = judged_[simulated.judged];
    FoundPlan found{.choice = plan.choice,
                    .text = space_.plan_text(plan.choice),
                    .job = judge_.job_of(plan.choice),
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

  const PlanSpace& space_;
  const PriceBook& prices_;
  const SearchOptions& options_;
  PlanJudge judge_;
  bool stopped_ = false;                    // as all processes know it
  std::size_t rows_ = 0, rows_judged_ = 0;  // of the space
  std::vector<JudgedPlan> judged_;
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

}  // namespace headway
