#include "sim/formats/xml.hpp"

#include <algorithm>
#include <cctype>

#include "sim/core/error.hpp"

namespace headway {

namespace {

constexpr int kDeepest = 64;

class XmlParser {
 public:
  XmlParser(std::string_view text, const std::string& file) : text_(text), file_(file) {}

  XmlElement document() {
    skip_to_element();
    if (at_ == text_.size()) fail("no element; expected <system ...>");
    XmlElement root = element(0);
    skip_to_element();
    if (at_ < text_.size()) fail("more than one element at the top");
    return root;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw InvalidInput(file_, "", "line " + std::to_string(line()) + ": " + what);
  }
  int line() const {
    return 1 + static_cast<int>(std::count(text_.begin(),
                                           text_.begin() + static_cast<std::ptrdiff_t>(at_), '\n'));
  }
  bool next_is(std::string_view piece) const { return text_.substr(at_).starts_with(piece); }
  bool take(std::string_view piece) {
    if (!next_is(piece)) return false;
    at_ += piece.size();
    return true;
  }
  void skip_past(std::string_view end, const char* what) {
    const std::size_t found = text_.find(end, at_);
    if (found == std::string_view::npos) fail(std::string(what) + " without an end");
    at_ = found + end.size();
  }
  void skip_space() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }
  // To the next tag, past text, comments and declarations.
  void skip_to_element() {
    for (;;) {
      at_ = std::min(text_.find('<', at_), text_.size());
      if (take("<!--")) {
        skip_past("-->", "a comment");
      } else if (take("<?") || take("<!")) {
        skip_past(">", "a declaration");
      } else {
        return;
      }
    }
  }
  std::string word(const char* what) {
    const std::size_t begin = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) ||
                                  text_[at_] == '_' || text_[at_] == '-' || text_[at_] == ':')) {
      ++at_;
    }
    if (at_ == begin) fail(std::string("expected ") + what);
    return std::string(text_.substr(begin, at_ - begin));
  }
  XmlElement element(int depth) {
    if (depth > kDeepest) fail("elements nested too deep");
    take("<");
    XmlElement result;
    result.line = line();
    result.name = word("an element's name");
    for (;;) {
      skip_space();
      if (take("/>")) return result;
      if (take(">")) break;
      result.attributes.push_back(attribute());
    }
    for (;;) {
      skip_to_element();
      if (at_ == text_.size()) fail("<" + result.name + "> has no end");
      if (take("</")) {
        if (const std::string end = word("an element's name"); end != result.name) {
          fail("</" + end + "> ends <" + result.name + ">");
        }
        skip_space();
        if (!take(">")) fail("expected >");
        return result;
      }
      result.children.push_back(element(depth + 1));
    }
  }
  std::pair<std::string, std::string> attribute() {
    std::string key = word("an attribute, > or />");
    skip_space();
    if (!take("=")) fail("attribute " + key + " has no value");
    skip_space();
    const char quote = at_ < text_.size() ? text_[at_] : ' ';
    if (quote != '"' && quote != '\'') fail("the value of " + key + " is not in quotes");
    const std::size_t end = text_.find(quote, ++at_);
    if (end == std::string_view::npos) fail("the value of " + key + " has no end");
    std::string value(text_.substr(at_, end - at_));
    at_ = end + 1;
    return {std::move(key), std::move(value)};
  }

  std::string_view text_;
  const std::string& file_;
  std::size_t at_ = 0;
};

}  // namespace

std::optional<std::string> XmlElement::attribute(std::string_view key) const {
  for (const auto& [own, value] : attributes) {
    if (own == key) return value;
  }
  return std::nullopt;
}

XmlElement parse_xml(std::string_view text, const std::string& file) {
  return XmlParser(text, file).document();
}

}  // namespace headway
