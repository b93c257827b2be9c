// The values of a resolved job by dotted key, without their origins: what an export writes down.
// It takes each value it can say; whatever of the plan is left over, it cannot.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "sim/core/json_reader.hpp"
#include "sim/plan/job.hpp"

namespace headway {

class ResolvedValues {
 public:
  explicit ResolvedValues(const Job& job);

  std::optional<std::int64_t> integer(const std::string& key);
  bool truth(const std::string& key);        // false where there is none
  std::string word(const std::string& key);  // "" where there is none
  std::vector<std::int64_t> integers(const std::string& key);
  std::vector<std::string> words(const std::string& key);
  // The value as JSON text; "" where there is none.
  std::string text(const std::string& key) const;

  // Keys under a section ("plan.") that nobody asked for.
  std::vector<std::string> left_over(const std::string& section) const;

 private:
  const JsonNode* find(const std::string& key);
  void add(const JsonNode& node, const std::string& key);

  std::map<std::string, JsonNode> values_;
  std::set<std::string> asked_;
};

}  // namespace headway
