#include "sim/plan/rank_grid.hpp"

#include <algorithm>
#include <cassert>
#include <utility>

namespace headway {
namespace {

// Index of the axis, or -1. Grids have at most half a dozen axes.
int index_of(const std::vector<FoldedAxis>& axes, std::string_view name) {
  for (std::size_t i = 0; i < axes.size(); ++i) {
    if (axes[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

bool holds(const std::vector<int>& values, int value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

}  // namespace

RankGrid::RankGrid(std::vector<Axis> axes_innermost_first, std::vector<FoldedAxis> folded)
    : axes_(std::move(axes_innermost_first)), folded_(std::move(folded)) {
  strides_.reserve(axes_.size());
  for (const Axis& axis : axes_) {
    assert(axis.size >= 1);
    strides_.push_back(size_);
    all_.push_back({axis.name, axis.size, size_});
    size_ *= axis.size;
  }
  all_.insert(all_.end(), folded_.begin(), folded_.end());
  std::stable_sort(all_.begin(), all_.end(), [](const FoldedAxis& a, const FoldedAxis& b) {
    return a.stride < b.stride;
  });
}

int RankGrid::axis_size(std::string_view axis) const {
  const int i = index_of(all_, axis);
  return i < 0 ? 1 : all_[static_cast<std::size_t>(i)].size;
}

int RankGrid::coordinate(int rank, std::string_view axis) const {
  assert(rank >= 0 && rank < size_);
  const int i = index_of(all_, axis);
  if (i < 0) return 0;
  const FoldedAxis& along = all_[static_cast<std::size_t>(i)];
  return rank / along.stride % along.size;
}

std::vector<int> RankGrid::coordinates(int rank) const {
  assert(rank >= 0 && rank < size_);
  std::vector<int> result;
  result.reserve(axes_.size());
  for (std::size_t i = 0; i < axes_.size(); ++i) {
    result.push_back(rank / strides_[i] % axes_[i].size);
  }
  return result;
}

int RankGrid::rank(const std::vector<int>& coordinates) const {
  assert(coordinates.size() == axes_.size());
  int result = 0;
  for (std::size_t i = 0; i < axes_.size(); ++i) {
    assert(coordinates[i] >= 0 && coordinates[i] < axes_[i].size);
    result += coordinates[i] * strides_[i];
  }
  return result;
}

int RankGrid::shifted(int rank, std::string_view axis, int offset) const {
  assert(rank >= 0 && rank < size_);
  const int i = index_of(all_, axis);
  if (i < 0) return rank;
  const FoldedAxis& along = all_[static_cast<std::size_t>(i)];
  const int from = rank / along.stride % along.size;
  const int to = ((from + offset) % along.size + along.size) % along.size;
  return rank + (to - from) * along.stride;
}

std::vector<int> RankGrid::members(const GroupFamily& family, int rank) const {
  assert(rank >= 0 && rank < size_);
  assert(family.only.empty() || family.axes.size() == 1);
  if (!family.only.empty() && !holds(family.only, coordinate(rank, family.axes.front()))) return {};

  int first = rank;
  for (const std::string& name : family.axes) {
    const int i = index_of(all_, name);
    if (i < 0) continue;
    const FoldedAxis& along = all_[static_cast<std::size_t>(i)];
    first -= rank / along.stride % along.size * along.stride;
  }
  // Each axis, innermost first, repeats what is there once per coordinate: ordered by rank.
  std::vector<int> result = {first};
  for (const FoldedAxis& along : all_) {
    if (std::find(family.axes.begin(), family.axes.end(), along.name) == family.axes.end()) continue;
    const std::size_t inner = result.size();
    for (int c = 1; c < along.size; ++c) {
      for (std::size_t k = 0; k < inner; ++k) result.push_back(result[k] + c * along.stride);
    }
  }
  if (!family.only.empty()) {
    std::erase_if(result,
                  [&](int r) { return !holds(family.only, coordinate(r, family.axes.front())); });
  }
  return result;
}

int RankGrid::group_size(const GroupFamily& family) const {
  if (!family.only.empty()) {
    const int size = axis_size(family.axes.front());
    return static_cast<int>(std::count_if(family.only.begin(), family.only.end(),
                                          [&](int c) { return c >= 0 && c < size; }));
  }
  int result = 1;
  for (const std::string& name : family.axes) result *= axis_size(name);
  return result;
}

int RankGrid::index_in_group(const GroupFamily& family, int rank) const {
  assert(rank >= 0 && rank < size_);
  if (!family.only.empty()) {
    const int own = coordinate(rank, family.axes.front());
    if (!holds(family.only, own)) return -1;
    return static_cast<int>(std::count_if(family.only.begin(), family.only.end(),
                                          [&](int c) { return c >= 0 && c < own; }));
  }
  int index = 0;
  int stride = 1;
  for (const FoldedAxis& along : all_) {
    if (std::find(family.axes.begin(), family.axes.end(), along.name) == family.axes.end()) continue;
    index += rank / along.stride % along.size * stride;
    stride *= along.size;
  }
  return index;
}

}  // namespace headway
