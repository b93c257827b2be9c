#include "sim/search/sensitivity.hpp"

#include "sim/core/parallel.hpp"
#include <algorithm>
#include <cstdio>
#include <functional>
#include <optional>
#include <utility>

#include "sim/plan/expert_loads.hpp"
#include "sim/search/machine_change.hpp"
#include "sim/simulate/simulated_step.hpp"

namespace headway {

namespace {

constexpr std::pair<Resource, double> kSlower[] = {{Resource::kNic, 0.8},
                                                   {Resource::kMatrixRate, 0.95}};
// Slow machines in a large cluster compute about a tenth slower (MegaScale, NSDI 2024, section
// 6.3). Which one it is matters little: this is the first stage's.
constexpr double kSlowGpu = 0.9;
constexpr int kSlowRank = 0;
// A router that an auxiliary loss keeps nearly even: Zipf's law with this exponent, under which the
// hottest of 8 experts takes 1.14 times its share, the hottest of 256 1.6 times.
constexpr double kZipf = 0.1;

// What a plan is simulated as under a trial.
struct Changed {
  Job job;
  Profile profile;
  MachineWhatIf machine = {};
};

struct Trial {
  std::string name, words;
  double factor = 1;
  // Nothing where it does not concern the job.
  std::function<std::optional<Changed>(const Job&)> change;
};

std::string percent_words(std::string_view what, double factor) {
  char text[80];
  std::snprintf(text, sizeof text, "%s %+.0f %%", std::string(what).c_str(), (factor - 1) * 100);
  return text;
}

Trial slower(Resource resource, double factor, const Profile& profile) {
  const auto change = [=, &profile](const Job& job) -> std::optional<Changed> {
    auto machine = with_factor(job, profile, resource, factor);
    if (!machine) return std::nullopt;
    return Changed{std::move(machine->job), std::move(machine->profile)};
  };
  return {std::string(name(resource)), percent_words(words(resource), factor), factor, change};
}

Trial slow_gpu(const Profile& profile) {
  const auto change = [&profile](const Job& job) -> std::optional<Changed> {
    if (job.gpus() < 2) return std::nullopt;
    Changed changed{job, profile};
    changed.machine.slow_ranks[kSlowRank] = 1 / kSlowGpu;
    return changed;
  };
  return {"slow_gpu", percent_words("speed of one GPU", kSlowGpu), kSlowGpu, change};
}

// Where the job says how tokens choose, that is what was simulated.
Trial hot_experts(const Job& job, const Profile& profile) {
  const std::int64_t experts = job.model.num_experts;
  const std::vector<double> loads = experts > 0 ? zipf_loads(experts, kZipf) : std::vector{1.0};
  const auto change = [=, &profile](const Job& each) -> std::optional<Changed> {
    if (experts == 0 || !each.plan.moe.loads.empty()) return std::nullopt;
    Changed changed{each, profile};
    changed.job.plan.moe.loads = {loads};
    return changed;
  };
  return {"hot_experts", percent_words("load of the hottest expert", loads.front()), loads.front(),
          change};
}

std::optional<Sensitivity> hold_against(const Trial& trial, const std::vector<FoundPlan>& plans,
                                        Objective objective, int threads) {
  Sensitivity result{trial.name, trial.words, trial.factor, {}, 0};
  std::vector<std::optional<Changed>> changed;
  for (const FoundPlan& plan : plans) {
    changed.push_back(trial.change(plan.job));
    result.times.push_back(plan.report.iteration);
  }
  const auto concerned = std::find_if(changed.begin(), changed.end(),
                                      [](const auto& each) { return each.has_value(); });
  if (concerned == changed.end()) return std::nullopt;
  const PriceBook prices((*concerned)->profile);  // all have the same one
  in_parallel(plans.size(), threads, [&](std::size_t i) {
    if (!changed[i]) return;
    StepOptions options;
    options.prices = &prices;
    options.machine = changed[i]->machine;
    result.times[i] = simulate_step(changed[i]->job, prices.profile(), options).timeline.makespan;
  });
  const auto worth = [&](std::size_t i) {
    const double seconds = result.times[i].seconds();
    return objective == Objective::kCost ? seconds * plans[i].report.gpus : seconds;
  };
  for (std::size_t i = 1; i < plans.size(); ++i) {
    if (worth(i) < worth(result.best)) result.best = i;
  }
  return result;
}

}  // namespace

std::vector<Sensitivity> hold_against_trials(const std::vector<FoundPlan>& plans,
                                             const Profile& profile, Objective objective,
                                             int threads) {
  std::vector<Trial> trials;
  for (const auto& [resource, factor] : kSlower)
    trials.push_back(slower(resource, factor, profile));
  trials.push_back(slow_gpu(profile));
  trials.push_back(hot_experts(plans.front().job, profile));
  std::vector<Sensitivity> results;
  for (const Trial& trial : trials) {
    if (auto result = hold_against(trial, plans, objective, threads))
      results.push_back(std::move(*result));
  }
  return results;
}

}  // namespace headway
