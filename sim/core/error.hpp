// What is wrong with an input, said so that its writer can mend it: file, place, value, what is
// allowed. Readers collect every problem of an input in a Problems list and throw them all at once.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace headway {

// One fault of an input.
struct Problem {
  std::string file;     // path or option the value came from, e.g. "job.json" or "--tp"
  std::string pointer;  // JSON pointer inside the file, e.g. "/plan/tp"; empty for an option
  std::string message;  // what was found and what was expected

  // "job.json: /plan/tp: 0 is not a degree; expected an integer from 1"
  std::string text() const;
};

// Bad input: the user can mend it (exit code 2). what() has one line per problem.
class InvalidInput : public std::runtime_error {
 public:
  explicit InvalidInput(std::vector<Problem> problems);
  InvalidInput(std::string file, std::string pointer, std::string message);
  const std::vector<Problem>& problems() const { return problems_; }

 private:
  std::vector<Problem> problems_;
};

// The machine failed, not the input (exit code 1): a disk is full, a device or a process is gone.
class MachineFailure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Collects the problems of an input while its reader goes on.
class Problems {
 public:
  void add(std::string file, std::string pointer, std::string message);
  bool empty() const { return problems_.empty(); }
  std::size_t size() const { return problems_.size(); }
  const std::vector<Problem>& list() const { return problems_; }
  // Throws InvalidInput with every problem so far, in the order found, duplicates once.
  void throw_if_any() const;

 private:
  std::vector<Problem> problems_;
};

// The candidate nearest to a misspelt word (Damerau-Levenshtein), or empty where none is near.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

// "a, b or c": the allowed values of a message.
std::string any_of(const std::vector<std::string>& values);

}  // namespace headway
