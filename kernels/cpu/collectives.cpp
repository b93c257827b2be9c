#include "kernels/cpu/collectives.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace headway {
namespace {

[[noreturn]] void refuse(const Collective& collective, const std::string& why) {
  throw std::invalid_argument(std::string(name(collective.kind)) + ": " + why);
}

template <typename T>
std::vector<T> laid_end_to_end(const Collective& collective, const std::vector<Operand>& operands,
                               std::int64_t size) {
  if (elements_of(operands) > size) {
    refuse(collective, "a member gives " + std::to_string(elements_of(operands)) +
                           " elements; expected at most " + std::to_string(size));
  }
  return load_group<T>(operands, size);
}

// The members of a collective, and whose results are wanted.
struct Members {
  std::span<const CollectiveMember> all;
  std::size_t first = 0, last = 0;  // wanted: [first, last)

  bool wants(std::size_t member) const { return member >= first && member < last; }
  std::span<const CollectiveMember> wanted() const { return all.subspan(first, last - first); }
};

template <typename T>
void spread(const Collective& collective, const std::vector<T>& values,
            const std::vector<Operand>& operands) {
  if (elements_of(operands) > static_cast<std::int64_t>(values.size())) {
    refuse(collective, "a member takes " + std::to_string(elements_of(operands)) +
                           " elements; expected at most " + std::to_string(values.size()));
  }
  store_group(operands, values);
}

// True where one matrix of `parts` times the columns is gathered from, or scattered to, matrices
// with as many rows.
bool cut_by_columns(const std::vector<Operand>& whole, const std::vector<Operand>& part,
                    std::int64_t parts) {
  return whole.size() == 1 && part.size() == 1 && whole[0].rows == part[0].rows &&
         whole[0].columns == part[0].columns * parts;
}

template <typename T>
std::vector<T> reduced(const Collective& collective, std::span<const CollectiveMember> members) {
  std::vector<T> total = laid_end_to_end<T>(collective, members[0].reads, collective.elements);
  for (const CollectiveMember& member : members.subspan(1)) {
    const std::vector<T> values = laid_end_to_end<T>(collective, member.reads, collective.elements);
    for (std::size_t i = 0; i < total.size(); ++i) {
      total[i] = collective.reduce == ReduceOperator::kMaximum ? std::max(total[i], values[i])
                                                               : total[i] + values[i];
    }
  }
  if (collective.reduce == ReduceOperator::kAverage) {
    for (T& value : total) value /= static_cast<T>(members.size());
  }
  return total;
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

template <typename T>
void reduce_scatter(const Collective& collective, const Members& members) {
  const auto parts = static_cast<std::int64_t>(members.all.size());
  const Cut cut = cut_of(collective, members.all[0].reads, members.all[0].writes, parts);
  const std::vector<T> total = reduced<T>(collective, members.all);
  std::vector<T> part(static_cast<std::size_t>(cut.rows * cut.part_width));
  for (std::int64_t p = 0; p < parts; ++p) {
    if (!members.wants(static_cast<std::size_t>(p))) continue;
    for (std::int64_t row = 0; row < cut.rows; ++row) {
      std::copy_n(total.data() + row * cut.whole_width + p * cut.part_width, cut.part_width,
                  part.data() + row * cut.part_width);
    }
    spread(collective, part, members.all[static_cast<std::size_t>(p)].writes);
  }
}

template <typename T>
void all_gather(const Collective& collective, const Members& members) {
  const auto parts = static_cast<std::int64_t>(members.all.size());
  const Cut cut = cut_of(collective, members.all[0].writes, members.all[0].reads, parts);
  std::vector<T> whole(static_cast<std::size_t>(collective.elements));
  for (std::int64_t p = 0; p < parts; ++p) {
    const std::vector<T> part = laid_end_to_end<T>(
        collective, members.all[static_cast<std::size_t>(p)].reads, cut.rows * cut.part_width);
    for (std::int64_t row = 0; row < cut.rows; ++row) {
      std::copy_n(part.data() + row * cut.part_width, cut.part_width,
                  whole.data() + row * cut.whole_width + p * cut.part_width);
    }
  }
  for (const CollectiveMember& member : members.wanted()) {
    spread(collective, whole, member.writes);
  }
}

template <typename T>
void all_to_all(const Collective& collective, const Members& members) {
  const std::size_t parts = members.all.size();
  if (collective.elements % static_cast<std::int64_t>(parts) != 0) {
    refuse(collective, "the elements do not divide among the ranks");
  }
  const std::size_t part = static_cast<std::size_t>(collective.elements) / parts;
  std::vector<std::vector<T>> given, taken(parts);
  given.reserve(parts);
  for (const CollectiveMember& member : members.all) {
    given.push_back(laid_end_to_end<T>(collective, member.reads, collective.elements));
  }
  for (std::size_t to = 0; to < parts; ++to) {
    for (std::size_t from = 0; from < parts; ++from) {
      const T* first = given[from].data() + to * part;
      taken[to].insert(taken[to].end(), first, first + part);
    }
  }
  for (std::size_t to = members.first; to < members.last; ++to) {
    spread(collective, taken[to], members.all[to].writes);
  }
}

template <typename T>
void communicate_as(const Collective& collective, const Members& members) {
  const auto root = static_cast<std::size_t>(collective.root);
  switch (collective.kind) {
    case CollectiveKind::kAllReduce: {
      const std::vector<T> total = reduced<T>(collective, members.all);
      for (const CollectiveMember& member : members.wanted()) {
        spread(collective, total, member.writes);
      }
      return;
    }
    case CollectiveKind::kReduceScatter:
      return reduce_scatter<T>(collective, members);
    case CollectiveKind::kAllGather:
      return all_gather<T>(collective, members);
    case CollectiveKind::kBroadcast: {
      const std::vector<T> values =
          laid_end_to_end<T>(collective, members.all[root].reads, collective.elements);
      for (const CollectiveMember& member : members.wanted()) {
        spread(collective, values, member.writes);
      }
      return;
    }
    case CollectiveKind::kReduce:
      if (!members.wants(root)) return;
      return spread(collective, reduced<T>(collective, members.all), members.all[root].writes);
    case CollectiveKind::kAllToAll:
      return all_to_all<T>(collective, members);
    case CollectiveKind::kSend:
    case CollectiveKind::kReceive:
      if (!members.wants(1)) return;
      return spread(collective,
                    laid_end_to_end<T>(collective, members.all[0].reads, collective.elements),
                    members.all[1].writes);
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
