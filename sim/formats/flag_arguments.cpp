#include "sim/formats/flag_arguments.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>

namespace headway {
namespace {

// "-1" is a value, "--lr" and "-x" are not asked for as values.
bool is_flag(const std::string& word) {
  return word.starts_with("--") && word.size() > 2 &&
         std::isalpha(static_cast<unsigned char>(word[2]));
}

}  // namespace

FlagArguments::FlagArguments(const std::vector<std::string>& words, std::string file,
                             Problems& problems)
    : file_(std::move(file)), problems_(&problems) {
  Flag* last = nullptr;
  for (const std::string& word : words) {
    if (is_flag(word)) {
      const std::size_t equals = word.find('=');
      const std::string name = word.substr(0, equals);
      last = find(name);
      if (last == nullptr) {
        flags_.push_back({name, {}, false});
        last = &flags_.back();
      }
      last->values.clear();
      if (equals != std::string::npos) last->values.push_back(word.substr(equals + 1));
    } else if (last != nullptr) {
      last->values.push_back(word);
    }
  }
}

FlagArguments::Flag* FlagArguments::find(const std::string& flag) {
  const auto found = std::find_if(flags_.begin(), flags_.end(),
                                  [&](const Flag& candidate) { return candidate.name == flag; });
  return found == flags_.end() ? nullptr : &*found;
}

bool FlagArguments::has(const std::string& flag) const {
  return std::any_of(flags_.begin(), flags_.end(),
                     [&](const Flag& candidate) { return candidate.name == flag; });
}

bool FlagArguments::take(const std::string& flag) {
  Flag* found = find(flag);
  if (found != nullptr) found->asked = true;
  return found != nullptr;
}

std::optional<std::vector<std::string>> FlagArguments::values(const std::string& flag) {
  if (!take(flag)) return std::nullopt;
  return find(flag)->values;
}

std::optional<std::string> FlagArguments::word(const std::string& flag) {
  const auto given = values(flag);
  if (!given) return std::nullopt;
  if (given->size() == 1) return given->front();
  problem(flag, given->empty() ? "has no value" : "has more than one value");
  return std::nullopt;
}

std::optional<std::int64_t> FlagArguments::integer(const std::string& flag, std::int64_t min) {
  const auto text = word(flag);
  if (!text) return std::nullopt;
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error == std::errc() && end == text->data() + text->size() && value >= min) return value;
  if (text->find('$') != std::string::npos) {
    problem(flag, *text + " is set outside the file; expected an integer");
  } else {
    problem(flag,
            "\"" + *text + "\" is not allowed; expected an integer from " + std::to_string(min));
  }
  return std::nullopt;
}

std::optional<std::string> FlagArguments::choice(
    const std::string& flag, const std::vector<std::pair<std::string, std::string>>& meanings) {
  const auto text = word(flag);
  if (!text) return std::nullopt;
  std::vector<std::string> allowed;
  for (const auto& [word, meaning] : meanings) {
    if (word == *text) return meaning;
    allowed.push_back(word);
  }
  problem(flag, "\"" + *text + "\" is not allowed; expected " + any_of(allowed));
  return std::nullopt;
}

void FlagArguments::problem(const std::string& flag, std::string message) {
  problems_->add(file_, flag, std::move(message));
}

std::vector<std::string> FlagArguments::left_over() const {
  std::vector<std::string> names;
  for (const Flag& flag : flags_) {
    if (!flag.asked) names.push_back(flag.name);
  }
  return names;
}

}  // namespace headway
