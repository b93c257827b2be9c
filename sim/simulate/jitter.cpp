#include "sim/simulate/jitter.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "sim/core/counter_random.hpp"
#include "sim/core/error.hpp"
#include "sim/core/parallel.hpp"

namespace headway {

Time JitterReport::mean() const {
  double sum = 0;
  for (const Time step : steps) sum += step.seconds();
  return Time::from_seconds(sum / static_cast<double>(steps.size()));
}

Time JitterReport::percentile(int percent) const {
  assert(!steps.empty() && percent > 0 && percent <= 100);
  std::vector<Time> ordered = steps;
  std::sort(ordered.begin(), ordered.end());
  const std::size_t rank = (ordered.size() * static_cast<std::size_t>(percent) + 99) / 100;
  return ordered[rank - 1];
}

double jitter_factor(const JitterOptions& options, int draw, int rank) {
  const CounterRandom random(options.seed, "jitter");
  return std::exp(
      options.sigma *
      random.child(static_cast<std::uint64_t>(draw)).normal(static_cast<std::uint64_t>(rank)));
}

JitterReport jitter(const Program& program, const Job& job, const Profile& profile,
                    const StepOptions& step, const JitterOptions& options) {
  const PriceBook prices(profile);
  JitterReport report;
  report.steps.resize(static_cast<std::size_t>(options.draws));
  std::vector<double> slowest(report.steps.size(), 0);
  in_parallel(report.steps.size(), options.threads, [&](std::size_t draw) {
    StepOptions one = step;
    one.detail = Detail::kTotals;
    one.critical_path = false;
    one.unfolded = true;  // no two ranks are alike
    if (one.prices == nullptr) one.prices = &prices;
    for (int rank = 0; rank < job.gpus(); ++rank) {
      const double factor = jitter_factor(options, static_cast<int>(draw), rank);
      slowest[draw] = std::max(slowest[draw], factor);
      const auto [own, is_new] = one.machine.slow_ranks.try_emplace(rank, factor);
      if (!is_new) own->second *= factor;
    }
    LoweredStep lowered;
    const Timeline timeline = play(program, job, profile, one, lowered);
    if (!timeline.deadlock.empty()) throw InvalidInput("--jitter", "", "the schedule deadlocks");
    report.steps[draw] = timeline.makespan;
  });
  double sum = 0;
  for (const double factor : slowest) sum += factor;
  report.slowest = sum / static_cast<double>(options.draws);
  return report;
}

}  // namespace headway
