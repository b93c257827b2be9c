// Ranks as points of a grid. The axes stand innermost first, so rank = sum of coordinate x stride;
// Megatron's default order "tp-cp-ep-dp-pp" puts the ranks of a tensor-parallel group side by side.
// A process group is the set of ranks that differ only along some axes.
//
// Folded axes number the same ranks once more: of a mixture of experts the ranks of a pipeline stage
// are points of tp x cp x dp and, as experts see them, of etp x ep x edp (MoE Parallel Folding, arXiv
// 2504.14960). A group family uses axes of one numbering (and "pp", which both share).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace headway {

struct Axis {
  std::string name;  // "tp", "cp", "dp", "pp"
  int size = 1;
  friend bool operator==(const Axis&, const Axis&) = default;
};

// An axis of the second numbering: coordinate = rank / stride % size.
struct FoldedAxis {
  std::string name;  // "etp", "ep", "edp"
  int size = 1, stride = 1;
  friend bool operator==(const FoldedAxis&, const FoldedAxis&) = default;
};

// A family of process groups that partitions the ranks (or, with `only`, some of them): every rank
// belongs to the group of those that share its coordinates along all axes but `axes`. `only`
// restricts the members to these coordinates along the single axis of the family (the embedding
// group: first and last stage). Members are ordered by rank.
struct GroupFamily {
  std::string name;
  std::vector<std::string> axes;
  std::vector<int> only;
  friend bool operator==(const GroupFamily&, const GroupFamily&) = default;
};

class RankGrid {
 public:
  RankGrid() = default;
  explicit RankGrid(std::vector<Axis> axes_innermost_first, std::vector<FoldedAxis> folded = {});

  int size() const { return size_; }
  const std::vector<Axis>& axes() const { return axes_; }
  const std::vector<FoldedAxis>& folded() const { return folded_; }
  int axis_size(std::string_view axis) const;  // 1 where there is no such axis
  int coordinate(int rank, std::string_view axis) const;
  std::vector<int> coordinates(int rank) const;  // in the order of axes()
  int rank(const std::vector<int>& coordinates) const;

  // The rank whose coordinate along `axis` is moved by `offset`, modulo the axis' size.
  int shifted(int rank, std::string_view axis, int offset) const;

  // The members of the family's group that holds `rank`; empty where `only` leaves the rank out.
  std::vector<int> members(const GroupFamily& family, int rank) const;
  int group_size(const GroupFamily& family) const;
  // Position of the rank in its group; -1 where it is in none.
  int index_in_group(const GroupFamily& family, int rank) const;

 private:
  std::vector<Axis> axes_;
  std::vector<int> strides_;
  std::vector<FoldedAxis> folded_;
  std::vector<FoldedAxis> all_;  // of both numberings, by stride
  int size_ = 1;
};

}  // namespace headway
