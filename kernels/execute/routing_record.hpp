// Which experts each token of a run chose, by layer and global token: written by a reference run
// and repeated by another, so that the two differ in nothing but the order of their sums, also
// where a rounding would have changed a choice.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

namespace headway {

class RoutingRecord {
 public:
  // `choice`: per_token experts of each of these tokens, which are counted over all steps.
  void add(int layer, const std::vector<std::int64_t>& tokens, std::int64_t per_token,
           const std::vector<std::int32_t>& choice);
  void add(const RoutingRecord& other);
  // The choices of these tokens. Throws std::invalid_argument where one is missing.
  std::vector<std::int32_t> find(int layer, const std::vector<std::int64_t>& tokens) const;
  bool empty() const { return choices_.empty(); }
  friend bool operator==(const RoutingRecord&, const RoutingRecord&) = default;

 private:
  std::map<int, std::map<std::int64_t, std::vector<std::int32_t>>> choices_;  // by layer and token
};

}  // namespace headway
