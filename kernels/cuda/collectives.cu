// Collectives among ranks that share a device: one kernel adds up what the members read, in the
// order of their ranks, and writes every member's result, so that a member's result may take the
// place of what it gave. See kernels/cpu/collectives for what each computes.
#include <array>
#include <numeric>
#include <stdexcept>

#include "kernels/cuda/device_call.hpp"
#include "kernels/cuda/device_operators.hpp"
#include "kernels/cuda/each.hpp"

namespace headway {
namespace {

constexpr std::size_t kMostMembers = 16;  // a kernel's parameters hold their addresses

[[noreturn]] void refuse(const Collective& collective, const std::string& why) {
  throw std::invalid_argument(std::string(name(collective.kind)) + ": " + why);
}

// Elements beyond a member's buffers are zeros, and are not written.
template <typename T>
struct Combine {
  std::array<Elements, kMostMembers> sources, targets;
  int source_count = 0, target_count = 0;
  ReduceOperator reduce = ReduceOperator::kSum;
  // Runs of `width` elements, so far apart.
  std::int64_t width = 1, source_stride = 0, target_stride = 0;

  template <int W>
  HEADWAY_DEVICE void at(std::int64_t i) const {
    const std::int64_t run = i / width, from = run * source_stride + i % width,
                       to = run * target_stride + i % width;
    T total[W] = {}, v[W];
    for (int source = 0; source < source_count; ++source) {
      for (T& each : v) each = 0;
      if (sources.data()[source].data != nullptr) sources.data()[source].load<W>(from, v);
      for (int w = 0; w < W; ++w) {
        const T sum =
            reduce == ReduceOperator::kMaximum ? Larger{}(total[w], v[w]) : total[w] + v[w];
        total[w] = source == 0 ? v[w] : sum;
      }
    }
    if (source_count > 1 && reduce == ReduceOperator::kAverage) {
      for (T& each : total) each /= static_cast<T>(source_count);
    }
    for (int target = 0; target < target_count; ++target) {
      if (targets.data()[target].data != nullptr) targets.data()[target].store<W>(to, total);
    }
  }
};

// Where element `first` of a group lies, and how many follow it in the same buffer; beyond the last
// buffer nowhere, without an end.
struct Place {
  Elements here;
  std::int64_t left = std::numeric_limits<std::int64_t>::max();
};
Place place_in(std::span<const Operand> group, std::int64_t first) {
  for (const Operand& operand : group) {
    if (first < operand.elements()) return {from(operand, first), operand.elements() - first};
    first -= operand.elements();
  }
  return {};
}

class DeviceCollective {
 public:
  DeviceCollective(const Collective& collective, std::span<const CollectiveMember> members,
                   DeviceStream& stream)
      : collective_(collective), members_(members), stream_(stream) {
    if (members.empty()) refuse(collective, "no members");
    if (members.size() > kMostMembers) {
      refuse(collective, "at most " + std::to_string(kMostMembers) + " ranks share a device");
    }
    if (static_cast<std::size_t>(collective.root) >= members.size()) {
      refuse(collective, "the root is not in the group");
    }
    for (const CollectiveMember& member : members) {
      for (const auto* list : {&member.reads, &member.writes}) {
        for (const Operand& operand : *list) {
          in_double_ =
              in_double_ || operand.type == DataType::kFp64 || operand.type == DataType::kInt64;
        }
      }
    }
  }

  void run() {
    const std::int64_t whole = collective_.elements;
    const auto root = static_cast<std::size_t>(collective_.root);
    switch (collective_.kind) {
      case CollectiveKind::kAllReduce:
        check_sizes(whole, whole);
        return combine(members_, 0, members_, 0, whole);
      case CollectiveKind::kReduceScatter:
        return share(true);
      case CollectiveKind::kAllGather:
        return share(false);
      case CollectiveKind::kBroadcast:
        check_sizes(whole, whole);
        return combine(one(root), 0, members_, 0, whole);
      case CollectiveKind::kReduce:
        check_sizes(whole, whole);
        return combine(members_, 0, one(root), 0, whole);
      case CollectiveKind::kAllToAll:
        return all_to_all();
      case CollectiveKind::kShift:
        check_sizes(whole, whole);
        for (std::size_t to = 0; to < members_.size(); ++to) {
          combine(one((to + members_.size() - 1) % members_.size()), 0, one(to), 0, whole);
        }
        return;
      case CollectiveKind::kSend:
      case CollectiveKind::kReceive:
        check_sizes(whole, whole);
        return combine(one(0), 0, one(1), 0, whole);
    }
  }

  // Rows by counts, which the host reads; they move one run at a time.
  void run_by_counts() {
    read_counts();
    if (collective_.kind == CollectiveKind::kAllToAll) return all_to_all_by_counts();
    const bool gathers = collective_.kind == CollectiveKind::kAllGather;
    if (!gathers && collective_.kind != CollectiveKind::kReduceScatter) {
      refuse(collective_, "not by counts");
    }
    std::int64_t first = 0;
    for (std::size_t m = 0; m < members_.size(); ++m) {
      const std::int64_t rows = count_of(m, 0, 1);
      if (gathers) {
        for (std::size_t to = 0; to < members_.size(); ++to) move_rows(m, 0, to, first, rows);
      } else {
        move_rows(members_, first, m, 0, rows);
        fill_rest(m, rows);
      }
      first += rows;
    }
    for (std::size_t to = 0; gathers && to < members_.size(); ++to) fill_rest(to, first);
  }

 private:
  std::span<const CollectiveMember> one(std::size_t member) const {
    return members_.subspan(member, 1);
  }

  void check_sizes(std::int64_t given, std::int64_t taken) const {
    for (const CollectiveMember& member : members_) {
      if (elements_of(member.reads) > given) refuse(collective_, "a member gives too much");
      if (elements_of(member.writes) > taken) refuse(collective_, "a member takes too much");
    }
  }

  // Adds up what `sources` read from element `from` on and writes it to `targets` from `to` on.
  void combine(std::span<const CollectiveMember> sources, std::int64_t from,
               std::span<const CollectiveMember> targets, std::int64_t to, std::int64_t count) {
    if (in_double_) {
      combine_as<double>(sources, from, targets, to, count);
    } else {
      combine_as<float>(sources, from, targets, to, count);
    }
  }
  template <typename T>
  void combine_as(std::span<const CollectiveMember> sources, std::int64_t from,
                  std::span<const CollectiveMember> targets, std::int64_t to, std::int64_t count) {
    for (std::int64_t done = 0; done < count;) {
      Combine<T> work;
      work.reduce = collective_.reduce;
      std::int64_t now = count - done;
      bool by_fours = true, is_written = false;
      const auto add = [&](Elements& slot, const std::vector<Operand>& group, std::int64_t first) {
        const Place place = place_in(group, first);
        slot = place.here;
        now = std::min(now, place.left);
        by_fours = by_fours && wide(kWide, {slot});
      };
      for (const CollectiveMember& source : sources) {
        add(work.sources[static_cast<std::size_t>(work.source_count++)], source.reads, from + done);
      }
      for (const CollectiveMember& target : targets) {
        Elements& slot = work.targets[static_cast<std::size_t>(work.target_count++)];
        add(slot, target.writes, to + done);
        is_written = is_written || slot.data != nullptr;
      }
      work.width = now;
      if (is_written) each_element(work, now, by_fours, stream_.get());
      done += now;
    }
  }

  // The same of `rows` runs of `width` elements in one matrix of each member, `from_stride` and
  // `to_stride` elements apart.
  void combine_runs(std::span<const CollectiveMember> sources, std::int64_t from,
                    std::int64_t from_stride, std::span<const CollectiveMember> targets,
                    std::int64_t to, std::int64_t to_stride, std::int64_t rows,
                    std::int64_t width) {
    if (in_double_) {
      return combine_runs_as<double>(sources, from, from_stride, targets, to, to_stride, rows,
                                     width);
    }
    combine_runs_as<float>(sources, from, from_stride, targets, to, to_stride, rows, width);
  }
  template <typename T>
  void combine_runs_as(std::span<const CollectiveMember> sources, std::int64_t from_first,
                       std::int64_t from_stride, std::span<const CollectiveMember> targets,
                       std::int64_t to_first, std::int64_t to_stride, std::int64_t rows,
                       std::int64_t width) {
    Combine<T> work;
    work.reduce = collective_.reduce;
    work.width = width;
    work.source_stride = from_stride;
    work.target_stride = to_stride;
    bool by_fours = width % kWide == 0 && from_stride % kWide == 0 && to_stride % kWide == 0;
    for (const CollectiveMember& source : sources) {
      Elements& slot = work.sources[static_cast<std::size_t>(work.source_count++)];
      slot = from(source.reads[0], from_first);
      by_fours = by_fours && slot.aligned();
    }
    for (const CollectiveMember& target : targets) {
      Elements& slot = work.targets[static_cast<std::size_t>(work.target_count++)];
      slot = from(target.writes[0], to_first);
      by_fours = by_fours && slot.aligned();
    }
    each_element(work, rows * width, by_fours, stream_.get());
  }

  // A reduce-scatter or an all-gather: by rows, or by columns where one matrix is as high as its
  // parts.
  void share(bool scatters) {
    const auto parts = static_cast<std::int64_t>(members_.size());
    if (collective_.elements % parts != 0) {
      refuse(collective_, std::to_string(collective_.elements) + " elements over " +
                              std::to_string(parts) + " ranks");
    }
    const auto& whole = scatters ? members_[0].reads : members_[0].writes;
    const auto& part = scatters ? members_[0].writes : members_[0].reads;
    const bool by_columns = whole.size() == 1 && part.size() == 1 &&
                            whole[0].rows == part[0].rows &&
                            whole[0].columns == part[0].columns * parts;
    const std::int64_t rows = by_columns ? whole[0].rows : 1;
    const std::int64_t width = collective_.elements / rows, part_width = width / parts;
    check_sizes(scatters ? collective_.elements : rows * part_width,
                scatters ? rows * part_width : collective_.elements);
    for (std::size_t p = 0; p < members_.size(); ++p) {
      const std::int64_t column = static_cast<std::int64_t>(p) * part_width;
      if (by_columns && scatters) {
        combine_runs(members_, column, width, one(p), 0, part_width, rows, part_width);
      } else if (by_columns) {
        combine_runs(one(p), 0, part_width, members_, column, width, rows, part_width);
      } else if (scatters) {
        combine(members_, column, one(p), 0, part_width);
      } else {
        combine(one(p), 0, members_, column, part_width);
      }
    }
  }

  void all_to_all() {
    const auto parts = static_cast<std::int64_t>(members_.size());
    if (collective_.elements % parts != 0) {
      refuse(collective_, "the elements do not divide among the ranks");
    }
    check_sizes(collective_.elements, collective_.elements);
    const std::int64_t part = collective_.elements / parts;
    for (std::int64_t to = 0; to < parts; ++to) {
      for (std::int64_t from = 0; from < parts; ++from) {
        combine(one(static_cast<std::size_t>(from)), to * part, one(static_cast<std::size_t>(to)),
                from * part, part);
      }
    }
  }

  // -- By counts ------------------------------------------------------------------------------

  void read_counts() {
    for (const CollectiveMember& member : members_) {
      if (member.reads.size() != 2 || member.writes.size() != 1) {
        refuse(collective_, "by counts it takes one buffer and its counts, and gives one");
      }
      counts_.push_back(stream_.download(member.reads[1].data, member.reads[1].elements()));
      if (counts_.back().size() % members_.size() != 0 &&
          collective_.kind == CollectiveKind::kAllToAll) {
        refuse(collective_, "the counts do not divide among the ranks");
      }
    }
  }
  // Rows of the p-th of `parts` equal runs of a member's counts.
  std::int64_t count_of(std::size_t member, std::size_t p, std::size_t parts) const {
    const auto run = static_cast<std::ptrdiff_t>(counts_[member].size() / parts);
    const auto first = counts_[member].begin() + static_cast<std::ptrdiff_t>(p) * run;
    return std::accumulate(first, first + run, std::int64_t{0});
  }

  void move_rows(std::size_t from, std::int64_t from_row, std::size_t to, std::int64_t to_row,
                 std::int64_t rows) {
    move_rows(one(from), from_row, to, to_row, rows);
  }
  void move_rows(std::span<const CollectiveMember> sources, std::int64_t from_row, std::size_t to,
                 std::int64_t to_row, std::int64_t rows) {
    const Operand& target = members_[to].writes[0];
    const std::int64_t columns = target.columns;
    for (const CollectiveMember& source : sources) {
      if (rows < 0 || (from_row + rows) * columns > source.reads[0].elements()) {
        refuse(collective_, "the counts ask for more rows than a member gives");
      }
    }
    if ((to_row + rows) * columns > target.elements()) {
      refuse(collective_, "more rows come than a member has room for");
    }
    combine(sources, from_row * columns, one(to), to_row * columns, rows * columns);
  }
  // Zeros behind the last row.
  void fill_rest(std::size_t member, std::int64_t rows) {
    const Operand& target = members_[member].writes[0];
    const Elements first = from(target, rows * target.columns);
    const std::int64_t left = target.elements() - rows * target.columns;
    checked(cudaMemsetAsync(
        first.data, 0, static_cast<std::size_t>(size_of(target.type, left).count), stream_.get()));
  }

  void all_to_all_by_counts() {
    const std::size_t parts = members_.size();
    const bool back = collective_.shares == Shares::kBackByCounts;
    for (std::size_t to = 0; to < parts; ++to) {
      std::int64_t taken = 0;
      for (std::size_t from = 0; from < parts; ++from) {
        std::int64_t first = 0;
        for (std::size_t before = 0; before < to; ++before) {
          first += back ? count_of(before, from, parts) : count_of(from, before, parts);
        }
        const std::int64_t rows = back ? count_of(to, from, parts) : count_of(from, to, parts);
        move_rows(from, first, to, taken, rows);
        taken += rows;
      }
      fill_rest(to, taken);
    }
  }

  const Collective& collective_;
  std::span<const CollectiveMember> members_;
  DeviceStream& stream_;
  bool in_double_ = false;
  std::vector<std::vector<std::int32_t>> counts_;
};

}  // namespace

void communicate_on_device(const Collective& collective, std::span<const CollectiveMember> members,
                           DeviceStream& stream) {
  DeviceCollective work(collective, members, stream);
  if (collective.shares == Shares::kEqual) return work.run();
  work.run_by_counts();
}

}  // namespace headway
