// Folding: ranks that do the same thing at the same time are simulated once. A partition of ranks,
// groups and links into classes is *equitable* when all members of a class meet the same classes in
// the same numbers; the quotient then has exactly the times of the whole. Colour refinement finds
// the coarsest one; is_equitable() checks any partition exactly, so that a hash collision cannot
// become a wrong answer.
//
// It holds because whatever ranks share is shared fluidly or joined as a group activity (never
// first come first served), loads are integers, and water-filling freezes whole levels at once.
#pragma once

#include <cstdint>
#include <vector>

namespace headway {

// Who meets whom. Colours say what is alike from the outset: equal colours, equal behaviour.
struct FoldingStructure {
  struct Group {
    std::uint64_t colour = 0;  // family, placement, price
    bool ordered = false;      // members have roles (a message: sender, receiver)
    int first_member = 0, member_count = 0;
    int first_load = 0, load_count = 0;
  };
  struct Load {
    int link = 0;
    std::int64_t load = 1;
  };
  std::vector<std::uint64_t> rank_colours;
  std::vector<Group> groups;
  std::vector<int> members;  // rank by member slot
  std::vector<Load> loads;
  std::vector<std::uint64_t> link_colours;

  void add_group(std::uint64_t colour, bool ordered, const std::vector<int>& group_members,
                 const std::vector<Load>& group_loads);
};

// Classes are numbered by their first member, so the numbering never depends on hashes.
struct Partition {
  std::vector<int> rank_class, group_class, link_class;
  // The first member of each class.
  std::vector<int> rank_representative, group_representative, link_representative;
  std::vector<int> rank_multiplicity;
};

// The coarsest equitable partition that refines the colours.
Partition fold(const FoldingStructure& structure);

// Every rank, group and link a class of its own.
Partition unfolded(const FoldingStructure& structure);

// Whether the partition is equitable and refines the colours. Exact: compares multisets, not
// hashes.
bool is_equitable(const FoldingStructure& structure, const Partition& partition);

}  // namespace headway
