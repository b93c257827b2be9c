#include "sim/cost/nelder_mead.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace headway {

namespace {

struct Corner {
  std::vector<double> at;
  double value = 0;
};
using Function = std::function<double(const std::vector<double>&)>;

// The simplex is restarted this often around its best corner, so that it cannot stay collapsed.
constexpr int kRounds = 3;

std::vector<double> along(const std::vector<double>& from, const std::vector<double>& to,
                          double part) {
  std::vector<double> point(from.size());
  for (std::size_t i = 0; i < from.size(); ++i) point[i] = from[i] + part * (to[i] - from[i]);
  return point;
}

void descend(const Function& function, std::vector<Corner>& simplex, int evaluations) {
  const std::size_t size = simplex.size() - 1;
  const auto by_value = [](const Corner& a, const Corner& b) { return a.value < b.value; };
  const auto evaluated = [&](std::vector<double> at) {
    --evaluations;
    const double value = function(at);
    return Corner{std::move(at), value};
  };
  while (evaluations > 0) {
    std::stable_sort(simplex.begin(), simplex.end(), by_value);
    std::vector<double> centre(size, 0.0);
    for (std::size_t i = 0; i < size; ++i) {
      for (std::size_t axis = 0; axis < size; ++axis) {
        centre[axis] += simplex[i].at[axis] / static_cast<double>(size);
      }
    }
    Corner& worst = simplex[size];
    Corner reflected = evaluated(along(centre, worst.at, -1));
    if (reflected.value < simplex[0].value) {
      Corner expanded = evaluated(along(centre, worst.at, -2));
      worst = expanded.value < reflected.value ? std::move(expanded) : std::move(reflected);
    } else if (reflected.value < simplex[size - 1].value) {
      worst = std::move(reflected);
    } else {
      Corner contracted = evaluated(along(centre, worst.at, 0.5));
      if (contracted.value < worst.value) {
        worst = std::move(contracted);
        continue;
      }
      for (std::size_t i = 1; i <= size; ++i) {
        simplex[i] = evaluated(along(simplex[0].at, simplex[i].at, 0.5));
      }
    }
  }
  std::stable_sort(simplex.begin(), simplex.end(), by_value);
}

}  // namespace

std::vector<double> nelder_mead(const Function& function, std::vector<double> start, double step,
                                int evaluations) {
  for (int round = 0; round < kRounds; ++round) {
    std::vector<Corner> simplex = {{start, function(start)}};
    for (std::size_t axis = 0; axis < start.size(); ++axis) {
      std::vector<double> at = start;
      at[axis] += step;
      const double value = function(at);
      simplex.push_back({std::move(at), value});
    }
    descend(function, simplex, evaluations / kRounds);
    start = simplex[0].at;
    step *= 0.5;
  }
  return start;
}

}  // namespace headway
