#include "sim/formats/shell_arguments.hpp"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <map>
#include <optional>

#include "sim/core/error.hpp"

namespace headway {
namespace {

using Words = std::vector<std::string>;

bool is_name_character(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// The length of the variable's name at the front; 0 where there is none.
std::size_t name_length(std::string_view text) {
  if (text.empty() || std::isdigit(static_cast<unsigned char>(text.front()))) return 0;
  std::size_t length = 0;
  while (length < text.size() && is_name_character(text[length])) ++length;
  return length;
}

// "8*4", "16": a product of integers; nothing of any other arithmetic.
std::optional<std::int64_t> product(std::string_view text) {
  std::int64_t result = 1;
  std::size_t at = 0;
  while (true) {
    while (at < text.size() && text[at] == ' ') ++at;
    std::int64_t factor = 0;
    std::size_t digits = 0;
    while (at < text.size() && std::isdigit(static_cast<unsigned char>(text[at]))) {
      if (++digits > 9) return std::nullopt;  // no count of a launch script
      factor = factor * 10 + (text[at++] - '0');
    }
    if (digits == 0 || factor == 0 || result > (std::int64_t{1} << 31) / factor)
      return std::nullopt;
    result *= factor;
    while (at < text.size() && text[at] == ' ') ++at;
    if (at == text.size()) return result;
    if (text[at++] != '*') return std::nullopt;
  }
}

class Script {
 public:
  Script(std::string_view text, const std::string& file) : text_(text), file_(file) {}

  Words arguments() {
    while (at_ < text_.size()) read_command();
    Words chosen;
    // A script's other commands (mkdir --parents, srun --nodes) are not the training's.
    const bool launches = std::any_of(commands_.begin(), commands_.end(), launches_training);
    for (const Words& command : commands_) {
      if (launches && !launches_training(command)) continue;
      const auto first = std::find_if(command.begin(), command.end(), [](const std::string& word) {
        return word.starts_with("--");
      });
      chosen.insert(chosen.end(), first, command.end());
    }
    return chosen;
  }

 private:
  static bool launches_training(const Words& command) {
    return std::any_of(command.begin(), command.end(),
                       [](const std::string& word) { return word.ends_with(".py"); });
  }

  bool more() const { return at_ < text_.size(); }
  bool next_is(std::string_view what) const { return text_.substr(at_).starts_with(what); }

  [[noreturn]] void unended(std::size_t from, const std::string& what) const {
    const auto line = 1 + std::count(text_.begin(), text_.begin() + static_cast<long>(from), '\n');
    throw InvalidInput(file_, "", "line " + std::to_string(line) + ": " + what + " without an end");
  }

  // Blanks, continued lines and comments.
  void skip_blanks() {
    while (more()) {
      if (next_is("\\\n") || next_is("\\\r\n")) {
        at_ += next_is("\\\n") ? 2 : 3;
      } else if (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\r') {
        ++at_;
      } else if (text_[at_] == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else {
        return;
      }
    }
  }

  bool at_end_of_command() const {
    return !more() || text_[at_] == '\n' || text_[at_] == ';' || text_[at_] == '&' ||
           text_[at_] == '|';
  }

  void read_command() {
    Words words;
    while (true) {
      skip_blanks();
      if (at_end_of_command()) break;
      if (words.empty() && read_assignment()) continue;
      read_word(words);
      if (words.size() == 1 && words.front() == "export") words.clear();
    }
    if (more()) ++at_;
    if (!words.empty()) commands_.push_back(std::move(words));
  }

  // NAME=value, NAME+=value, NAME=( ... ).
  bool read_assignment() {
    const std::size_t length = name_length(text_.substr(at_));
    if (length == 0) return false;
    const std::string name(text_.substr(at_, length));
    std::size_t after = at_ + length;
    const bool adds = text_.substr(after).starts_with("+=");
    if (!adds && !text_.substr(after).starts_with("=")) return false;
    after += adds ? 2 : 1;
    at_ = after;
    Words value;
    if (next_is("(")) {
      read_array(value);
    } else if (!at_end_of_command() && text_[at_] != ' ') {
      quoted_whole_ = true;  // an assigned value is one word, blanks and all
      read_word(value);
      quoted_whole_ = false;
    }
    Words& variable = variables_[name];
    if (!adds) variable.clear();
    variable.insert(variable.end(), value.begin(), value.end());
    return true;
  }

  void read_array(Words& value) {
    const std::size_t from = at_++;
    while (true) {
      skip_blanks();
      if (!more()) unended(from, "an array");
      if (text_[at_] == ')') break;
      if (text_[at_] == '\n') {
        ++at_;
      } else {
        read_word(value);
      }
    }
    ++at_;
  }

  // One word of the script; with variables in it, it may become several or none.
  void read_word(Words& words) {
    std::string word;
    bool quoted = false;
    substituted_ = false;
    const std::size_t from = at_;
    while (more() && !at_end_of_command() && text_[at_] != ' ' && text_[at_] != '\t' &&
           text_[at_] != ')' && !next_is("\\\n") && !next_is("\r\n")) {
      const char c = text_[at_];
      if (c == '\'') {
        quoted = true;
        const std::size_t end = text_.find('\'', at_ + 1);
        if (end == std::string_view::npos) unended(at_, "a quote");
        word += text_.substr(at_ + 1, end - at_ - 1);
        at_ = end + 1;
      } else if (c == '"') {
        quoted = true;
        read_quoted(word);
      } else if (c == '$') {
        word += expansion();
      } else if (c == '\\' && at_ + 1 < text_.size()) {
        word += text_[at_ + 1];
        at_ += 2;
      } else {
        word += c;
        ++at_;
      }
    }
    if (at_ == from) ++at_;  // a bracket that opens nothing
    // "${ARGS[@]}" is as many words as the array has; a plain quoted variable is one.
    const bool several = quoted ? array_in_quotes_ : substituted_;
    if (several && !quoted_whole_) {
      add_split(word, words);
    } else if (quoted || !word.empty()) {
      words.push_back(std::move(word));
    }
    array_in_quotes_ = false;
  }

  void read_quoted(std::string& word) {
    const std::size_t from = at_++;
    while (more() && text_[at_] != '"') {
      if (next_is("\\\n")) {
        word += ' ';
        at_ += 2;
      } else if (text_[at_] == '\\' && at_ + 1 < text_.size()) {
        word += text_[at_ + 1];
        at_ += 2;
      } else if (text_[at_] == '$') {
        if (text_.substr(at_, text_.find('"', at_) - at_).find("[@]") != std::string_view::npos)
          array_in_quotes_ = true;
        word += expansion();
      } else {
        word += text_[at_++];
      }
    }
    if (!more()) unended(from, "a quote");
    ++at_;
  }

  static void add_split(const std::string& text, Words& words) {
    std::string word;
    for (const char c : text + ' ') {
      if (!std::isspace(static_cast<unsigned char>(c))) {
        word += c;
      } else if (!word.empty()) {
        words.push_back(std::move(word));
        word.clear();
      }
    }
  }

  std::optional<std::string> value_of(const std::string& name) const {
    const auto found = variables_.find(name);
    if (found == variables_.end()) return std::nullopt;
    std::string text;
    for (const std::string& word : found->second) text += (text.empty() ? "" : " ") + word;
    return text;
  }

  // The text of the closing bracket's other side; `at_` is behind it.
  std::string_view bracketed(std::string_view open, std::string_view close) {
    const std::size_t from = at_ + open.size();
    const std::size_t end = text_.find(close, from);
    if (end == std::string_view::npos) unended(at_, "\"" + std::string(open) + "\"");
    at_ = end + close.size();
    return text_.substr(from, end - from);
  }

  std::string substituted(std::string text) {
    substituted_ = true;
    return text;
  }

  // "$NAME", "${NAME}", "${NAME[@]}", "${NAME:-otherwise}", "$((A*B))"; whatever else, as written.
  std::string expansion() {
    const std::size_t from = at_;
    if (next_is("$((")) {
      const std::string inner = variables_in(bracketed("$((", "))"));
      if (const auto value = product(inner)) return std::to_string(*value);
    } else if (next_is("$(")) {
      bracketed("$(", ")");
    } else if (next_is("${")) {
      const std::string_view inner = bracketed("${", "}");
      const std::size_t length = name_length(inner);
      const std::string_view rest = inner.substr(length);
      const auto value = value_of(std::string(inner.substr(0, length)));
      const bool otherwise = rest.starts_with(":-");
      if (value && (rest.empty() || rest == "[@]" || rest == "[*]" || otherwise))
        return substituted(*value);
      if (otherwise) return substituted(std::string(rest.substr(2)));
    } else {
      const std::size_t length = name_length(text_.substr(at_ + 1));
      at_ += 1 + std::max<std::size_t>(length, 1);
      at_ = std::min(at_, text_.size());
      if (const auto value = value_of(std::string(text_.substr(from + 1, length))))
        return substituted(*value);
    }
    return std::string(text_.substr(from, at_ - from));
  }

  // Arithmetic names variables with and without a dollar.
  std::string variables_in(std::string_view text) const {
    std::string result;
    while (!text.empty()) {
      if (text.front() == '$' || text.front() == '{' || text.front() == '}') {
        text.remove_prefix(1);
        continue;
      }
      const std::size_t length = name_length(text);
      const auto value = length > 0 ? value_of(std::string(text.substr(0, length))) : std::nullopt;
      result += value ? *value : std::string(text.substr(0, std::max<std::size_t>(length, 1)));
      text.remove_prefix(std::max<std::size_t>(length, 1));
    }
    return result;
  }

  std::string_view text_;
  const std::string& file_;
  std::size_t at_ = 0;
  bool quoted_whole_ = false, array_in_quotes_ = false, substituted_ = false;
  std::map<std::string, Words> variables_;
  std::vector<Words> commands_;
};

}  // namespace

std::vector<std::string> shell_arguments(std::string_view script, const std::string& file) {
  return Script(script, file).arguments();
}

}  // namespace headway
