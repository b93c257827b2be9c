// A job as another tool's file tells it: values by dotted key, not all of them. What the file does
// not state is left out and listed as missing; what it states and no cost depends on is listed as
// ignored. The text of a draft can be read as a job once nothing is missing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/core/json_reader.hpp"

namespace headway {

class JobDraft {
 public:
  // Sets a value by its dotted key ("plan.tp"); a later one replaces an earlier one.
  void set(const std::string& key, std::int64_t value);
  void set(const std::string& key, double value);
  void set(const std::string& key, bool value);
  void set(const std::string& key, std::string_view word);
  void set(const std::string& key, const char* word) { set(key, std::string_view(word)); }
  void set(const std::string& key, const std::vector<std::int64_t>& values);
  void set(const std::string& key, const std::vector<std::string>& words);
  // A value given as on a command line: JSON where it is JSON, a word otherwise.
  void set_text(const std::string& key, const std::string& text);

  bool has(const std::string& key) const;
  // The value as JSON text; empty where there is none.
  std::string text(const std::string& key) const;

  void ignore(std::string what) { ignored_.push_back(std::move(what)); }
  // Something a cost depends on that a job cannot say.
  void lose(std::string what) { lost_.push_back(std::move(what)); }
  const std::vector<std::string>& ignored() const { return ignored_; }
  const std::vector<std::string>& lost() const { return lost_; }

  // The keys every job needs and nobody gave, in the order of a job: "model",
  // "model.num_hidden_layers", "cluster", ...
  std::vector<std::string> missing() const;

  // The job as indented JSON; `missing`, `ignored` and `not_imported` are lists of it where they
  // are not empty.
  std::string json() const;

 private:
  struct Value {
    std::string key, json;
  };
  void put(const std::string& key, std::string json);
  bool has_any_of(std::string_view section) const;

  std::vector<Value> values_;
  std::vector<std::string> ignored_, lost_;
};

// A word of a file in which case does not matter, in lower case.
std::string lower_case(std::string word);

}  // namespace headway
