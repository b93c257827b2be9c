// Published runs that differ only in plan or software, and whether they are ranked as measured.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "sim/core/error.hpp"
#include "sim/validate/validation.hpp"
#include "tests/support/folders.hpp"

namespace headway {

inline Validation validated_runs(const std::string& file) {
  Problems problems;
  const std::vector<MeasuredRun> runs =
      read_measured_runs(source_dir() + "/results/validation/runs/" + file, problems);
  problems.throw_if_any();
  return validate(runs, {});
}

// By group, those that have both times.
inline std::map<std::string, std::vector<const PredictedRun*>> run_groups(
    const Validation& validation) {
  std::map<std::string, std::vector<const PredictedRun*>> result;
  for (const PredictedRun& run : validation.runs) {
    if (run.predicted_s && run.measured_s) result[run.group].push_back(&run);
  }
  return result;
}

// Pairs of a group that are measured more than 3 % apart.
struct OrderedPairs {
  int count = 0;
  std::vector<std::string> wrong;  // "zb-0002 before zb-0038"
  std::string text() const {
    std::string all = std::to_string(wrong.size()) + " of " + std::to_string(count) + ":";
    for (const std::string& pair : wrong) all += " " + pair + ";";
    return all;
  }
};

inline OrderedPairs ordered_pairs(const Validation& validation) {
  constexpr double kApart = 1.03;
  OrderedPairs pairs;
  for (const auto& [name, runs] : run_groups(validation)) {
    for (std::size_t i = 0; i < runs.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        const double measured = *runs[i]->measured_s / *runs[j]->measured_s;
        if (std::max(measured, 1 / measured) <= kApart) continue;
        ++pairs.count;
        if ((measured < 1) == (*runs[i]->predicted_s < *runs[j]->predicted_s)) continue;
        const auto [faster, slower] = measured < 1 ? std::pair(i, j) : std::pair(j, i);
        pairs.wrong.push_back(runs[faster]->id + " before " + runs[slower]->id);
      }
    }
  }
  return pairs;
}

}  // namespace headway
