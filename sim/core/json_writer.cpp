#include "sim/core/json_writer.hpp"

#include <array>
#include <cassert>
#include <charconv>
#include <cmath>

namespace headway {

namespace {

// Length of the well-formed UTF-8 sequence at `at`, 0 where there is none (RFC 3629: no overlong
// forms, no surrogates, nothing above U+10FFFF).
std::size_t utf8_length(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) -> unsigned {
    return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0U;
  };
  const auto tail = [&](std::size_t i) { return (byte(i) & 0xC0U) == 0x80U; };
  const unsigned lead = byte(0);
  if (lead < 0x80U) return 1;
  if (lead >= 0xC2U && lead <= 0xDFU) return tail(1) ? 2 : 0;
  if (lead >= 0xE0U && lead <= 0xEFU) {
    const bool overlong = lead == 0xE0U && byte(1) < 0xA0U;
    const bool surrogate = lead == 0xEDU && byte(1) >= 0xA0U;
    return tail(1) && tail(2) && !overlong && !surrogate ? 3 : 0;
  }
  if (lead >= 0xF0U && lead <= 0xF4U) {
    const bool overlong = lead == 0xF0U && byte(1) < 0x90U;
    const bool too_high = lead == 0xF4U && byte(1) >= 0x90U;
    return tail(1) && tail(2) && tail(3) && !overlong && !too_high ? 4 : 0;
  }
  return 0;
}

void append_control(std::string& to, unsigned char control) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  switch (control) {
    case '\n':
      to += "\\n";
      return;
    case '\t':
      to += "\\t";
      return;
    case '\r':
      to += "\\r";
      return;
    default:
      to += "\\u00";
      to += kDigits[control >> 4U];
      to += kDigits[control & 0xFU];
  }
}

// Bytes that are not UTF-8 (a file name may hold some) become U+FFFD, so that the text stays valid.
void append_quoted(std::string& to, std::string_view text) {
  to += '"';
  for (std::size_t at = 0; at < text.size();) {
    const char letter = text[at];
    if (letter == '"' || letter == '\\') {
      to += '\\';
      to += letter;
      ++at;
    } else if (static_cast<unsigned char>(letter) < 0x20U) {
      append_control(to, static_cast<unsigned char>(letter));
      ++at;
    } else if (const std::size_t length = utf8_length(text, at); length > 0) {
      to += text.substr(at, length);
      at += length;
    } else {
      to += "\xEF\xBF\xBD";
      ++at;
    }
  }
  to += '"';
}

template <typename Number>
void append_number(std::string& to, Number number) {
  std::array<char, 32> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), number).ptr;
  to.append(buffer.data(), end);
}

}  // namespace

JsonWriter::JsonWriter(int indent) : indent_(indent) {}

void JsonWriter::newline() {
  if (indent_ == 0) return;
  text_ += '\n';
  text_.append(levels_.size() * static_cast<std::size_t>(indent_), ' ');
}

void JsonWriter::before_value() {
  if (after_key_) {
    after_key_ = false;
    return;
  }
  // One value at the top; a value of an object has its key before it.
  assert(levels_.empty() ? text_.empty() : levels_.back().array);
  if (!levels_.empty()) separate();
}

void JsonWriter::separate() {
  Level& level = levels_.back();
  if (!level.empty) text_ += level.inline_values && indent_ > 0 ? ", " : ",";
  if (!level.inline_values) newline();
  level.empty = false;
}

JsonWriter& JsonWriter::key(std::string_view name) {
  assert(!levels_.empty() && !levels_.back().array && !after_key_);
  separate();
  append_quoted(text_, name);
  text_ += indent_ > 0 ? ": " : ":";
  after_key_ = true;
  return *this;
}

JsonWriter& JsonWriter::begin_object(bool inline_values) {
  before_value();
  text_ += '{';
  const bool inside_inline = !levels_.empty() && levels_.back().inline_values;
  levels_.push_back({false, inline_values || inside_inline, true});
  return *this;
}

JsonWriter& JsonWriter::begin_array(bool inline_values) {
  before_value();
  text_ += '[';
  const bool inside_inline = !levels_.empty() && levels_.back().inline_values;
  levels_.push_back({true, inline_values || inside_inline, true});
  return *this;
}

JsonWriter& JsonWriter::end_object() {
  assert(!levels_.empty() && !levels_.back().array && !after_key_);
  const Level level = levels_.back();
  levels_.pop_back();
  if (!level.empty && !level.inline_values) newline();
  text_ += '}';
  return *this;
}

JsonWriter& JsonWriter::end_array() {
  assert(!levels_.empty() && levels_.back().array);
  const Level level = levels_.back();
  levels_.pop_back();
  if (!level.empty && !level.inline_values) newline();
  text_ += ']';
  return *this;
}

JsonWriter& JsonWriter::value(std::string_view text) {
  before_value();
  append_quoted(text_, text);
  return *this;
}

JsonWriter& JsonWriter::value(bool truth) {
  before_value();
  text_ += truth ? "true" : "false";
  return *this;
}

JsonWriter& JsonWriter::value(double number) {
  assert(std::isfinite(number));
  before_value();
  append_number(text_, number);
  return *this;
}

JsonWriter& JsonWriter::value(std::int64_t number) {
  before_value();
  append_number(text_, number);
  return *this;
}

JsonWriter& JsonWriter::null() {
  before_value();
  text_ += "null";
  return *this;
}

JsonWriter& JsonWriter::raw(std::string_view json) {
  before_value();
  text_ += json;
  return *this;
}

std::string JsonWriter::text() const {
  assert(levels_.empty() && !after_key_);
  return indent_ > 0 ? text_ + '\n' : text_;
}

}  // namespace headway
