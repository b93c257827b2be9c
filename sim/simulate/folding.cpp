#include "sim/simulate/folding.hpp"

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "sim/core/counter_bits.hpp"

namespace headway {

namespace {

// Numbers colours by first appearance and fills in the representatives.
void number(const std::vector<std::uint64_t>& colours, std::vector<int>& classes,
            std::vector<int>& representatives) {
  std::unordered_map<std::uint64_t, int> numbers;
  classes.resize(colours.size());
  representatives.clear();
  for (std::size_t i = 0; i < colours.size(); ++i) {
    const auto [found, is_new] =
        numbers.try_emplace(colours[i], static_cast<int>(representatives.size()));
    if (is_new) representatives.push_back(static_cast<int>(i));
    classes[i] = found->second;
  }
}

struct Colouring {
  std::vector<std::uint64_t> ranks, groups, links;
};

// One round: what everything sees of its neighbours. Sums of mixed colours are multiset hashes.
Colouring refine_once(const FoldingStructure& structure, const Colouring& old) {
  Colouring next = old;
  std::vector<std::uint64_t> rank_sees(old.ranks.size(), 0);
  std::vector<std::uint64_t> link_sees(old.links.size(), 0);
  for (std::size_t g = 0; g < structure.groups.size(); ++g) {
    const FoldingStructure::Group& group = structure.groups[g];
    std::uint64_t sees = 0;
    for (int i = 0; i < group.member_count; ++i) {
      const auto rank = static_cast<std::size_t>(
          structure.members[static_cast<std::size_t>(group.first_member + i)]);
      sees += mixed(old.ranks[rank] + (group.ordered ? static_cast<std::uint64_t>(i) + 1 : 0));
    }
    for (int i = 0; i < group.load_count; ++i) {
      const auto& load = structure.loads[static_cast<std::size_t>(group.first_load + i)];
      sees += mixed(mixed(old.links[static_cast<std::size_t>(load.link)]) +
                  static_cast<std::uint64_t>(load.load));
    }
    next.groups[g] = mixed(old.groups[g] ^ mixed(sees));
    for (int i = 0; i < group.member_count; ++i) {
      const auto rank = static_cast<std::size_t>(
          structure.members[static_cast<std::size_t>(group.first_member + i)]);
      rank_sees[rank] +=
          mixed(next.groups[g] + (group.ordered ? static_cast<std::uint64_t>(i) + 1 : 0));
    }
    for (int i = 0; i < group.load_count; ++i) {
      const auto& load = structure.loads[static_cast<std::size_t>(group.first_load + i)];
      link_sees[static_cast<std::size_t>(load.link)] +=
          mixed(next.groups[g] + mixed(static_cast<std::uint64_t>(load.load)));
    }
  }
  for (std::size_t r = 0; r < next.ranks.size(); ++r) {
    next.ranks[r] = mixed(old.ranks[r] ^ mixed(rank_sees[r]));
  }
  for (std::size_t l = 0; l < next.links.size(); ++l) {
    next.links[l] = mixed(old.links[l] ^ mixed(link_sees[l]));
  }
  return next;
}

Partition numbered(const Colouring& colouring) {
  Partition partition;
  number(colouring.ranks, partition.rank_class, partition.rank_representative);
  number(colouring.groups, partition.group_class, partition.group_representative);
  number(colouring.links, partition.link_class, partition.link_representative);
  partition.rank_multiplicity.assign(partition.rank_representative.size(), 0);
  for (const int c : partition.rank_class) {
    ++partition.rank_multiplicity[static_cast<std::size_t>(c)];
  }
  return partition;
}

std::size_t class_count(const Partition& partition) {
  return partition.rank_representative.size() + partition.group_representative.size() +
         partition.link_representative.size();
}

// What each rank, group or link meets: (class, role or load) pairs, sorted, all in one array.
class Meetings {
 public:
  explicit Meetings(std::size_t count) : firsts_(count + 1, 0) {}

  void expect(std::size_t who) { ++firsts_[who + 1]; }
  void allocate() {
    for (std::size_t i = 1; i < firsts_.size(); ++i) firsts_[i] += firsts_[i - 1];
    next_ = firsts_;
    met_.resize(firsts_.back());
  }
  void add(std::size_t who, std::int64_t whom, std::int64_t how) {
    met_[next_[who]++] = {whom, how};
  }
  void sort() {
    for (std::size_t i = 0; i + 1 < firsts_.size(); ++i) {
      const auto first = met_.begin() + static_cast<std::ptrdiff_t>(firsts_[i]);
      const auto last = met_.begin() + static_cast<std::ptrdiff_t>(firsts_[i + 1]);
      if (!std::is_sorted(first, last)) std::sort(first, last);
    }
  }
  // Whether all members of each class meet the same.
  bool alike(const std::vector<int>& classes, const std::vector<int>& representatives) const {
    for (std::size_t i = 0; i + 1 < firsts_.size(); ++i) {
      const auto first =
          static_cast<std::size_t>(representatives[static_cast<std::size_t>(classes[i])]);
      const std::size_t count = firsts_[i + 1] - firsts_[i];
      if (count != firsts_[first + 1] - firsts_[first] ||
          !std::equal(met_.data() + firsts_[i], met_.data() + firsts_[i] + count,
                      met_.data() + firsts_[first])) {
        return false;
      }
    }
    return true;
  }

 private:
  std::vector<std::size_t> firsts_, next_;
  std::vector<std::pair<std::int64_t, std::int64_t>> met_;
};

struct Neighbourhoods {
  Meetings ranks, groups, links;
};

Neighbourhoods neighbourhoods(const FoldingStructure& structure, const Partition& partition) {
  Neighbourhoods meet{Meetings(structure.rank_colours.size()), Meetings(structure.groups.size()),
                      Meetings(structure.link_colours.size())};
  // Twice over the edges: once to count, once to fill.
  const auto for_each_edge = [&](const auto& member_edge, const auto& load_edge) {
    for (std::size_t g = 0; g < structure.groups.size(); ++g) {
      const FoldingStructure::Group& group = structure.groups[g];
      for (int i = 0; i < group.member_count; ++i) {
        const auto rank = static_cast<std::size_t>(
            structure.members[static_cast<std::size_t>(group.first_member + i)]);
        member_edge(g, rank, group.ordered ? std::int64_t{i} : 0);
      }
      for (int i = 0; i < group.load_count; ++i) {
        const auto& load = structure.loads[static_cast<std::size_t>(group.first_load + i)];
        load_edge(g, static_cast<std::size_t>(load.link), load.load);
      }
    }
  };
  for_each_edge(
      [&](std::size_t g, std::size_t rank, std::int64_t) {
        meet.groups.expect(g);
        meet.ranks.expect(rank);
      },
      [&](std::size_t g, std::size_t link, std::int64_t) {
        meet.groups.expect(g);
        meet.links.expect(link);
      });
  for (Meetings* all : {&meet.ranks, &meet.groups, &meet.links}) all->allocate();
  for_each_edge(
      [&](std::size_t g, std::size_t rank, std::int64_t role) {
        meet.groups.add(g, partition.rank_class[rank], role);
        meet.ranks.add(rank, partition.group_class[g], role);
      },
      [&](std::size_t g, std::size_t link, std::int64_t load) {
        // Links are told from ranks by a negative class.
        meet.groups.add(g, -1 - partition.link_class[link], load);
        meet.links.add(link, partition.group_class[g], load);
      });
  for (Meetings* all : {&meet.ranks, &meet.groups, &meet.links}) all->sort();
  return meet;
}

template <typename Colour>
bool same_colours(std::size_t count, const std::vector<int>& classes,
                  const std::vector<int>& representatives, Colour colour) {
  for (std::size_t i = 0; i < count; ++i) {
    const int first = representatives[static_cast<std::size_t>(classes[i])];
    if (colour(i) != colour(static_cast<std::size_t>(first))) return false;
  }
  return true;
}

}  // namespace

void FoldingStructure::add_group(std::uint64_t colour, bool ordered,
                                 const std::vector<int>& group_members,
                                 const std::vector<Load>& group_loads) {
  groups.push_back({colour, ordered, static_cast<int>(members.size()),
                    static_cast<int>(group_members.size()), static_cast<int>(loads.size()),
                    static_cast<int>(group_loads.size())});
  members.insert(members.end(), group_members.begin(), group_members.end());
  loads.insert(loads.end(), group_loads.begin(), group_loads.end());
}

Partition fold(const FoldingStructure& structure) {
  Colouring colouring{structure.rank_colours, {}, structure.link_colours};
  colouring.groups.reserve(structure.groups.size());
  for (const auto& group : structure.groups) {
    colouring.groups.push_back(mixed(group.colour * 2 + (group.ordered ? 1 : 0)));
  }
  Partition partition = numbered(colouring);
  while (true) {
    colouring = refine_once(structure, colouring);
    Partition finer = numbered(colouring);
    const bool stable = class_count(finer) == class_count(partition);
    partition = std::move(finer);
    if (stable) break;
  }
  // Only a hash collision can fail this; then nothing is folded, which is always right.
  return is_equitable(structure, partition) ? partition : unfolded(structure);
}

Partition unfolded(const FoldingStructure& structure) {
  Partition partition;
  const auto identity = [](std::size_t count, std::vector<int>& classes, std::vector<int>& firsts) {
    classes.resize(count);
    std::iota(classes.begin(), classes.end(), 0);
    firsts = classes;
  };
  identity(structure.rank_colours.size(), partition.rank_class, partition.rank_representative);
  identity(structure.groups.size(), partition.group_class, partition.group_representative);
  identity(structure.link_colours.size(), partition.link_class, partition.link_representative);
  partition.rank_multiplicity.assign(structure.rank_colours.size(), 1);
  return partition;
}

bool is_equitable(const FoldingStructure& structure, const Partition& partition) {
  const auto group_colour = [&](std::size_t g) {
    return std::pair(structure.groups[g].colour, structure.groups[g].ordered);
  };
  if (!same_colours(structure.rank_colours.size(), partition.rank_class,
                    partition.rank_representative,
                    [&](std::size_t r) { return structure.rank_colours[r]; }) ||
      !same_colours(structure.link_colours.size(), partition.link_class,
                    partition.link_representative,
                    [&](std::size_t l) { return structure.link_colours[l]; }) ||
      !same_colours(structure.groups.size(), partition.group_class, partition.group_representative,
                    group_colour)) {
    return false;
  }
  const Neighbourhoods meet = neighbourhoods(structure, partition);
  return meet.ranks.alike(partition.rank_class, partition.rank_representative) &&
         meet.groups.alike(partition.group_class, partition.group_representative) &&
         meet.links.alike(partition.link_class, partition.link_representative);
}

}  // namespace headway
