#include "sim/core/error.hpp"

#include <algorithm>
#include <utility>

namespace headway {

namespace {

std::string lines(const std::vector<Problem>& problems) {
  std::string text;
  for (const Problem& problem : problems) {
    if (!text.empty()) text += '\n';
    text += problem.text();
  }
  return text;
}

// Edit distance in which swapping neighbours counts as one edit.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> table(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) table[i][0] = i;
  for (std::size_t j = 0; j <= b.size(); ++j) table[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substitution = table[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      table[i][j] = std::min({table[i - 1][j] + 1, table[i][j - 1] + 1, substitution});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        table[i][j] = std::min(table[i][j], table[i - 2][j - 2] + 1);
      }
    }
  }
  return table[a.size()][b.size()];
}

}  // namespace

std::string Problem::text() const {
  std::string text = file;
  if (!pointer.empty()) text += (text.empty() ? "" : ": ") + pointer;
  return text.empty() ? message : text + ": " + message;
}

InvalidInput::InvalidInput(std::vector<Problem> problems)
    : std::runtime_error(lines(problems)), problems_(std::move(problems)) {}

InvalidInput::InvalidInput(std::string file, std::string pointer, std::string message)
    : InvalidInput({Problem{std::move(file), std::move(pointer), std::move(message)}}) {}

void Problems::add(std::string file, std::string pointer, std::string message) {
  Problem problem{std::move(file), std::move(pointer), std::move(message)};
  const std::string text = problem.text();
  const bool known = std::any_of(problems_.begin(), problems_.end(),
                                 [&](const Problem& other) { return other.text() == text; });
  if (!known) problems_.push_back(std::move(problem));
}

void Problems::throw_if_any() const {
  if (!problems_.empty()) throw InvalidInput(problems_);
}

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  std::string best;
  // More than a third of the letters wrong is another word, not a slip.
  std::size_t best_distance = std::max<std::size_t>(1, word.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const std::size_t found = distance(word, candidate);
    if (found < best_distance) {
      best = candidate;
      best_distance = found;
    }
  }
  return best;
}

std::string any_of(const std::vector<std::string>& values) {
  std::string text;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i > 0) text += i + 1 == values.size() ? " or " : ", ";
    text += values[i];
  }
  return text;
}

}  // namespace headway
