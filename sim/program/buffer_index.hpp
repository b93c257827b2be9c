// Dense numbers for the buffers that one rank kind touches, micro-batches left aside: what lets an
// analysis of its issue order keep its state in plain arrays. Numbers are given in the order of
// first lookup.
#pragma once

#include <vector>

#include "sim/program/program.hpp"

namespace headway {

class BufferIndex {
 public:
  // REQUIRES: every index of the kind's passes and their templates is in range.
  BufferIndex(const Program& program, const RankKind& kind);

  // The number of the buffer that `reference` names in a template applied to `layer`.
  int number(BufferRef reference, int layer) {
    const Family& family = families_[static_cast<std::size_t>(reference.family)];
    const int slot =
        family.first + (family.per_layer ? reference.layer + layer - lowest_layer_ : 0);
    int& number = numbers_[static_cast<std::size_t>(slot)];
    if (number < 0) {
      number = static_cast<int>(buffers_.size());
      buffers_.push_back({reference.family, family.per_layer ? reference.layer + layer : 0});
    }
    return number;
  }

  int size() const { return static_cast<int>(buffers_.size()); }
  // Family and absolute layer (0 where the family has none).
  BufferRef buffer(int number) const { return buffers_[static_cast<std::size_t>(number)]; }

 private:
  struct Family {
    int first = 0;
    bool per_layer = false;
  };
  std::vector<Family> families_;
  int lowest_layer_ = 0;
  std::vector<int> numbers_;  // by slot; -1: not yet looked up
  std::vector<BufferRef> buffers_;
};

}  // namespace headway
