#include "sim/cost/neighbours.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace headway {

namespace {

// Points that vote. More of them only blur.
constexpr std::size_t kVoters = 8;

double squared_distance(const Neighbours::Place& a, const Neighbours::Place& b) {
  double sum = 0;
  for (std::size_t axis = 0; axis < Neighbours::kAxes; ++axis) {
    const double difference = static_cast<double>(a[axis]) - static_cast<double>(b[axis]);
    sum += difference * difference;
  }
  return sum;
}

}  // namespace

Neighbours::Neighbours(std::vector<Sample> samples, double reach, double power)
    : reach_(reach), power_(power) {
  std::stable_sort(samples.begin(), samples.end(),
                   [](const Sample& a, const Sample& b) { return a.place < b.place; });
  for (std::size_t i = 0; i < samples.size();) {
    std::size_t end = i;
    double sum = 0;
    for (; end < samples.size() && samples[end].place == samples[i].place; ++end) {
      sum += samples[end].residual;
    }
    samples_.push_back({samples[i].place, sum / static_cast<double>(end - i)});
    i = end;
  }
}

Neighbours::Correction Neighbours::at(const Place& place) const {
  struct Voter {
    double squared;
    std::size_t index;
  };
  std::array<Voter, kVoters> voters;
  std::size_t count = 0;
  // Samples are sorted by their first axis: walk outwards from the query's place until that axis
  // alone is farther than the farthest voter.
  const auto consider = [&](std::size_t index) {
    const double squared = squared_distance(place, samples_[index].place);
    if (count == kVoters && squared >= voters[count - 1].squared) return;
    std::size_t slot = count < kVoters ? count++ : count - 1;
    for (; slot > 0 && voters[slot - 1].squared > squared; --slot) voters[slot] = voters[slot - 1];
    voters[slot] = {squared, index};
  };
  const auto middle =
      std::lower_bound(samples_.begin(), samples_.end(), place[0],
                       [](const Sample& sample, float first) { return sample.place[0] < first; });
  std::size_t right = static_cast<std::size_t>(middle - samples_.begin());
  std::size_t left = right;
  const auto gap = [&](std::size_t index) {
    const double difference =
        static_cast<double>(samples_[index].place[0]) - static_cast<double>(place[0]);
    return difference * difference;
  };
  while (left > 0 || right < samples_.size()) {
    const double limit = count == kVoters ? voters[count - 1].squared : 1e30;
    const double left_gap = left > 0 ? gap(left - 1) : 1e30;
    const double right_gap = right < samples_.size() ? gap(right) : 1e30;
    if (std::min(left_gap, right_gap) >= limit) break;
    if (left_gap < right_gap) {
      consider(--left);
    } else {
      consider(right++);
    }
  }
  Correction correction;
  if (count == 0) return correction;
  correction.distance = std::sqrt(voters[0].squared);
  if (voters[0].squared <= 0) {
    correction.residual = samples_[voters[0].index].residual;
    return correction;
  }
  double votes = 1;  // the model's own, of residual 0
  double sum = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const double vote = std::pow(std::sqrt(voters[i].squared) / reach_, -power_);
    votes += vote;
    sum += vote * samples_[voters[i].index].residual;
  }
  correction.residual = sum / votes;
  return correction;
}

}  // namespace headway
