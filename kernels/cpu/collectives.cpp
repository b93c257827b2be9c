#include "kernels/cpu/collectives.hpp"

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <string>

namespace headway {
namespace {

[[noreturn]] void refuse(const Collective& collective, const std::string& why) {
  throw std::invalid_argument(std::string(name(collective.kind)) + ": " + why);
}

// The members of a collective, and whose results are wanted.
struct Members {
  std::span<const CollectiveMember> all;
  std::size_t first = 0, last = 0;  // wanted: [first, last)

  std::span<const CollectiveMember> wanted() const { return all.subspan(first, last - first); }
  std::span<const CollectiveMember> one(std::size_t member) const { return all.subspan(member, 1); }
  bool wants(std::size_t member) const { return member >= first && member < last; }
};

// Adds up what `sources` read from element `from` on, in their order, and writes it to `targets`
// from element `to` on: the one thing that all collectives do.
template <typename T>
void combine(const Collective& collective, std::span<const CollectiveMember> sources,
             std::int64_t from, std::span<const CollectiveMember> targets, std::int64_t to,
             std::int64_t count) {
  std::vector<T> total(static_cast<std::size_t>(std::min(kChunk, count))), values(total.size());
  in_chunks(0, count, [&](std::int64_t done, std::int64_t now) {
    const auto size = static_cast<std::size_t>(now);
    load_range(std::span<const Operand>(sources[0].reads), from + done, now, total.data());
    for (const CollectiveMember& source : sources.subspan(1)) {
      load_range(std::span<const Operand>(source.reads), from + done, now, values.data());
      for (std::size_t i = 0; i < size; ++i) {
        total[i] = collective.reduce == ReduceOperator::kMaximum ? std::max(total[i], values[i])
                                                                 : total[i] + values[i];
      }
    }
    if (sources.size() > 1 && collective.reduce == ReduceOperator::kAverage) {
      for (std::size_t i = 0; i < size; ++i) total[i] /= static_cast<T>(sources.size());
    }
    for (const CollectiveMember& target : targets) {
      store_range(std::span<const Operand>(target.writes), to + done, now, total.data());
    }
  });
}

// True where one matrix of `parts` times the columns is gathered from, or scattered to, matrices
// with as many rows.
bool cut_by_columns(const std::vector<Operand>& whole, const std::vector<Operand>& part,
                    std::int64_t parts) {
  return whole.size() == 1 && part.size() == 1 && whole[0].rows == part[0].rows &&
         whole[0].columns == part[0].columns * parts;
}

// Rows of a part inside the whole: the whole array where cut by rows.
struct Cut {
  std::int64_t rows = 1;
  std::int64_t whole_width = 0, part_width = 0;
};

Cut cut_of(const Collective& collective, const std::vector<Operand>& whole,
           const std::vector<Operand>& part, std::int64_t parts) {
  if (collective.elements % parts != 0) {
    refuse(collective, std::to_string(collective.elements) + " elements over " +
                           std::to_string(parts) + " ranks");
  }
  if (cut_by_columns(whole, part, parts)) {
    return {whole[0].rows, whole[0].columns, part[0].columns};
  }
  return {1, collective.elements, collective.elements / parts};
}

// No member may give or take more than the collective says.
void check_sizes(const Collective& collective, const Members& members, std::int64_t given,
                 std::int64_t taken) {
  for (const CollectiveMember& member : members.all) {
    if (elements_of(member.reads) > given) {
      refuse(collective, "a member gives " + std::to_string(elements_of(member.reads)) +
                             " elements; expected at most " + std::to_string(given));
    }
    if (elements_of(member.writes) > taken) {
      refuse(collective, "a member takes " + std::to_string(elements_of(member.writes)) +
                             " elements; expected at most " + std::to_string(taken));
    }
  }
}

template <typename T>
void reduce_scatter(const Collective& collective, const Members& members) {
  const auto parts = static_cast<std::int64_t>(members.all.size());
  const Cut cut = cut_of(collective, members.all[0].reads, members.all[0].writes, parts);
  check_sizes(collective, members, collective.elements, cut.rows * cut.part_width);
  for (std::size_t p = members.first; p < members.last; ++p) {
    for (std::int64_t row = 0; row < cut.rows; ++row) {
      combine<T>(collective, members.all,
                 row * cut.whole_width + static_cast<std::int64_t>(p) * cut.part_width,
                 members.one(p), row * cut.part_width, cut.part_width);
    }
  }
}

template <typename T>
void all_gather(const Collective& collective, const Members& members) {
  const auto parts = static_cast<std::int64_t>(members.all.size());
  const Cut cut = cut_of(collective, members.all[0].writes, members.all[0].reads, parts);
  check_sizes(collective, members, cut.rows * cut.part_width, collective.elements);
  for (std::size_t p = 0; p < members.all.size(); ++p) {
    for (std::int64_t row = 0; row < cut.rows; ++row) {
      combine<T>(collective, members.one(p), row * cut.part_width, members.wanted(),
                 row * cut.whole_width + static_cast<std::int64_t>(p) * cut.part_width,
                 cut.part_width);
    }
  }
}

template <typename T>
void all_to_all(const Collective& collective, const Members& members) {
  const auto parts = static_cast<std::int64_t>(members.all.size());
  if (collective.elements % parts != 0) {
    refuse(collective, "the elements do not divide among the ranks");
  }
  check_sizes(collective, members, collective.elements, collective.elements);
  const std::int64_t part = collective.elements / parts;
  for (std::size_t to = members.first; to < members.last; ++to) {
    for (std::size_t from = 0; from < members.all.size(); ++from) {
      combine<T>(collective, members.one(from), static_cast<std::int64_t>(to) * part,
                 members.one(to), static_cast<std::int64_t>(from) * part, part);
    }
  }
}

// Rows of a member's operand that the last operand it reads counts.
struct CountedRows {
  std::vector<std::int64_t> counts;
  // Of the p-th of `parts` equal runs of the counts.
  std::int64_t of(std::size_t p, std::size_t parts) const {
    const auto run = static_cast<std::ptrdiff_t>(counts.size() / parts);
    const auto first = counts.begin() + static_cast<std::ptrdiff_t>(p) * run;
    return std::accumulate(first, first + run, std::int64_t{0});
  }
  std::int64_t all() const { return of(0, 1); }
};

std::vector<CountedRows> counted(const Collective& collective, const Members& members) {
  std::vector<CountedRows> result;
  for (std::size_t m = 0; m < members.all.size(); ++m) {
    const CollectiveMember& member = members.all[m];
    if (member.reads.size() != 2 || (members.wants(m) && member.writes.size() != 1)) {
      refuse(collective, "by counts it takes one buffer and its counts, and gives one");
    }
    const Operand& counts = member.reads[1];
    if (counts.elements() % static_cast<std::int64_t>(members.all.size()) != 0 &&
        collective.kind == CollectiveKind::kAllToAll) {
      refuse(collective, "the counts do not divide among the ranks");
    }
    CountedRows& rows = result.emplace_back();
    rows.counts.resize(static_cast<std::size_t>(counts.elements()));
    load(counts, 0, counts.elements(), rows.counts.data());
  }
  return result;
}

// One member's rows as they are put together; what lies past them becomes zero.
template <typename T>
class RowsTaken {
 public:
  RowsTaken(const Collective& collective, const CollectiveMember& member)
      : collective_(collective), to_(member.writes[0]) {}
  void take(const std::vector<T>& from, std::int64_t first, std::int64_t rows) {
    const std::int64_t columns = to_.columns;
    const auto begin = from.begin() + static_cast<std::ptrdiff_t>(first * columns);
    if ((first + rows) * columns > static_cast<std::int64_t>(from.size())) {
      refuse(collective_, "the counts ask for more rows than a member gives");
    }
    values_.insert(values_.end(), begin, begin + static_cast<std::ptrdiff_t>(rows * columns));
  }
  void write() {
    if (static_cast<std::int64_t>(values_.size()) > to_.elements()) {
      refuse(collective_, "more rows come than a member has room for");
    }
    values_.resize(static_cast<std::size_t>(to_.elements()));
    store(to_, 0, to_.elements(), values_.data());
  }

 private:
  const Collective& collective_;
  Operand to_;
  std::vector<T> values_;
};

// Whatever is where: by counts member i sends counts_i(j) rows to j, in the order of j; back by
// counts j returns them, from where they stand among those of all.
template <typename T>
void all_to_all_by_counts(const Collective& collective, const Members& members,
                          const std::vector<std::vector<T>>& given) {
  const std::vector<CountedRows> counts = counted(collective, members);
  const std::size_t parts = members.all.size();
  const bool back = collective.shares == Shares::kBackByCounts;
  for (std::size_t to = members.first; to < members.last; ++to) {
    RowsTaken<T> taken(collective, members.all[to]);
    for (std::size_t from = 0; from < parts; ++from) {
      std::int64_t first = 0;
      if (back) {
        for (std::size_t before = 0; before < to; ++before) first += counts[before].of(from, parts);
        taken.take(given[from], first, counts[to].of(from, parts));
      } else {
        for (std::size_t before = 0; before < to; ++before) first += counts[from].of(before, parts);
        taken.take(given[from], first, counts[from].of(to, parts));
      }
    }
    taken.write();
  }
}

template <typename T>
void communicate_by_counts(const Collective& collective, const Members& members) {
  const std::vector<CountedRows> counts = counted(collective, members);
  std::vector<std::vector<T>> given;
  for (const CollectiveMember& member : members.all) {
    given.push_back(load_group<T>({&member.reads[0], 1}, member.reads[0].elements()));
  }
  if (collective.kind == CollectiveKind::kAllToAll) {
    return all_to_all_by_counts<T>(collective, members, given);
  }
  if (collective.kind == CollectiveKind::kAllGather) {
    for (const CollectiveMember& member : members.wanted()) {
      RowsTaken<T> taken(collective, member);
      for (std::size_t from = 0; from < given.size(); ++from) {
        taken.take(given[from], 0, counts[from].all());
      }
      taken.write();
    }
    return;
  }
  if (collective.kind != CollectiveKind::kReduceScatter) refuse(collective, "not by counts");
  std::vector<T> total = given.front();
  for (std::size_t from = 1; from < given.size(); ++from) {
    for (std::size_t i = 0; i < total.size(); ++i) total[i] += given[from][i];
  }
  std::int64_t first = 0;
  for (std::size_t to = 0; to < counts.size(); ++to) {
    if (members.wants(to)) {
      RowsTaken<T> taken(collective, members.all[to]);
      taken.take(total, first, counts[to].all());
      taken.write();
    }
    first += counts[to].all();
  }
}

template <typename T>
void shift(const Collective& collective, const Members& members) {
  check_sizes(collective, members, collective.elements, collective.elements);
  const std::size_t count = members.all.size();
  for (std::size_t to = members.first; to < members.last; ++to) {
    combine<T>(collective, members.one((to + count - 1) % count), 0, members.one(to), 0,
               collective.elements);
  }
}

// What a result was before, of a member that keeps it, stands last among its reads.
template <typename T>
void reduce(const Collective& collective, const Members& members, std::size_t root) {
  std::vector<CollectiveMember> given(members.all.begin(), members.all.end());
  for (CollectiveMember& member : given) {
    if (elements_of(member.reads) > collective.elements) member.reads.pop_back();
  }
  check_sizes(collective, {given, members.first, members.last}, collective.elements,
              collective.elements);
  if (!members.wants(root)) return;
  combine<T>(collective, given, 0, members.one(root), 0, collective.elements);
}

template <typename T>
void communicate_as(const Collective& collective, const Members& members) {
  const auto root = static_cast<std::size_t>(collective.root);
  if (collective.shares != Shares::kEqual) return communicate_by_counts<T>(collective, members);
  const std::int64_t whole = collective.elements;
  switch (collective.kind) {
    case CollectiveKind::kAllReduce:
      check_sizes(collective, members, whole, whole);
      return combine<T>(collective, members.all, 0, members.wanted(), 0, whole);
    case CollectiveKind::kReduceScatter:
      return reduce_scatter<T>(collective, members);
    case CollectiveKind::kAllGather:
      return all_gather<T>(collective, members);
    case CollectiveKind::kBroadcast:
      check_sizes(collective, members, whole, whole);
      return combine<T>(collective, members.one(root), 0, members.wanted(), 0, whole);
    case CollectiveKind::kReduce:
      return reduce<T>(collective, members, root);
    case CollectiveKind::kAllToAll:
      return all_to_all<T>(collective, members);
    case CollectiveKind::kShift:
      return shift<T>(collective, members);
    case CollectiveKind::kSend:
    case CollectiveKind::kReceive:
      check_sizes(collective, members, whole, whole);
      if (!members.wants(1)) return;
      return combine<T>(collective, members.one(0), 0, members.one(1), 0, whole);
  }
}

void communicate_among(const Collective& collective, const Members& members) {
  if (members.all.empty()) refuse(collective, "no members");
  if (static_cast<std::size_t>(collective.root) >= members.all.size()) {
    refuse(collective, "the root is not in the group");
  }
  bool in_double = false;
  for (const CollectiveMember& member : members.all) {
    for (const auto* list : {&member.reads, &member.writes}) {
      for (const Operand& operand : *list) {
        in_double =
            in_double || operand.type == DataType::kFp64 || operand.type == DataType::kInt64;
      }
    }
  }
  return in_double ? communicate_as<double>(collective, members)
                   : communicate_as<float>(collective, members);
}

}  // namespace

void communicate(const Collective& collective, std::span<const CollectiveMember> members) {
  communicate_among(collective, {members, 0, members.size()});
}

void communicate_for(const Collective& collective, std::span<const CollectiveMember> members,
                     std::size_t own) {
  communicate_among(collective, {members, own, own + 1});
}

bool reads_of(const Collective& collective, std::size_t from, std::size_t to) {
  switch (collective.kind) {
    case CollectiveKind::kBroadcast:
      return from == static_cast<std::size_t>(collective.root);
    case CollectiveKind::kReduce:
      return to == static_cast<std::size_t>(collective.root);
    case CollectiveKind::kSend:
    case CollectiveKind::kReceive:
      return from == 0 && to == 1;
    default:
      return true;
  }
}

}  // namespace headway
