// Command-line flags with their values, asked for one by one; each problem names the file and the
// flag. What nobody asked for is left over, for the caller to judge.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/core/error.hpp"

namespace headway {

class FlagArguments {
 public:
  // "--flag", "--flag value ...", "--flag=value"; of a flag given twice the last one counts.
  // Words before the first flag are dropped. `problems` must outlive this.
  FlagArguments(const std::vector<std::string>& words, std::string file, Problems& problems);

  bool has(const std::string& flag) const;
  // Whether the flag is given; it counts as asked for.
  bool take(const std::string& flag);
  // Its values, or nothing where it is not given.
  std::optional<std::vector<std::string>> values(const std::string& flag);
  // Its one value; more or fewer are a problem.
  std::optional<std::string> word(const std::string& flag);
  // An integer from `min`.
  std::optional<std::int64_t> integer(const std::string& flag, std::int64_t min = 1);
  // One of the words on the left, told by its word on the right.
  std::optional<std::string> choice(
      const std::string& flag, const std::vector<std::pair<std::string, std::string>>& meanings);

  void problem(const std::string& flag, std::string message);
  // The flags nobody asked for, in the order given.
  std::vector<std::string> left_over() const;

 private:
  struct Flag {
    std::string name;
    std::vector<std::string> values;
    bool asked = false;
  };
  Flag* find(const std::string& flag);

  std::string file_;
  Problems* problems_;
  std::vector<Flag> flags_;
};

}  // namespace headway
