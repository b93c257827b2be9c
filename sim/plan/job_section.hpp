// One section of a job ("plan", "software") with the framework's defaults behind it: a value is the
// job's where the job gives it, else the framework's, else the default; which of the three it was
// is recorded. Wrong values become problems; values left open for the planner ("auto", a list, a
// range) are collected apart.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/core/json_reader.hpp"
#include "sim/plan/job.hpp"

namespace headway {

class JobSection {
 public:
  // `name` is the section's key in the job, "" for the job itself. `given` may be absent; then
  // problems still name the place where the value would stand.
  JobSection(std::string name, const JsonNode& job, std::optional<JsonNode> given,
             std::optional<JsonNode> framework, Problems& problems,
             std::map<std::string, Origin>& origins);

  // From now on "auto", lists and {"min":, "max":} are values left open, not wrong ones.
  void allow_open() { may_be_open_ = true; }

  // The value, or `otherwise` where nobody gives it; nothing where it is wrong or left open.
  std::optional<std::int64_t> integer(std::string_view key, IntegerRange range,
                                      std::int64_t otherwise);
  std::optional<bool> boolean(std::string_view key, bool otherwise);
  std::optional<std::string> choice(std::string_view key, const std::vector<std::string>& allowed,
                                    const std::string& otherwise);
  std::optional<std::string> string(std::string_view key, const std::string& otherwise);

  // The value where somebody gives it and it is right.
  std::optional<std::int64_t> optional_integer(std::string_view key, IntegerRange range);
  std::optional<Bytes> optional_bytes(std::string_view key);
  std::optional<Time> optional_time(std::string_view key);
  std::optional<std::vector<std::int64_t>> optional_integers(std::string_view key,
                                                             IntegerRange range);
  // A list of these words, "auto" or none.
  std::optional<std::vector<std::string>> optional_words(std::string_view key,
                                                         const std::vector<std::string>& allowed);
  std::optional<JsonNode> optional_object(std::string_view key);
  std::optional<JsonNode> optional_any(std::string_view key);

  // Whether the job itself gives the key, so that a note about it makes sense.
  bool given(std::string_view key) const { return given_.has(key); }
  // Whether the job or the framework gives it.
  bool stated(std::string_view key) const;
  // Whether the job leaves it open.
  bool left_open(std::string_view key) const;
  const std::vector<std::string>& open_keys() const { return open_; }

  std::string pointer(std::string_view key) const;  // "/plan/tp"
  void problem(std::string_view key, std::string message);
  Problems& problems() { return *problems_; }
  // Reports the keys nobody asked for, in the job and in the framework's defaults.
  void finish();

 private:
  // The reader that has the key; nothing where nobody gives it. Records the origin.
  ObjectReader* source(std::string_view key, bool list_is_value);
  bool is_open(std::string_view key, bool list_is_value);
  void check_range(const JsonNode& range);

  std::string name_;
  std::string file_, base_;  // of the section, for messages
  Problems* problems_;
  ObjectReader given_, framework_;
  std::map<std::string, Origin>* origins_;
  bool may_be_open_ = false;
  std::vector<std::string> open_;
};

}  // namespace headway
