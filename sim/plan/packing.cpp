#include "sim/plan/packing.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <sstream>

#include "sim/core/file.hpp"

namespace headway {

namespace {

// More would make a Program that carries them larger than the rest of it.
constexpr std::int64_t kMostDocuments = 1 << 16;
constexpr std::int64_t kLongestDocument = 1 << 24;

// Counts by length, the longest first.
using Histogram = std::map<std::int64_t, std::int64_t, std::greater<>>;

std::optional<std::int64_t> whole_number(const std::string& text) {
  std::istringstream in(text);
  std::int64_t number = 0;
  std::string rest;
  if (!(in >> number) || (in >> rest)) return std::nullopt;
  return number;
}

Histogram read_histogram(const std::string& file, Problems& problems) {
  Histogram counts;
  std::istringstream lines(read_file(file));
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty() || (number == 1 && line == "length,count")) continue;
    const auto comma = std::min(line.find(','), line.size());
    const auto length = whole_number(line.substr(0, comma));
    const auto count = comma < line.size() ? whole_number(line.substr(comma + 1)) : std::nullopt;
    if (length && count && *length >= 1 && *length <= kLongestDocument && *count >= 0 &&
        *count <= kMostDocuments) {
      if (*count > 0) counts[*length] += *count;
      continue;
    }
    problems.add(file, "line " + std::to_string(number),
                 "\"" + line + "\" is not allowed; expected a length from 1 up to " +
                     std::to_string(kLongestDocument) + " and a count up to " +
                     std::to_string(kMostDocuments) + ", like \"512,40\"");
  }
  return counts;
}

}  // namespace

std::vector<std::vector<std::int64_t>> packed_sequences(const std::string& file,
                                                        std::optional<std::int64_t> length,
                                                        Problems& problems) {
  const std::size_t before = problems.size();
  const Histogram counts = read_histogram(file, problems);
  std::int64_t documents = 0;
  for (const auto& [tokens, count] : counts) documents += count;
  if (documents == 0 && problems.size() == before) problems.add(file, "", "holds no document");
  if (documents > kMostDocuments) {
    problems.add(file, "",
                 std::to_string(documents) + " documents; expected at most " +
                     std::to_string(kMostDocuments));
  }
  if (problems.size() != before) return {};
  const std::int64_t room = length.value_or(counts.begin()->first);
  if (counts.begin()->first > room) {
    problems.add(file, "",
                 "a document of " + std::to_string(counts.begin()->first) +
                     " tokens is longer than the " + std::to_string(room) +
                     " that sequences are packed to");
    return {};
  }

  std::vector<std::vector<std::int64_t>> packs;
  std::multimap<std::int64_t, std::size_t> open;  // by what is left of it
  for (const auto& [tokens, count] : counts) {
    for (std::int64_t i = 0; i < count; ++i) {
      auto fits = open.lower_bound(tokens);
      if (fits == open.end()) {
        packs.emplace_back();
        fits = open.emplace(room, packs.size() - 1);
      }
      const auto [left, pack] = *fits;
      packs[pack].push_back(tokens);
      open.erase(fits);
      open.emplace(left - tokens, pack);
    }
  }
  for (const auto& [left, pack] : open) {
    if (left > 0) packs[pack].push_back(left);
  }
  return packs;
}

std::int64_t mean_document(const std::vector<std::vector<std::int64_t>>& packs) {
  double squares = 0, tokens = 0;
  for (const std::vector<std::int64_t>& documents : packs) {
    for (const std::int64_t length : documents) {
      squares += static_cast<double>(length) * static_cast<double>(length);
      tokens += static_cast<double>(length);
    }
  }
  return std::max<std::int64_t>(std::llround(squares / tokens), 1);
}

}  // namespace headway
