#include "sim/validate/error_table.hpp"

#include <algorithm>
#include <cmath>

namespace headway {

namespace {

using Runs = std::vector<const PredictedRun*>;

// Smallest number of runs for which ranking them says something.
constexpr std::size_t kDecisionGroup = 5;

bool has_time(const PredictedRun& run) { return run.measured_s && run.predicted_s; }

struct Ranking {
  double regret = 0;
  bool top1 = false;
  double tau = 0;
};

Ranking rank(const Runs& runs, double noise) {
  const auto by_predicted = [](const PredictedRun* a, const PredictedRun* b) {
    return *a->predicted_s < *b->predicted_s;
  };
  const auto by_measured = [](const PredictedRun* a, const PredictedRun* b) {
    return *a->measured_s < *b->measured_s;
  };
  const double chosen = *(*std::min_element(runs.begin(), runs.end(), by_predicted))->measured_s;
  const double best = *(*std::min_element(runs.begin(), runs.end(), by_measured))->measured_s;
  Ranking ranking;
  ranking.regret = chosen / best - 1;
  ranking.top1 = ranking.regret <= noise;
  // Kendall's tau-b would divide by untied pairs of either order; ties within noise are left out of
  // both sides, since no order of theirs is right or wrong.
  int concordant = 0, pairs = 0;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    for (std::size_t j = i + 1; j < runs.size(); ++j) {
      const double measured = *runs[i]->measured_s / *runs[j]->measured_s - 1;
      if (std::abs(measured) <= noise) continue;
      const double predicted = *runs[i]->predicted_s - *runs[j]->predicted_s;
      ++pairs;
      concordant += predicted == 0 ? 0 : ((measured > 0) == (predicted > 0) ? 1 : -1);
    }
  }
  ranking.tau = pairs == 0 ? 1 : static_cast<double>(concordant) / pairs;
  return ranking;
}

std::map<std::string, Runs> grouped(const Runs& runs,
                                    const std::function<std::string(const PredictedRun&)>& key) {
  std::map<std::string, Runs> groups;
  for (const PredictedRun* run : runs) groups[key(*run)].push_back(run);
  return groups;
}

}  // namespace

ErrorFigures error_figures(const Runs& runs) {
  ErrorFigures figures;
  std::vector<double> errors;
  int inside = 0;
  for (const PredictedRun* run : runs) {
    if (!has_time(*run)) continue;
    const double error = run->error();
    errors.push_back(std::abs(error));
    figures.mape += std::abs(error);
    figures.signed_mean += error;
    inside += run->inside_interval() ? 1 : 0;
    if (std::abs(error) > std::abs(figures.worst_error)) {
      figures.worst_error = error;
      figures.worst_id = run->id;
    }
  }
  figures.count = static_cast<int>(errors.size());
  if (errors.empty()) return figures;
  const auto n = static_cast<double>(errors.size());
  figures.mape /= n;
  figures.signed_mean /= n;
  figures.within_interval = inside / n;
  std::sort(errors.begin(), errors.end());
  // Nearest rank: the smallest error that at least 95 % of the runs do not exceed.
  const auto rank = static_cast<std::size_t>(std::ceil(0.95 * n));
  figures.p95 = errors[rank - 1];
  return figures;
}

MemoryFigures memory_figures(const Runs& runs) {
  MemoryFigures figures;
  for (const PredictedRun* run : runs) {
    if (run->measured_bytes && run->predicted_bytes) {
      const double error = *run->predicted_bytes / *run->measured_bytes - 1;
      ++figures.count;
      figures.mape += std::abs(error);
      figures.signed_mean += error;
    }
    if (run->out_of_memory == !run->fits) ++figures.right;
    if (run->out_of_memory && run->fits) ++figures.missed;
    if (!run->out_of_memory && !run->fits) ++figures.false_alarm;
  }
  if (figures.count > 0) {
    figures.mape /= figures.count;
    figures.signed_mean /= figures.count;
  }
  return figures;
}

DecisionFigures decision_figures(const Runs& runs, double noise) {
  DecisionFigures figures;
  Runs timed;
  std::copy_if(runs.begin(), runs.end(), std::back_inserter(timed),
               [](const PredictedRun* run) { return has_time(*run) && !run->group.empty(); });
  for (const auto& [unused, group] :
       grouped(timed, [](const PredictedRun& run) { return run.group; })) {
    if (group.size() < kDecisionGroup) continue;
    const Ranking ranking = rank(group, noise);
    ++figures.groups;
    figures.top1 += ranking.top1 ? 1 : 0;
    figures.mean_regret += ranking.regret;
    figures.worst_regret = std::max(figures.worst_regret, ranking.regret);
    figures.kendall_tau += ranking.tau;
  }
  if (figures.groups > 0) {
    figures.top1 /= figures.groups;
    figures.mean_regret /= figures.groups;
    figures.kendall_tau /= figures.groups;
  }
  return figures;
}

double repetition_noise(const Runs& runs) {
  double squares = 0;
  int count = 0;
  for (const auto& [unused, same] :
       grouped(runs, [](const PredictedRun& run) { return run.identity; })) {
    double mean = 0;
    int timed = 0;
    for (const PredictedRun* run : same) {
      if (!run->measured_s) continue;
      mean += *run->measured_s;
      ++timed;
    }
    if (timed < 2) continue;
    mean /= timed;
    for (const PredictedRun* run : same) {
      if (!run->measured_s) continue;
      squares += std::pow(*run->measured_s / mean - 1, 2);
    }
    count += timed - 1;
  }
  return count == 0 ? 0 : std::sqrt(squares / count);
}

ErrorTable tabulate(const std::vector<PredictedRun>& runs, bool low) {
  Runs reliable, counted;
  for (const PredictedRun& run : runs) {
    if (run.reliability == Reliability::kLow && !low) continue;
    reliable.push_back(&run);
    if (!run.used_in_fit) counted.push_back(&run);
  }
  ErrorTable table;
  table.all = error_figures(counted);
  table.with_fit_rows = error_figures(reliable);
  table.noise = repetition_noise(reliable);
  std::map<std::string, std::map<std::string, Runs>> by;
  for (const PredictedRun* run : counted) {
    if (!has_time(*run)) continue;
    for (const auto& [property, value] : run->properties) by[property][value].push_back(run);
    by["source"][run->file].push_back(run);
    by["reliability"][std::string(name(run->reliability))].push_back(run);
  }
  for (const auto& [property, values] : by) {
    for (const auto& [value, some] : values) table.by[property][value] = error_figures(some);
  }
  table.memory = memory_figures(counted);
  for (const auto& [file, some] :
       grouped(counted, [](const PredictedRun& run) { return run.file; })) {
    table.memory_by_source[file] = memory_figures(some);
    const DecisionFigures decisions = decision_figures(some, repetition_noise(some));
    if (decisions.groups > 0) table.decisions[file] = decisions;
  }
  return table;
}

}  // namespace headway
