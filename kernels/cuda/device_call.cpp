#include "kernels/cuda/device_call.hpp"

#include <algorithm>

namespace headway {
namespace {

enum Table : std::int64_t { kPositions, kTokens };

const std::int32_t* row_table(const DeviceCall& call, std::int64_t rows, Table table) {
  const TokenMap& map = call.placement.map;
  const std::int64_t first = call.placement.first_row;
  std::vector<std::int64_t> key = key_of(table, map);
  key.insert(key.end(), {first, rows});
  return call.stream.table(key, [&] {
    DeviceStream::Table values;
    for (std::int64_t row = first; row < first + rows; ++row) {
      const std::int64_t token =
          table == kTokens ? map.sequence(row) * map.length + map.position(row) : map.position(row);
      values.push_back(static_cast<std::int32_t>(token));
    }
    return values;
  });
}

class GroupWalk {
 public:
  explicit GroupWalk(std::span<const Operand> group) : group_(group) { skip(); }
  bool ended() const { return next_ == group_.size(); }
  std::int64_t left() const { return group_[next_].elements() - at_; }
  Elements here() const { return ended() ? Elements{} : from(group_[next_], at_); }
  void advance(std::int64_t count) {
    if (ended()) return;
    at_ += count;
    if (at_ < group_[next_].elements()) return;
    at_ = 0;
    ++next_;
    skip();
  }

 private:
  void skip() {
    while (!ended() && group_[next_].elements() == 0) ++next_;
  }

  std::span<const Operand> group_;
  std::size_t next_ = 0;
  std::int64_t at_ = 0;
};

}  // namespace

std::vector<std::int64_t> key_of(std::int64_t table, const TokenMap& map) {
  return {table,     map.length, static_cast<std::int64_t>(map.order), map.ring, map.place,
          map.parts, map.part};
}

const std::int32_t* row_positions(const DeviceCall& call, std::int64_t rows) {
  return row_table(call, rows, kPositions);
}
const std::int32_t* row_tokens(const DeviceCall& call, std::int64_t rows) {
  return row_table(call, rows, kTokens);
}

Elements from(const Operand& operand, std::int64_t i) {
  auto* first = static_cast<char*>(operand.data);
  return {first + static_cast<std::size_t>(i) * device_size(operand.type), operand.type};
}

std::vector<GroupRun> runs_of(std::span<const Operand> a, std::span<const Operand> b) {
  GroupWalk in_a(a), in_b(b);
  std::vector<GroupRun> runs;
  std::int64_t at = 0;
  while (!in_a.ended() || !in_b.ended()) {
    const std::int64_t count = in_a.ended()   ? in_b.left()
                               : in_b.ended() ? in_a.left()
                                              : std::min(in_a.left(), in_b.left());
    runs.push_back({in_a.here(), in_b.here(), at, count});
    in_a.advance(count);
    in_b.advance(count);
    at += count;
  }
  return runs;
}

}  // namespace headway
